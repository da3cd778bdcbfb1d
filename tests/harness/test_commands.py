"""What each program is told, and what is said when it is not installed."""

import sys
from pathlib import Path
from typing import Any

import pytest

from opengyre.config.run import HarnessSection
from opengyre.core.errors import SandboxError, UserError
from opengyre.harness.base import Harness, HarnessRun
from opengyre.harness.claude_code import ClaudeCode
from opengyre.harness.codex import Codex
from opengyre.harness.command import OtherProgram
from opengyre.harness.make import make_harness
from opengyre.harness.mini_swe_agent import MiniSweAgent
from opengyre.harness.run import connected, run_harness
from opengyre.sandbox.base import Command, Outcome

RUN = HarnessRun(
    execution_id="exec-1",
    instruction="-- do {key} it",
    workspace=Path("/host/work"),
    socket=Path("/host/proxy.sock"),
    base_path="/run/exec-1",
    key="key-1",
    model="policy",
    timeout_s=9.0,
    args=["--more"],
    env={"EXTRA": "1"},
)
PROGRAM = Path(sys.executable)
HARNESSES = [
    ClaudeCode(PROGRAM),
    Codex(PROGRAM),
    MiniSweAgent(PROGRAM.parent),
    OtherProgram(["agent", "{base_url}", "{key}", "{model}", "{instruction}"], None),
]


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: type(harness).__name__)
def test_every_program_is_told_url_key_model_and_instruction(harness: Harness) -> None:
    command = harness.command(RUN)
    told = " ".join([*command.argv, *command.env.values()])
    for word in (RUN.base_url, RUN.key, RUN.model, RUN.instruction, "--more"):
        assert word in told
    assert (command.cwd, command.timeout_s, command.env["EXTRA"]) == ("/app", 9.0, "1")


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: type(harness).__name__)
def test_the_instruction_is_one_argument_and_never_a_flag(harness: Harness) -> None:
    argv = harness.command(RUN).argv
    place = argv.index(RUN.instruction)
    assert argv[place - 1] in {"--", "-t", RUN.model}


def test_a_configured_variable_wins_over_the_adapters() -> None:
    run = HarnessRun(**{**_fields(RUN), "env": {"DISABLE_TELEMETRY": "0"}})
    assert ClaudeCode(PROGRAM).command(run).env["DISABLE_TELEMETRY"] == "0"


def test_the_program_stands_behind_the_forwarder_in_its_workspace() -> None:
    command = connected(Command(argv=["agent"], cwd="/app", timeout_s=1), RUN)
    assert command.argv[-3:] == [RUN.port, "/run/opengyre/proxy.sock", "agent"]
    workspace = command.binds[0]
    assert (workspace.source, workspace.target, workspace.writable) == (
        Path("/host/work"),
        "/app",
        True,
    )


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("claude-code", "claude-agent-sdk"),
        ("codex", "openai-codex-cli-bin"),
        ("mini-swe-agent", "mini-swe-agent"),
    ],
)
def test_a_missing_program_is_a_message_with_its_package(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=f"pip install {package}"):
        make_harness(HarnessSection.model_validate({"name": name}))


def test_a_missing_command_is_named() -> None:
    section = HarnessSection.model_validate({"name": "command", "command": ["no-such-agent"]})
    with pytest.raises(UserError, match="no-such-agent"):
        make_harness(section)


def test_npms_launcher_script_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = tmp_path / "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    script = tmp_path / "node_modules/@anthropic-ai/claude-code/cli.js"
    for file, text in ((native, "\x7fELF"), (script, "#!/usr/bin/env node")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").symlink_to(script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    assert ClaudeCode.installed().command(RUN).binds[0].source == native


class BrokenSandbox:
    private_network = True

    async def run(self, command: Command) -> Outcome:
        raise SandboxError("no space for it")


async def test_a_sandbox_that_breaks_is_an_outcome() -> None:
    outcome = await run_harness(HARNESSES[3], RUN, BrokenSandbox())
    assert (outcome.started, outcome.stderr_tail) == (False, "no space for it")


def _fields(run: HarnessRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}
