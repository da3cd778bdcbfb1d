"""Executions: calls and tools in turn, from their place in the queue to their end.

Invariant: an execution that started ends exactly once; a call that lost its cell goes on elsewhere
with the tokens that it still needs, or is held until a cell serves.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence

from opengyre.sim.cells import Service, SimCell
from opengyre.sim.kernel import Kernel
from opengyre.sim.placement import Placement
from opengyre.sim.script import Script
from opengyre.sim.tally import Tally
from opengyre.sim.workload import Machine, Workload, lognormal


class Execution:
    """One run of an agent program."""

    __slots__ = (
        "cache",
        "cached",
        "calls_left",
        "cell",
        "context",
        "draw",
        "ended",
        "group_id",
        "held_s",
        "held_since",
        "member",
        "move",
        "needs",
        "sampled",
        "script",
        "service",
        "started_at",
        "truncated",
        "warm",
    )

    def __init__(
        self,
        member: str,
        group_id: str,
        draw: random.Random,
        calls: int,
        script: Script | None = None,
    ) -> None:
        self.member, self.group_id, self.draw = member, group_id, draw
        self.script = script
        """What it does, when it took place before; it has as many turns as calls."""
        self.calls_left = calls
        self.context = 0.0
        """Tokens of its conversation so far."""
        self.cached = 0.0
        """Of these, how many its cell holds the KV of."""
        self.sampled = 0.0
        self.cell: SimCell | None = None
        self.cache = 0
        """Number of its cell's prefix cache that cached belongs to."""
        self.service: Service | None = None
        """The call that is being served."""
        self.needs: float | None = None
        """Tokens of service that a held call still needs; None = none is held."""
        self.warm = False
        """Whether the held call's KV cache is, or will be, where it goes on; else its whole context
        is computed there first."""
        self.move = 0
        """Number of its newest move; what an older one announces is void."""
        self.held_since = 0.0
        self.held_s = 0.0
        self.started_at = 0.0
        self.ended = self.truncated = False


Told = Callable[[Execution], None]


class Rollouts:
    """The queue before the cells, and everything that lives in them."""

    def __init__(  # noqa: PLR0913 — the room's wiring, in one place
        self,
        kernel: Kernel,
        workload: Workload,
        machine: Machine,
        cells: Sequence[SimCell],
        tally: Tally,
        started: Told,
        ended: Told,
    ) -> None:
        self._kernel, self._workload, self._machine = kernel, workload, machine
        self._cells = cells
        self._tally = tally
        self._started, self._ended = started, ended
        self._queue: deque[Execution] = deque()
        self._homeless: deque[Execution] = deque()
        """Executions whose cell left while no other had room."""
        self._residents: list[dict[str, Execution]] = [{} for _ in cells]
        self._placement = Placement(cells)
        self.live = 0
        self.paused = False

    # -- executions ----------------------------------------------------------------------------

    def order(self, execution: Execution) -> None:
        """Queue one; call fill afterwards."""
        self._queue.append(execution)

    def fill(self) -> None:
        """Start what there is room for."""
        while self._queue and self.live < self._placement.room:
            cell = self._placement.lightest()
            if cell is None:
                return
            self._start(self._queue.popleft(), cell)

    def _start(self, execution: Execution, cell: SimCell) -> None:
        self.live += 1
        execution.started_at = self._kernel.now
        execution.context = self._workload.first_prompt_tokens
        self._settle_in(execution, cell)
        self._watch_limit(execution, self._workload.limit_s)
        self._started(execution)
        wait = self._wait_before_first(execution)
        if wait:
            self._kernel.after(wait, lambda: self._next(execution))
        else:
            self._next(execution)

    def _settle_in(self, execution: Execution, cell: SimCell) -> None:
        execution.cell = cell
        execution.cache = cell.cache
        self._residents[cell.index][execution.member] = execution
        self._placement.add(cell)

    def _move_out(self, execution: Execution) -> None:
        cell = execution.cell
        assert cell is not None
        execution.cell = None
        del self._residents[cell.index][execution.member]
        self._placement.remove(cell)

    def _watch_limit(self, execution: Execution, seconds: float) -> None:
        if math.isinf(seconds):
            return

        def limit() -> None:
            if execution.ended:
                return
            spared = 0.0 if self._workload.limit_counts_pauses else self._held(execution)
            left = execution.started_at + self._workload.limit_s + spared - self._kernel.now
            if left > 0:
                self._watch_limit(execution, left)
            else:
                execution.truncated = True
                self._end(execution)

        self._kernel.after(seconds, limit)

    def _held(self, execution: Execution) -> float:
        now = self._kernel.now - execution.held_since if execution.needs is not None else 0.0
        return execution.held_s + now

    def _end(self, execution: Execution) -> None:
        if execution.service is not None and execution.cell is not None:
            execution.cell.take(execution.service)
            execution.service = None
        execution.needs = None
        execution.ended = True
        if execution.cell is not None:
            self._move_out(execution)
        else:
            self._homeless.remove(execution)
        self.live -= 1
        self._ended(execution)
        self.fill()

    # -- calls -----------------------------------------------------------------------------------

    def _wait_before_first(self, execution: Execution) -> float:
        script = execution.script
        if script is None:
            return self._workload.start_s
        return script.turns[0].wait_s if script.turns else script.stop_s

    def _call(self, execution: Execution) -> None:
        answer = self._answer_tokens(execution)
        execution.sampled += answer
        cell = execution.cell
        if cell is None or self.paused:
            self._hold(execution, answer, warm=False)
        else:
            warm = execution.cached if execution.cache == cell.cache else 0.0
            self._serve(execution, cell, answer + self._prompt_cost(execution, warm))
        execution.context += answer

    def _answer_tokens(self, execution: Execution) -> float:
        load, script = self._workload, execution.script
        if script is not None:
            turn = script.turns[-execution.calls_left]
            execution.context = turn.prompt_tokens
            execution.cached = turn.prompt_tokens - turn.new_tokens
            return turn.answer_tokens
        return _drawn(execution.draw, load.answer_tokens, load.answer_spread)

    def _prompt_cost(self, execution: Execution, warm: float) -> float:
        fresh = max(0.0, execution.context - warm)
        self._tally.prefilled_tokens += fresh
        return fresh * self._machine.prefill_weight

    def _serve(self, execution: Execution, cell: SimCell, tokens: float) -> None:
        execution.cache = cell.cache
        execution.service = cell.begin(tokens, lambda: self._answered(execution))

    def _hold(self, execution: Execution, tokens: float, *, warm: bool) -> None:
        execution.needs = tokens
        execution.warm = warm
        execution.held_since = self._kernel.now
        self._tally.held_calls += 1

    def _answered(self, execution: Execution) -> None:
        execution.service = None
        execution.cached = execution.context
        execution.calls_left -= 1
        wait = self._wait_after_answer(execution)
        if wait or execution.calls_left:
            self._kernel.after(wait, lambda: self._next(execution))
        else:
            self._end(execution)

    def _wait_after_answer(self, execution: Execution) -> float:
        load, script, left = self._workload, execution.script, execution.calls_left
        if script is not None:
            return script.turns[-left].wait_s if left else script.stop_s
        if not left:
            return load.stop_s
        execution.context += load.observation_tokens
        if load.tool_exponential and load.tool_s:
            return execution.draw.expovariate(1.0 / load.tool_s)
        return _drawn(execution.draw, load.tool_s, load.tool_spread)

    def _next(self, execution: Execution) -> None:
        """The next call, or the end of the program."""
        if execution.ended:
            return
        if execution.calls_left:
            self._call(execution)
        else:
            self._end(execution)

    # -- cells -----------------------------------------------------------------------------------

    def opens(self, cell: SimCell) -> None:
        """The cell serves from now on."""
        cell.cache += 1
        if self.paused:
            cell.freeze()
        else:
            cell.thaw()
        self._placement.open(cell)
        self._rehome()
        self.fill()

    def closes(self, cell: SimCell, *, lost: bool = False) -> None:
        """The cell serves no more: its calls go on elsewhere. lost: nothing of it can be moved."""
        self._placement.close(cell)
        cell.settle()
        for execution in list(self._residents[cell.index].values()):
            execution.move += 1
            execution.cached = 0.0
            has_kv = self._machine.moves_kv and not lost
            if execution.service is not None:
                self._hold(execution, cell.take(execution.service), warm=has_kv)
                execution.service = None
            elif execution.needs is not None:
                execution.warm = execution.warm and has_kv
            self._move_out(execution)
            self._settle_elsewhere(execution)
        cell.cache += 1

    def _settle_elsewhere(self, execution: Execution) -> None:
        """Find an evicted execution a new cell, or let it wait for one."""
        target = None if self.paused else self._placement.latest()
        if target is None:
            self._homeless.append(execution)
            execution.warm = False  # nobody keeps what has nowhere to go
            return
        self._settle_in(execution, target)
        if execution.needs is None:
            return
        self._tally.moved_with_kv += execution.warm
        self._tally.recomputed += not execution.warm
        if execution.warm:
            self._await_kv(execution)
        else:
            self._go_on(execution)

    def _await_kv(self, execution: Execution) -> None:
        """Its KV cache is on its way; the call goes on when it is there."""
        number = execution.move

        def arrived() -> None:
            if execution.needs is not None and execution.move == number:
                self._go_on(execution)

        self._kernel.after(execution.context / self._machine.kv_move_tokens_s, arrived)

    def _go_on(self, execution: Execution) -> None:
        """Serve a held call on its cell."""
        assert execution.cell is not None
        assert execution.needs is not None
        tokens, execution.needs = execution.needs, None
        seconds = self._kernel.now - execution.held_since
        execution.held_s += seconds
        self._tally.held_s += seconds
        cost = 0.0 if execution.warm else self._prompt_cost(execution, 0.0)
        self._serve(execution, execution.cell, tokens + cost)

    def _rehome(self) -> None:
        while self._homeless and not self.paused:
            cell = self._placement.latest()
            if cell is None:
                return
            execution = self._homeless.popleft()
            self._settle_in(execution, cell)
            if execution.needs is not None:
                self._go_on(execution)

    def pause(self) -> None:
        """Hold every call; tools go on."""
        self.paused = True
        for cell in self._cells:
            if self._placement.serves(cell):
                cell.freeze()

    def resume(self) -> None:
        """Let all calls go on."""
        self.paused = False
        for cell in self._cells:
            if self._placement.serves(cell):
                cell.thaw()
                for execution in list(self._residents[cell.index].values()):
                    if execution.needs is not None:
                        self._go_on(execution)
        self._rehome()
        self.fill()

    def published(self) -> None:
        """A new version is everywhere: cached prefixes are of no use any more."""
        if not self._machine.publish_drops_prefixes:
            return
        for cell in self._cells:
            cell.cache += 1
            for execution in list(self._residents[cell.index].values()):
                if execution.service is not None:
                    left = cell.take(execution.service)
                    self._serve(execution, cell, left + self._prompt_cost(execution, 0.0))


def _drawn(draw: random.Random, mean: float, spread: float) -> float:
    return lognormal(mean, spread, draw.gauss(0.0, 1.0)) if spread else mean
