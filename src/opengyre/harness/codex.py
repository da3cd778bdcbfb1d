"""Codex, headless, speaking OpenAI Responses.

Invariant: its provider is ours alone, given on the command line: no file of the user is read.
"""

import json

from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.harness.programs import Native, NativeHarness
from opengyre.sandbox.base import Bind, Command

INSIDE = f"{PROGRAMS_INSIDE}/codex"
"""The folder with the program: helpers lie beside it."""
ARGUMENTS = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--json"]
PROVIDER = "opengyre"
KEY_NAME = "OPENGYRE_KEY"
"""Variable that Codex is told to read the key from."""
QUIET = ["-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false"]
"""No calls but to the model."""


class Codex(NativeHarness, Harness):
    """The program `codex`."""

    NATIVE = Native(
        name="codex",
        npm="@openai/codex*",
        module="codex_cli_bin",
        inner="bin/codex",
        install="pip install openai-codex-cli-bin, or npm install -g @openai/codex",
    )

    def command(self, run: HarnessRun) -> Command:
        settings = {
            "model": run.model,
            "model_provider": PROVIDER,
            f"model_providers.{PROVIDER}.name": PROVIDER,
            f"model_providers.{PROVIDER}.base_url": f"{run.base_url}/v1",
            f"model_providers.{PROVIDER}.wire_api": "responses",
            f"model_providers.{PROVIDER}.env_key": KEY_NAME,
        }
        given = [word for name, value in settings.items() for word in ("-c", _toml(name, value))]
        program = f"{INSIDE}/{self._program.name}"
        return Command(
            argv=[program, "exec", *ARGUMENTS, *QUIET, *given, *run.args, "--", run.instruction],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={KEY_NAME: run.key, **run.env},
            binds=[Bind(self._program.parent, INSIDE)],
        )


def _toml(name: str, value: str) -> str:
    """A JSON string of these names and URLs is a TOML string too."""
    return f"{name}={json.dumps(value)}"
