"""OpenCode, headless, speaking OpenAI Chat Completions.

Invariant: its provider is ours alone, given in the environment: no file of the user is read, and
it calls nothing but the base URL. The title is given, so that no model is asked for one.
"""

import json

from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.harness.programs import Native, NativeHarness
from opengyre.sandbox.base import Bind, Command

INSIDE = f"{PROGRAMS_INSIDE}/opencode"
ARGUMENTS = ["run", "--auto", "--format", "json", "--title", "task"]
PROVIDER = "opengyre"
PACKAGE = "@ai-sdk/openai-compatible"
"""Speaks Chat Completions; part of the program, so nothing is downloaded."""
QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_SHARE": "1",
}
"""No calls but to the model, no downloads."""


class OpenCode(NativeHarness, Harness):
    """The program `opencode`."""

    NATIVE = Native(
        name="opencode",
        npm="opencode-*",
        install="npm install opencode-ai (opencode-linux-x64 is enough) into the folder "
        "harness.packages, or npm install -g opencode-ai",
    )

    def command(self, run: HarnessRun) -> Command:
        chosen = ["-m", f"{PROVIDER}/{run.model}"]
        return Command(
            argv=[INSIDE, *ARGUMENTS, *chosen, *run.args, "--", run.instruction],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={**QUIET, "OPENCODE_CONFIG_CONTENT": json.dumps(_config(run)), **run.env},
            binds=[Bind(self._program, INSIDE)],
        )


def _config(run: HarnessRun) -> dict[str, object]:
    """One provider with one model, which does the small jobs too."""
    provider = {
        "npm": PACKAGE,
        "name": PROVIDER,
        "options": {"baseURL": f"{run.base_url}/v1", "apiKey": run.key},
        "models": {run.model: {"name": run.model}},
    }
    return {
        "autoupdate": False,
        "share": "disabled",
        "small_model": f"{PROVIDER}/{run.model}",
        "enabled_providers": [PROVIDER],
        "provider": {PROVIDER: provider},
    }
