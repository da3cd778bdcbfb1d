"""Claude Code, 2.1.220 and the newest: whatever it does with its history, each token is there once."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opengyre.harness.base import HarnessOutcome
from opengyre.harness.claude_code import ClaudeCode
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.programs import program
from tests.conformance.scenario import Lines, Seen, call, calls
from tests.conformance.world import World

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(150)]
"""A run takes a second or two alone; the machine may be shared."""
OLD, NEWEST = "claude-code-2.1.220", "claude-code"
BARE = ["--bare", "--tools", "Bash"]
"""Least to read: one tool, a short system prompt."""
WITH_AGENTS = ["--tools", "Bash,Agent"]
FILES = {"main.py": "x = 1\n"}
SUMMARY = "CRITICAL: Respond with TEXT ONLY"
COMPACT_EARLY = {
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "10",
}
"""From 10,000 tokens on."""


@pytest.fixture(params=[OLD, NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def run(
    world: World,
    version: str,
    *,
    args: list[str] = BARE,
    env: dict[str, str] | None = None,
) -> HarnessOutcome:
    return await world.run(
        ClaudeCode(program(version)),
        "Fix it.",
        args=args,
        env=env,
        files=FILES,
        timeout_s=60.0,
    )


def expect(
    world: World, lines: Lines, outcome: HarnessOutcome, shape: list[str], *, ends: str = "Done."
) -> None:
    """The program ended with these words, every answer was asked for, and the tree is this one."""
    told = (outcome, world.shape(), lines.left, world.cells.failed)
    assert ends in outcome.stdout_tail, told
    world.check()
    assert world.shape() == shape, told
    assert lines.left == []
    assert world.cells.failed == []


def bash(command: str) -> str:
    return call("Bash", command=command)


def agent(prompt: str, **more: Any) -> str:
    asked = {"subagent_type": "general-purpose", "run_in_background": False, **more}
    return call("Agent", description="part", prompt=prompt, **asked)


def seen_by(world: World, name: str) -> Seen:
    (sample,) = [sample for sample in world.cells.samples if sample.name == name]
    return Seen(world.family.decode(sample.prompt_ids))


async def test_a_tool_loop_is_one_branch(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Fix it.": [
                Say(f"<think>\nhm\n</think>\n\nI look.\n{bash('cat main.py')}", "look"),
                Say(bash("sed -i s/1/2/ main.py"), "edit"),
                Say("Done.", "done"),
            ]
        }
    )
    world = await start(lines, harness="claude-code")
    expect(world, lines, await run(world, version), ["main: look edit done"])
    assert (world.workspace / "main.py").read_text() == "x = 2\n"
    assert world.report().forks == {}


@pytest.mark.parametrize("model", ["policy", "claude-sonnet-4-5"])
async def test_all_tools_marks_and_reminders_leave_one_branch(
    start: Start, version: str, model: str
) -> None:
    lines = Lines({"Fix it.": [Say(bash("echo hi"), "hi"), Say("Done.", "done")]})
    world = await start(lines, harness="claude-code")
    marks = {"DISABLE_PROMPT_CACHING": "", "CLAUDE_CODE_ATTRIBUTION_HEADER": "1"}
    outcome = await run(world, version, args=[], env={**marks, "ANTHROPIC_MODEL": model})
    expect(world, lines, outcome, ["main: hi done"])
    assert world.report().forks == {}


async def test_parallel_tools_come_back_in_the_order_of_their_calls(
    start: Start, version: str
) -> None:
    both = calls(bash("sleep 0.3; echo first"), bash("echo second"))
    lines = Lines({"Fix it.": [Say(both, "both"), Say("Done.", "done")]})
    world = await start(lines, harness="claude-code")
    expect(world, lines, await run(world, version), ["main: both done"])
    results = seen_by(world, "done").last
    assert results.index("first") < results.index("second")


async def test_sub_agents_in_parallel_and_nested(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Task C": [Say(bash("echo c"), "c1"), Say("C is done.", "c2")],
            "Task A": [Say(agent("Task C"), "a1", together=2), Say("A is done.", "a2")],
            "Task B": [
                Say(bash("echo b"), "b1", together=2),
                Say("B is done.", "b2"),
            ],
            "Fix it.": [Say(calls(agent("Task A"), agent("Task B")), "ask"), Say("Done.", "done")],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=WITH_AGENTS)
    (nested,) = [line for line in world.shape() if line.endswith("c1 c2")]
    # It shares its head with the others: it stands below the one that was recorded first.
    expected = [
        "main: ask done",
        "sub-agent (new-conversation): a1 a2",
        "sub-agent (new-conversation): b1 b2",
    ]
    expected.insert(world.shape().index(nested), "  sub-agent (new-conversation): c1 c2")
    expect(world, lines, outcome, expected)


async def test_a_sub_agent_in_the_background_overlaps_with_main(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Task A": [Say(bash("echo a"), "a1", together=2), Say("A is done.", "a2")],
            "Fix it.": [
                Say(agent("Task A", run_in_background=True), "ask"),
                Say("Waiting.", "wait", together=2),
                Say("Done.", "done"),
            ],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=WITH_AGENTS)
    shape = ["main: ask wait done", "sub-agent (new-conversation): a1 a2"]
    expect(world, lines, outcome, shape)


async def test_a_sub_agent_with_a_model_of_its_own(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Task A": [Say(bash("echo a"), "a1"), Say("A is done.", "a2")],
            "Fix it.": [Say(agent("Task A", subagent_type="Explore"), "ask"), Say("Done.", "done")],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=WITH_AGENTS)
    expect(world, lines, outcome, ["main: ask done", "sub-agent (new-conversation): a1 a2"])


async def test_a_fork_of_main_is_a_sub_agent(start: Start) -> None:
    lines = Lines(
        {
            "Task A": [Say(bash("echo a"), "a1", together=2), Say("A is done.", "a2")],
            "Fix it.": [
                Say("I share it.\n" + agent("Task A", subagent_type="fork"), "ask"),
                Say("Waiting.", "wait", together=2),
                Say("Done.", "done"),
            ],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, NEWEST, args=WITH_AGENTS, env={"CLAUDE_CODE_FORK_SUBAGENT": "1"})
    shape = ["main: ask wait done", "  sub-agent (history-edited): a1 a2"]
    expect(world, lines, outcome, shape)


def reads(count: int) -> list[Say]:
    """Each result is some 4,400 tokens."""
    return [Say(bash(f"seq 1 {900 + n}"), f"read{n}") for n in range(count)]


SUM = Say("<summary>All is well so far, as far as I can see.</summary>", "sum")


async def test_main_is_compacted(start: Start, version: str) -> None:
    lines = Lines(
        {
            SUMMARY: [SUM],
            "continued from a previous": [Say(bash("echo on"), "on"), Say("Done.", "done")],
            "Fix it.": reads(3),
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, env=COMPACT_EARLY)
    shape = [
        "main: read0 read1 read2",
        "  main (compaction): on done",
        "  main-summary (compaction): sum",
    ]
    expect(world, lines, outcome, shape)
    assert bash("seq 1 902") in seen_by(world, "on").said[-1], "the newest turn is kept"
    assert bash("seq 1 902") not in "".join(seen_by(world, "sum").said)


async def test_a_sub_agent_is_compacted(start: Start, version: str) -> None:
    # The newest has more to read before the task: it is full one turn earlier.
    count = {OLD: 3, NEWEST: 2}[version]
    lines = Lines(
        {
            SUMMARY: [SUM],
            "continued from a previous": [Say(bash("echo on"), "on"), Say("A is done.", "a2")],
            "Task A": reads(count),
            "Fix it.": [Say(agent("Task A"), "ask"), Say("Done.", "done")],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=WITH_AGENTS, env=COMPACT_EARLY)
    shape = [
        "main: ask done",
        f"sub-agent (new-conversation): {' '.join(say.name for say in reads(count))}",
        "  sub-agent (compaction): on a2",
        "  sub-agent-summary (compaction): sum",
    ]
    expect(world, lines, outcome, shape)


async def test_a_web_search_asks_beside_the_conversation(start: Start, version: str) -> None:
    lines = Lines(
        {
            "web search": [Say("Nothing was found.", "search")],
            "Fix it.": [Say(call("WebSearch", query="cats and dogs"), "ask"), Say("Done.", "done")],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=["--tools", "Bash,WebSearch"])
    expect(world, lines, outcome, ["auxiliary (new-conversation): search", "main: ask done"])


PAGE_SERVER = """
import http.server, ssl

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body><p>Cats sleep.</p></body></html>")

server = http.server.HTTPServer(("127.0.0.1", 8443), Page)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("both.pem")
server.socket = tls.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
"""
"""The program fetches nothing without TLS."""


def certificate(folder: Path) -> None:
    """Of 127.0.0.1, signed by itself; key and certificate in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    made = [str(folder / name) for name in ("key.pem", "certificate.pem")]
    asked = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", made[0]]
    argv = [openssl, "req", "-x509", *asked, "-out", made[1]]
    subprocess.run(argv, check=True, capture_output=True, timeout=20)
    (folder / "both.pem").write_text("".join(Path(file).read_text() for file in made))


async def test_a_fetched_page_is_asked_about_beside_the_conversation(
    start: Start, version: str
) -> None:
    listen = "(python3 serve.py > log 2>&1 &); until [ -s log ]; do sleep 0.1; done"
    fetch = call("WebFetch", url="https://127.0.0.1:8443/cats", prompt="What do cats do?")
    lines = Lines(
        {
            "Web page content": [Say("They sleep.", "page")],
            "Fix it.": [Say(bash(listen), "serve"), Say(fetch, "fetch"), Say("Done.", "done")],
        }
    )
    world = await start(lines, harness="claude-code")
    certificate(world.workspace)
    (world.workspace / "serve.py").write_text(PAGE_SERVER)
    settings = json.dumps({"skipWebFetchPreflight": True})
    outcome = await run(
        world,
        version,
        args=["--tools", "Bash,WebFetch", "--settings", settings],
        env={"NODE_TLS_REJECT_UNAUTHORIZED": "0"},
    )
    expect(world, lines, outcome, ["auxiliary (new-conversation): page", "main: serve fetch done"])
    assert "Cats sleep." in seen_by(world, "page").last
    assert "They sleep." in seen_by(world, "done").last


async def test_its_own_retries_ask_the_engine_once(start: Start, version: str) -> None:
    lines = Lines({"Fix it.": [Say(bash("echo hi"), "hi"), Say("Done.", "done")]})
    faults = [Answer(1, 529), Answer(3, 500), Answer(4, 401)]
    world = await start(lines, harness="claude-code", faults=faults)
    expect(world, lines, await run(world, version), ["main: hi done"])
    assert world.faults.requests == 5


async def test_what_it_takes_for_fatal_ends_it(start: Start, version: str) -> None:
    lines = Lines({"Fix it.": [Say(bash("echo hi"), "hi")]})
    world = await start(lines, harness="claude-code", faults=[Answer(2, 400, times=9)])
    outcome = await run(world, version)
    assert outcome.exit_code == 1
    # The newest asks twice more, each time for less: without a beta, without thinking's display.
    assert world.faults.requests == {OLD: 2, NEWEST: 4}[version]
    expect(world, lines, outcome, ["main: hi"], ends="")


async def test_the_engines_failure_is_asked_again(start: Start, version: str) -> None:
    lines = Lines({"Fix it.": [Say("", error="out of luck"), Say("Done.", "done")]})
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version)
    assert world.cells.failed == ["out of luck"]
    world.cells.failed.clear()
    expect(world, lines, outcome, ["main: done"])
    assert world.report().failed_calls == 1


@pytest.mark.parametrize("fault", [Answer(1, 404), Cut(1, "message_start", where="before")])
async def test_it_asks_again_without_a_stream(
    start: Start, version: str, fault: Answer | Cut
) -> None:
    lines = Lines({"Fix it.": [Say(bash("echo hi"), "hi"), Say("Done.", "done")]})
    world = await start(lines, harness="claude-code", faults=[fault])
    expect(world, lines, await run(world, version), ["main: hi done"])
    assert world.faults.requests == 3


WHOLE, PARTED = ["main: hi done"], ["main: hi", "  main (history-edited): done"]
FAILS = ["main: hi"]
CUTS = [
    pytest.param(1, "before", {OLD: WHOLE, NEWEST: WHOLE}, id="in the text"),
    pytest.param(1, "after", {OLD: FAILS, NEWEST: PARTED}, id="after the text"),
    pytest.param(2, "before", {OLD: FAILS, NEWEST: PARTED}, id="in the tool call"),
    pytest.param(2, "after", {OLD: WHOLE, NEWEST: WHOLE}, id="after the tool call"),
]
"""What became of an answer of a text and a tool call that was cut there."""


@pytest.mark.parametrize(("nth", "where", "shapes"), CUTS)
async def test_a_cut_answer_is_there_once(
    start: Start, version: str, nth: int, where: str, shapes: dict[str, list[str]]
) -> None:
    both = "I look.\n" + bash("echo hi")
    shape = shapes[version]
    said = [Say(both, "hi"), Say("Done.", "done")]
    lines = Lines({"Fix it.": said[:1] if shape is FAILS else said})
    faults = [Cut(1, "content_block_stop", nth=nth, where=where)]
    world = await start(lines, harness="claude-code", faults=faults)
    outcome = await run(world, version)
    expect(world, lines, outcome, shape, ends="" if shape is FAILS else "Done.")
    assert (outcome.exit_code == 0) == (shape is not FAILS)
    assert world.faults.struck == faults


async def test_an_answer_that_stops_for_its_length_is_gone_on_with(
    start: Start, version: str
) -> None:
    halves = [Say(f"Part {n} of it and", f"part{n}", stopped=False) for n in range(3)]
    lines = Lines({"Fix it.": [*halves, Say(bash("echo hi"), "hi"), Say("Done.", "done")]})
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version)
    expect(world, lines, outcome, ["main: part0 part1 part2 hi done"])


async def test_it_gives_up_on_answers_that_never_end(start: Start, version: str) -> None:
    parts = [Say(f"Part {n} of it and", f"part{n}", stopped=False) for n in range(4)]
    lines = Lines({"Fix it.": parts})
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version)
    expect(world, lines, outcome, ["main: part0 part1 part2 part3"], ends="")


async def test_a_tool_call_that_cannot_be_read_is_recorded_and_trained(
    start: Start, version: str
) -> None:
    lines = Lines({"Fix it.": [Say(bash("echo hi").replace('{"name"', "{name"), "bad")]})
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version)
    expect(world, lines, outcome, ["main: bad"], ends="tool_call")
    assert world.report().malformed_tool_calls == 1


async def test_tool_calls_that_are_wrong_or_oddly_written_stay_as_they_were_sampled(
    start: Start, version: str
) -> None:
    odd = r'{"arguments":  {"timeout": 1e3, "command":"echo  \u0041"}, "name":"Bash"}'
    lines = Lines(
        {
            "Fix it.": [
                Say(call("Bash", cmd="no such argument"), "wrong"),
                Say(call("NoSuchTool", a=1.0), "unknown"),
                Say(f"<tool_call>\n{odd}\n</tool_call>", "odd"),
                Say("  Spaces. \r\n\t\u00a0\n" + bash("printf 'a  \\n\\n'"), "spaces"),
                Say("Done.", "done"),
            ]
        }
    )
    world = await start(lines, harness="claude-code")
    expect(world, lines, await run(world, version), ["main: wrong unknown odd spaces done"])
    assert world.report().forks == {}


@pytest.mark.parametrize("nothing", ["<think>\nhm\n</think>\n\n", ""])
async def test_a_turn_without_words_is_dropped_and_branches(
    start: Start, version: str, nothing: str
) -> None:
    lines = Lines(
        {"Fix it.": [Say(bash("echo hi"), "hi"), Say(nothing, "nothing"), Say("Done.", "done")]}
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version)
    expect(world, lines, outcome, ["main: hi nothing", "  main (history-edited): done"])


async def test_a_role_switch_in_mid_stream_is_only_a_pause(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Task A": [Say("A is done.", "a", together=2, move_after=2)],
            "Task B": [Say("B is done.", "b", together=2)],
            "Fix it.": [
                Say("I share it.\n" + calls(agent("Task A"), agent("Task B")), "ask", move_after=9),
                Say("Done.", "done", move_after=1),
            ],
        }
    )
    world = await start(lines, harness="claude-code")
    outcome = await run(world, version, args=WITH_AGENTS)
    shape = [
        "main: ask done",
        "sub-agent (new-conversation): a",
        "sub-agent (new-conversation): b",
    ]
    expect(world, lines, outcome, shape)
    assert world.report().moves_with_kv == 4
    assert world.report().moves_recomputed == 0


async def test_the_proxy_restarts_in_mid_run(start: Start, version: str) -> None:
    lines = Lines(
        {
            "Task A": [Say(bash("echo a"), "a1", hold_after=5), Say("A is done.", "a2")],
            "Fix it.": [
                Say(agent("Task A"), "ask"),
                Say("I am almost done with it.\n" + bash("echo hi"), "hi", hold_after=8),
                Say("Done.", "done"),
            ],
        }
    )
    world = await start(lines, harness="claude-code")
    running = asyncio.ensure_future(run(world, version, args=WITH_AGENTS))
    for _ in range(2):
        await world.cells.held()
        await world.restart()
        world.cells.go_on()
    shape = ["main: ask hi done", "sub-agent (new-conversation): a1 a2"]
    expect(world, lines, await running, shape)
    assert [len(sample.request_ids) for sample in world.cells.samples] == [1, 2, 1, 2, 1]
