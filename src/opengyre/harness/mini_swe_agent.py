"""mini-swe-agent, speaking OpenAI Chat Completions.

Invariant: its Python packages are seen by it alone; the commands it runs use the sandbox's Python.
"""

import sys
from pathlib import Path

from opengyre.core.errors import UserError
from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.harness.programs import package_folder
from opengyre.sandbox.base import Bind, Command

INSIDE = f"{PROGRAMS_INSIDE}/mini"
BOOT = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from minisweagent.run.mini import app; app()"
"""Packages by argument rather than by PYTHONPATH, which the agent's own commands would inherit."""
ARGUMENTS = ["-y", "--exit-immediately", "-l", "0", "-o", "/tmp/mini.traj.json"]
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
}
"""No questions, no price list from the network."""
WITHHELD = "opengyre"
"""Our own package may lie beside it, with bundled tasks and their solutions."""
MODULE = "minisweagent"
INSTALL = "pip install mini-swe-agent"
VENV = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
"""Where a virtual environment of this Python has its packages; those of another would not load."""
NOTHING = Path(__file__).parent / "nothing"
"""Seen in its place."""


class MiniSweAgent(Harness):
    """The program `mini`, from the folder of packages that it is installed in."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages

    @classmethod
    def installed(cls, packages: Path | None = None) -> "MiniSweAgent":
        """From the folder of packages if one is named. Raises UserError when it is not there."""
        if packages is not None:
            return cls(_named(packages.expanduser()))
        folder = package_folder(MODULE)
        if folder is None:
            raise UserError("the program mini", f"no Python package {MODULE}", INSTALL)
        return cls(folder.parent)

    def command(self, run: HarnessRun) -> Command:
        python = str(Path(sys.executable).resolve())
        start = [python, "-I", "-c", BOOT, INSIDE]
        api = {"OPENAI_API_BASE": f"{run.base_url}/v1", "OPENAI_API_KEY": run.key}
        chosen = ["-m", f"openai/{run.model}", "-t", run.instruction]
        return Command(
            argv=[*start, *chosen, *ARGUMENTS, *run.args],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={**QUIET, **api, **run.env},
            binds=self._binds(),
        )

    def _binds(self) -> list[Bind]:
        hidden = [Bind(NOTHING, f"{INSIDE}/{WITHHELD}")] if self._ours_is_there() else []
        return [Bind(self._packages, INSIDE), *hidden]

    def _ours_is_there(self) -> bool:
        return (self._packages / WITHHELD).is_dir()


def _named(folder: Path) -> Path:
    """The folder itself, or what it has as a virtual environment. Raises UserError."""
    for packages in (folder, folder / VENV):
        if (packages / MODULE / "__init__.py").is_file():
            return packages.resolve()
    raise UserError(
        "the program mini",
        f"none below {folder} or {folder / VENV}",
        f"{INSTALL} --target {folder}, with the Python that runs opengyre",
    )
