"""Whatever happens to its cells, a consumer gets each token of its call once and in order."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from opengyre.cluster.base import Counters
from opengyre.cluster.flights import MAX_LOST_CELLS, Flight, Switchboard
from opengyre.cluster.routes import Routes
from opengyre.core.errors import EngineError
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, Sampling, TokenChunk

CELLS = (0, 1, 2)
PROMPT = [7, 7]
LENGTH = 12


def wanted(name: str, execution: str) -> GenerateRequest:
    return GenerateRequest(
        request_id=name,
        execution_id=execution,
        prompt_ids=PROMPT,
        sampling=Sampling(max_new_tokens=LENGTH, stop_ids=[], seed=0),
    )


def drained(flight: Flight) -> list[TokenChunk | EngineError]:
    out = []
    while not flight.outbox.empty():
        out.append(flight.outbox.get_nowait())
    return out


class Cells(RuleBasedStateMachine):
    """Cells that count: token i of every answer is i."""

    @initialize()
    def start(self) -> None:
        self.at: dict[int, dict[str, int]] = {cell: {} for cell in CELLS}
        self.counters = Counters()
        self.board = Switchboard(Routes(2), self.send, FakeClock(), self.counters)
        self.flights: list[tuple[Flight, list[int]]] = []
        self.given: dict[str, list[int]] = {}
        """Cells that each call was given to."""
        self.told: dict[str, list[int]] = {}
        """Of these, those that its consumer knows of."""
        self.ended: set[int] = set()
        self.gone: set[int] = set()

    def send(self, cell: int, request: GenerateRequest, kv: Path | None) -> None:
        assert request.prompt_ids == PROMPT + list(range(request.first_index))
        assert request.first_index < LENGTH
        self.at[cell][request.request_id] = request.first_index
        self.given.setdefault(request.request_id.split(".")[0], []).append(cell)

    @rule(execution=st.sampled_from("abc"))
    def call(self, execution: str) -> None:
        name = f"call-{len(self.flights)}"
        self.flights.append((self.board.admit(wanted(name, execution)), []))

    @rule(cell=st.sampled_from(CELLS))
    def open(self, cell: int) -> None:
        self.board.open(cell)

    @rule(cell=st.sampled_from(CELLS), count=st.integers(1, 5))
    def generate(self, cell: int, count: int) -> None:
        for name, index in list(self.at[cell].items()):
            self.board.accepted(name, with_kv=False)
            end = min(LENGTH, index + count)
            ids = list(range(index, end))
            finish = FinishReason.LENGTH if end == LENGTH else None
            self.at[cell][name] = end
            if finish:
                del self.at[cell][name]
            chunk = TokenChunk(
                request_id=name, token_ids=ids, logprobs=[0.0] * len(ids), version=0, finish=finish
            )
            self.board.deliver([chunk])

    @rule(cell=st.sampled_from(CELLS))
    def switch(self, cell: int) -> None:
        self.board.close(cell)
        assert set(self.board.on(cell)) == set(self.at[cell])
        names, self.at[cell] = self.at[cell], {}
        self.board.moved(dict.fromkeys(names), since=0.0)

    @rule(cell=st.sampled_from(CELLS))
    def lose(self, cell: int) -> None:
        self.at[cell] = {}
        self.board.lost(cell)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.board.paused = paused
        self.board.dispatch()

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.flights) - 1))
        flight, _ = self.flights[index]
        cell = self.board.forget(flight)
        if cell is not None:
            del self.at[cell][flight.wire_id]
        self.gone.add(index)

    @invariant()
    def no_token_is_lost_or_doubled(self) -> None:
        if not hasattr(self, "board"):
            return
        self.board.check()
        for index, (flight, tokens) in enumerate(self.flights):
            for item in drained(flight):
                assert index not in self.ended
                if isinstance(item, EngineError):
                    assert flight.lost_cells >= MAX_LOST_CELLS
                    self.ended.add(index)
                    continue
                tokens.extend(item.token_ids)
                self.told.setdefault(item.request_id, []).extend(item.cells)
                assert self.told[item.request_id] == self.given[item.request_id]
                if item.finish:
                    assert len(tokens) == LENGTH
                    self.ended.add(index)
            assert tokens == list(range(len(tokens)))

    def teardown(self) -> None:
        """Every call ends once a cell serves long enough."""
        if not hasattr(self, "board"):
            return
        self.board.paused = False
        self.open(0)
        for cell in CELLS:
            for _ in range(LENGTH):
                self.generate(cell, 1)
        self.no_token_is_lost_or_doubled()
        assert self.ended | self.gone == set(range(len(self.flights)))


TestCells = Cells.TestCase
TestCells.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.fixture
def sent() -> list[tuple[int, GenerateRequest, Path | None]]:
    return []


@pytest.fixture
def board(sent: list[tuple[int, GenerateRequest, Path | None]]) -> Switchboard:
    return Switchboard(Routes(4), lambda *args: sent.append(args), FakeClock(), Counters())


async def test_a_blob_is_removed_when_it_has_served(board, sent, tmp_path):
    blob = tmp_path / "kv"
    blob.write_bytes(b"x")
    board.open(0)
    board.admit(wanted("a", "x"))
    board.close(0)
    board.moved({sent[0][1].request_id: blob}, since=0.0)
    assert blob.exists()
    board.open(1)
    assert sent[1][2] == blob
    assert blob.exists()
    board.accepted(sent[1][1].request_id, with_kv=True)
    assert not blob.exists()


async def test_a_blob_survives_a_cell_that_died_before_it_answered(board, sent, tmp_path):
    blob = tmp_path / "kv"
    blob.write_bytes(b"x")
    board.open(0)
    board.admit(wanted("a", "x"))
    board.close(0)
    board.moved({sent[0][1].request_id: blob}, since=0.0)
    board.open(1)
    board.lost(1)
    board.open(2)
    assert [cell for cell, _, kv in sent if kv == blob] == [1, 2]


async def test_the_blob_of_a_cancelled_call_is_removed(board, sent, tmp_path):
    blob = tmp_path / "kv"
    blob.write_bytes(b"x")
    board.open(0)
    flight = board.admit(wanted("a", "x"))
    name = sent[0][1].request_id
    board.close(0)
    assert board.forget(flight) == 0
    board.moved({name: blob}, since=0.0)
    assert not blob.exists()


async def test_tokens_of_a_cancelled_namesake_are_dropped(board, sent):
    board.open(0)
    board.forget(board.admit(wanted("a", "x")))
    flight = board.admit(wanted("a", "x"))
    late = TokenChunk(request_id=sent[0][1].request_id, token_ids=[0], logprobs=[0.0], version=0)
    board.deliver([late])
    assert flight.outbox.empty()


async def test_a_request_that_outlives_too_many_cells_is_refused(board):
    flight = board.admit(wanted("poison", "x"))
    for cell in range(MAX_LOST_CELLS):
        board.open(cell)
        board.lost(cell)
    error = await asyncio.wait_for(flight.outbox.get(), 1)
    assert isinstance(error, EngineError)
