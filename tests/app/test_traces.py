"""Imitated demonstrations against the real program: what Claude Code sends is what was imitated."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from opengyre.app.wall import WallClock
from opengyre.app.warmstart.make import example
from opengyre.app.warmstart.traces import SYSTEM_PROMPT, demonstrate
from opengyre.config.run import HarnessSection, SandboxSection
from opengyre.core.fakes import CountingIds, MemoryRecorder
from opengyre.core.reasons import Ending
from opengyre.harness.base import HarnessRun
from opengyre.harness.make import make_harness
from opengyre.harness.run import ending_of, run_harness
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.fakes import ScriptedGenerator
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.messages import Conversation
from opengyre.proxy.serving import serve
from opengyre.proxy.session import Limits
from opengyre.sandbox.make import make_sandbox
from opengyre.tasks.bundled import Skill, draw
from opengyre.tasks.bundled.base import PERFECT, Puzzle
from opengyre.tree.record import ExecutionTree

ARGS = ["--bare", "--tools", "Bash", "--system-prompt", SYSTEM_PROMPT]
FORGETS = replace(PERFECT, in_place=0.0)
GUESSES = replace(PERFECT, reads=0.0)


async def tokens_through_claude_code(
    puzzle: Puzzle, conversation: Conversation, family: Qwen3Family, folder: Path
) -> list[int]:
    """Let the real program hear the demonstration's actions; the tokens of its whole context."""
    workspace = folder / "app"
    for name, text in puzzle.blueprint().files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    said = [family.body(turn) for turn in conversation.turns() if turn[0].role == "assistant"]
    clock, recorder = WallClock(), MemoryRecorder()
    executions = Executions(family)
    executions.open("e", "key", harness="claude-code", seed=0)
    limits = Limits(context_tokens=4096, max_new_tokens=256, max_body_bytes=2**22)
    generator = ScriptedGenerator(family, said)
    app = build_app(executions, generator, recorder, family, limits, clock, CountingIds())
    socket = folder / "door" / "p.sock"
    socket.parent.mkdir(parents=True)
    serving = await serve(app, socket_path=socket)
    run = HarnessRun(
        execution_id="e",
        instruction=puzzle.blueprint().instruction,
        workspace=workspace,
        socket=socket,
        base_path="/run/e",
        key="key",
        model="policy",
        timeout_s=60,
        args=ARGS,
    )
    try:
        sandbox = make_sandbox(SandboxSection(), clock)
        outcome = await run_harness(make_harness(HarnessSection()), run, sandbox)
        report = await executions.close("e")
    finally:
        await serving.stop()
    ending = ending_of(
        outcome,
        report.complete_replies,
        report.failed_calls,
        last_failed=report.last_failed,
        context_limit=False,
    )
    assert ending is Ending.FINISHED, outcome.stderr_tail
    assert report.forks == {}
    tree = ExecutionTree(recorder.calls)
    return tree.full_ids(recorder.calls[-1].call_id)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("family_name", "skill", "seed"),
    [
        ("repair", PERFECT, 3),  # seeds 3 and 5 look at the file in different ways
        ("repair", PERFECT, 5),
        ("repair", FORGETS, 5),
        ("repair", GUESSES, 3),
        ("settings", PERFECT, 3),
    ],
)
async def test_a_demonstration_is_what_claude_code_would_have_sent(
    family_name: str, skill: Skill, seed: int, policy: Path, tmp_path: Path
) -> None:
    family = Qwen3Family(Tokenizer.from_file(str(policy / "tokenizer.json")), "signature")
    (puzzle,) = draw(family_name, "train", 1, 7)
    conversation = demonstrate(puzzle, random.Random(seed), skill)
    imitated, _ = example(family, conversation)
    real = await tokens_through_claude_code(puzzle, conversation, family, tmp_path)
    # An example ends with the newline that closes the last turn; the policy never sees it.
    closing = len(family.encode(family.turn_end)) - 1
    assert family.decode(real) == family.decode(imitated[: len(imitated) - closing])
    assert real == list(imitated[: len(imitated) - closing])
