"""Real agent programs, unmodified, against a scripted policy: the recorded tree is the expected one.

The kit, for whoever writes scenarios:

    from tests.conformance.cells import Say
    from tests.conformance.faults import Answer, Cut
    from tests.conformance.scenario import Lines, call

    pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(150)]

    async def test_tool_loop(start: Start) -> None:
        world = await start(Lines({"Fix it.": [
            Say(call("Bash", command="cat a.py"), name="look"),
            Say("Done.", name="done"),
        ]}), harness="codex")
        outcome = await world.run(Codex(program("codex")), "Fix it.", args=[...], env={...})
        assert outcome.exit_code == 0
        world.check()                                    # every token, see check.py
        assert world.shape() == ["main: look done"]

What is real: the program, its sandbox, the socket, dialects, sessions, history, RunStore, tree, the
tokeniser, the cluster's switchboard. What is scripted: the text that the policy "samples".

- programs.program(name) finds or installs a program (programs.PACKAGES is the table to extend; each
  entry pins a version and its sha512). programs.tokenizer() is Qwen3's own.
- A scenario is a function from scenario.Seen (what the model sees: turns, system, last) to cells.Say.
  scenario.Lines serves the usual case: a queue of answers for each conversation, told apart by a text
  of its user turns; it works for calls that overlap. scenario.call(name, **arguments) writes a tool
  call as Qwen3 does.
- cells.Say(text, name=, stopped=False for a length stop, tokens= for exact ids, together=n to wait
  until n such calls are in flight, move_after=n to move the call to another cell after n tokens (a
  role switch in mid-stream), hold_after=n to stand still after n tokens until world.cells.go_on(),
  error= to fail the call as an engine does).
- faults.Answer(call, status) refuses the n-th model request with that status instead of passing it
  on; faults.Cut(call, marker, nth=1, where="after" | "before" | "inside") breaks the connection at
  the n-th event that contains the marker, linger_s seconds after the last part went out. Requests count from 1, retries included.
- world.run(harness, instruction, args=, env=, files=) runs a program of opengyre.harness in a
  sandbox. world.cells.held() waits for a hold_after. await world.restart() stops the proxy in
  mid-run; another one goes on with its store and addresses.
- world.check() proves, token for token: every sampled token is in the tree exactly once; each call's
  prompt is what the engine was given; each branch has a reason; the ledger balances with and without
  J_max; auxiliary calls are not trained.
- world.shape() is the tree as lines, two spaces a level, siblings sorted:
  "ROLE[ (FORK)]: NAMES OF THE ANSWERS", names being those of Say.
- world.report() has the counts of the door: forks, repeated calls, moves, refusals.
"""
