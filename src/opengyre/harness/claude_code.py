"""Claude Code, headless, speaking Anthropic Messages.

Invariant: it calls nothing but the base URL, and its prompts hold nothing that differs between
executions of one task (billing line, cache marks), so that they share their prefix.
"""

from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.harness.programs import Native, NativeHarness
from opengyre.sandbox.base import Bind, Command

INSIDE = f"{PROGRAMS_INSIDE}/claude"
ARGUMENTS = ["--dangerously-skip-permissions", "--output-format", "json"]
QUIET = {
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_PROMPT_CACHING": "1",
    "DISABLE_TELEMETRY": "1",
    "IS_SANDBOX": "1",
}
"""No calls but to the model, no per-conversation marks in prompts, no refusal to run as root."""
MODEL_NAMES = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)
"""Sub-agents and small tasks ask for other models unless told."""
LONGEST_MS = 2**31 - 1
"""A larger timer value fires at once in JavaScript."""


class ClaudeCode(NativeHarness, Harness):
    """The program `claude`."""

    NATIVE = Native(
        name="claude",
        npm="@anthropic-ai/claude-code*",
        module="claude_agent_sdk",
        inner="_bundled/claude",
        install="pip install claude-agent-sdk, or npm install -g @anthropic-ai/claude-code",
    )

    def command(self, run: HarnessRun) -> Command:
        model = dict.fromkeys(MODEL_NAMES, run.model)
        api = {
            "ANTHROPIC_BASE_URL": run.base_url,
            "ANTHROPIC_API_KEY": run.key,
            "API_TIMEOUT_MS": str(min(int(run.timeout_s * 1000), LONGEST_MS)),
        }
        return Command(
            argv=[INSIDE, "-p", *ARGUMENTS, *run.args, "--", run.instruction],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={**QUIET, **model, **api, **run.env},
            binds=[Bind(self._program, INSIDE)],
        )
