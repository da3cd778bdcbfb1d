"""Opens the doors again that another process left open.

Invariant: the histories are those that the other process had: the same nodes from the same calls,
so that a request is matched, and its fork counted, as if nothing had happened.

How to restart a proxy on the same store and address::

    store = RunStore(path)
    executions = reopen(family, store.journal)          # an empty store: no doors yet
    if "e1" not in executions:
        executions.open("e1", key, harness="codex", seed=0)
    app = build_app(executions, generator, store, family, limits, clock, ids)
    serving = await serve(app, socket_path=socket, port=port)
    ...
    await executions.suspend()    # leave out when the process is killed instead: nothing is lost
    await serving.stop()
    store.close()

and again from the top, in the same process or in another one. build_app must run in the event loop
that serves. Ids must not repeat over restarts (app.wall.RandomIds), and a WallClock goes on from
store.last_second(). An unfinished call goes on once its harness asks again; if it never does, its
tokens are recorded as aborted when the door is closed.
"""

from dataclasses import replace

from opengyre.core.journal import OpenDoor, RecordedCall, Trace
from opengyre.core.protocols import Journal
from opengyre.core.reasons import ForkReason
from opengyre.core.tokens import TokenIds
from opengyre.proxy.answers import Answer
from opengyre.proxy.executions import Door, Executions
from opengyre.proxy.families.base import Family
from opengyre.proxy.history import REPLY, Node, Plan, Step
from opengyre.proxy.keeping import read

Name = tuple[str | None, int]


def reopen(family: Family, journal: Journal) -> Executions:
    """Executions with every door that the journal has open, and with that journal."""
    executions = Executions(family, journal)
    for found in journal.open_doors():
        Restored(executions.add(found.door)).fill(found)
    return executions


class Restored:
    """Brings one door to where it was."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._nodes: dict[Name, Node] = {(None, REPLY): door.history.root}

    def fill(self, found: OpenDoor) -> None:
        """Everything that the journal knows of it."""
        for recorded in found.calls:
            self._learn(recorded)
        for unfinished in found.unfinished:
            begun = unfinished.begun
            plan = self._plan(
                begun.trace, begun.parent_id, begun.reused, begun.suffix_ids, begun.fork
            )
            prompt = self._door.history.full_ids(plan.parent_id, plan.reused) + plan.suffix_ids
            self._door.unfinished.append((unfinished, replace(plan, prompt_ids=prompt)))
        self._count(found)

    def _learn(self, recorded: RecordedCall) -> None:
        call, told = recorded.call, recorded.told
        plan = self._plan(recorded.trace, call.parent_id, call.reused, call.suffix_ids, call.fork)
        spoken = None if told is None else read(told)
        reply = self._door.learn(plan, call, spoken)
        self._name(plan)
        if spoken is None or reply is None:
            return
        self._nodes[call.call_id, REPLY] = reply
        if not recorded.delivered:
            self._door.unread.append((recorded.trace.digest, Answer.of(call, spoken)))

    def _name(self, plan: Plan) -> None:
        """Nodes that the plan's call made, or found made."""
        node = plan.node
        for step in plan.steps:
            below = node.children[step.key]
            node = [n for n in below if n.thinking == step.thinking and not n.reply][-1]
            self._nodes[node.call_id, node.place] = node

    def _plan(
        self,
        trace: Trace,
        parent_id: str | None,
        reused: int,
        suffix_ids: list[int],
        fork: ForkReason | None,
    ) -> Plan:
        """Without its prompt, which only an unfinished call needs."""
        return Plan(
            parent_id=parent_id,
            reused=reused,
            suffix_ids=suffix_ids,
            prompt_ids=TokenIds(),
            fork=fork,
            node=self._nodes[trace.after_call, trace.after_place],
            steps=[Step(turn.key, turn.thinking, turn.length) for turn in trace.turns],
        )

    def _count(self, found: OpenDoor) -> None:
        door, tallies = self._door, found.tallies
        traces = [(recorded.trace, recorded.call.role) for recorded in found.calls]
        traces += [(one.begun.trace, one.begun.role) for one in found.unfinished]
        for trace, role in sorted(traces, key=lambda pair: pair[0].number):
            door.began(trace.session, role)
            door.started = trace.number + 1
        door.started = max(tallies.started, door.started)
        told = [recorded for recorded in found.calls if recorded.told is not None]
        counts = door.counts
        counts.complete_replies = sum(recorded.delivered for recorded in told)
        counts.failed_calls, counts.last_failed = tallies.failed_calls, tallies.last_failed
        counts.refused_calls, counts.repeated_calls = tallies.refused_calls, tallies.repeated_calls
        counts.context_limit_hit = tallies.context_limit_hit
