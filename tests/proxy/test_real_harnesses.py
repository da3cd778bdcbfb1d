"""The unmodified Claude Code and Codex through the proxy: a tool loop is one line of exact tokens."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from opengyre.core.records import GenerateRequest
from opengyre.tree.record import ExecutionTree
from tests.proxy.conftest import KEY, Start, World

pytestmark = pytest.mark.slow


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def run(program: Path, arguments: list[str], folder: Path, env: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def prove(world: World, calls: int) -> None:
    ExecutionTree(world.calls).check()
    assert [made.role.value for made in world.calls] == ["main"] * calls
    tree = ExecutionTree(world.calls)
    for request, made in zip(world.generator.requests, world.calls, strict=True):
        assert tree.prompt_ids(made.call_id) == request.prompt_ids
    report = await world.executions.close("e1")
    assert (report.complete_replies, report.forks, report.failed_calls) == (calls, {}, 0)
    assert report.refused_calls == 0


def folders(tmp_path: Path) -> tuple[Path, Path]:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "main.py").write_text("x = 1\n")
    return home, work


async def test_claude_code_is_one_line(start: Start, tmp_path: Path) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    program = Path(sdk.__file__).parent / "_bundled" / "claude"
    home, work = folders(tmp_path)
    script = [
        f"<think>\nhm\n</think>\n\nI look.\n{call('Bash', command='cat main.py')}",
        call("Bash", command="sleep 0.2; echo first") + "\n" + call("Bash", command="echo second"),
        call("Bash", command="sed -i s/1/2/ main.py"),
        "Done.",
    ]
    world = await start(script, harness="claude-code", context_tokens=40000)
    env = {
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": world.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_MODEL": "policy",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    flags = ["--bare", "--tools", "Bash", "--dangerously-skip-permissions"]
    out = await run(program, ["-p", "Fix it.", *flags, "--output-format", "json"], work, env)
    assert json.loads(out)["result"] == "Done."
    assert (work / "main.py").read_text() == "x = 2\n"
    await prove(world, 4)


CODEX_CONFIG = """
model = "policy"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "POLICY_KEY"
"""


async def test_codex_is_one_line(start: Start, tmp_path: Path) -> None:
    package = pytest.importorskip("codex_cli_bin")
    program = Path(package.__file__).parent / "bin" / "codex"
    home, work = folders(tmp_path)
    lines = iter(
        [
            f"<think>\nhm\n</think>\n\nI look.\n{call('exec_command', cmd='cat main.py')}",
            call("exec_command", cmd="sed -i s/1/2/ main.py"),
            "Done.",
        ]
    )

    def script(_request: GenerateRequest) -> str:
        return next(lines)

    world: Any = await start(script, harness="codex", context_tokens=80000)
    (home / "config.toml").write_text(CODEX_CONFIG.format(url=world.url))
    env = {"HOME": str(home), "CODEX_HOME": str(home), "POLICY_KEY": KEY}
    flags = ["--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--json"]
    out = await run(program, ["exec", *flags, "Fix it."], work, env)
    assert "Done." in out
    assert (work / "main.py").read_text() == "x = 2\n"
    await prove(world, 3)
