"""A run that was stopped and resumed is fitted as the run that it would have been."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.simulate.played import play
from tests.app.simulate.stored import Part, as_recorded, store_held, store_run, store_stopped
from tests.app.simulate.stored import kept_steps as steps_of_a_checkpoint
from tests.app.simulate.test_fit import LOAD, PLAN, POLICIES, setting

from opengyre.app.report.lanes import Span
from opengyre.app.simulate.fit import fit, fit_training
from opengyre.app.simulate.measured import Measured, MeasuredStep, measured
from opengyre.app.simulate.replay import compare, replay
from opengyre.app.simulate.stops import Stop, Timeline, find_gaps
from opengyre.config.run import PolicyName
from opengyre.core.reasons import CellRole
from opengyre.store.rows import EventRow
from opengyre.store.run import RunStore

lengths = st.lists(st.floats(0.01, 100.0), min_size=0, max_size=8)


def timeline(drawn: Sequence[float]) -> tuple[Timeline, list[tuple[float, float]]]:
    """Times of work and of stops take turns, from second 10."""
    gaps, at = [], 10.0
    for work, stop in zip(drawn[::2], drawn[1::2], strict=False):
        gaps.append((at + work, at + work + stop))
        at += work + stop
    return Timeline(10.0, gaps), gaps


@given(lengths, st.floats(10.0, 500.0), st.floats(10.0, 500.0))
@settings(max_examples=100, deadline=None)
def test_run_time_is_the_clocks_less_what_lies_in_stops(
    drawn: list[float], one: float, other: float
) -> None:
    time, gaps = timeline(drawn)
    early, late = sorted((one, other))
    stopped = sum(max(0.0, min(late, end) - max(early, start)) for start, end in gaps)
    assert time.run(late) - time.run(early) == pytest.approx(late - early - stopped, abs=1e-6)
    assert time.life(late) == sum(end < late for _, end in gaps)
    for stop, (start, end) in zip(time.stops, gaps, strict=True):
        assert time.run(start) == pytest.approx(time.run(end)) == pytest.approx(stop.at)
        assert stop.seconds == pytest.approx(end - start)


def test_a_stop_before_the_first_dispatch_is_none() -> None:
    time = Timeline(100.0, [(20.0, 90.0), (150.0, 160.0)])
    assert time.run(100.0) == 0.0
    assert time.stops == (Stop(50.0, 10.0),)


# -- stores -------------------------------------------------------------------------------------------


def same(found: Measured, played: Measured) -> bool:
    """But for the last digits of times, and what a store does not hold."""

    def rounded(run: Measured) -> object:
        return (
            [(round(s.at, 6), s.version, s.groups) for s in run.steps],
            [(s.cell, s.role, round(s.start, 6), round(s.end, 6)) for s in run.spans],
            [
                (round(at, 6), level)
                for before, (at, level) in pairwise(run.levels)
                if level != before[1]
            ],
            [(g.group_id, g.version, round(g.dispatched, 6)) for g in run.groups],
            [(round(e.began, 6), round(e.ended, 6), e.trained) for e in run.executions],
            [
                (round(c.began, 6), round(c.ended, 6), c.prompt_tokens, c.answer_tokens, c.cells)
                for c in run.all_calls
            ],
        )

    return rounded(found) == rounded(played)


@given(
    policy=st.sampled_from(POLICIES),
    share=st.floats(0.0, 0.95),
    seconds=st.floats(0.5, 1e4),
)
@settings(max_examples=6, deadline=None)
def test_a_stop_at_any_recorded_moment_leaves_no_trace_in_the_times(
    policy: PolicyName, share: float, seconds: float
) -> None:
    """Nothing was lost in it here: so all there is to mend are the times."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        run, _ = play(setting(policy), patch)
        ends = sorted(call.ended for call in run.calls)
        at = ends[int(share * len(ends))]
        store_held(Path(folder), run, at, seconds)
        found = measured(Path(folder))
    assert same(found, run)
    (stop,) = found.stops
    assert stop.at == pytest.approx(at)
    cut = [call for call in found.calls if call.cut]
    assert {(round(call.began, 6), round(call.ended, 6)) for call in cut} == {
        (round(call.began, 6), round(call.ended, 6))
        for call in run.calls
        if call.began <= at < call.ended
    }


@pytest.mark.parametrize("policy", POLICIES)
@given(share=st.floats(0.02, 0.97), seed=st.integers(10, 20), cut=st.booleans(), told=st.booleans())
@settings(max_examples=4, deadline=None)
def test_a_run_that_was_stopped_at_any_moment_is_fitted_as_one_that_was_not(
    policy: PolicyName, share: float, seed: int, cut: bool, told: bool
) -> None:
    """Its executions begin anew, steps are taken again; calls in flight are lost or cut."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        run, _ = play(setting(policy, seed=3), patch)
        at = share * run.seconds
        left = PLAN.total_steps - steps_of_a_checkpoint(run, at)
        rest = replace(PLAN, total_steps=left)
        again, _ = play(replace(setting(policy, seed), plan=rest), patch)
        whole = fit(run)
        wait = LOAD.evaluation_s
        store_stopped(Path(folder), run, again, at, evaluation_s=wait, cut=cut, told=told)
        found = fit(measured(Path(folder)))
    machine, load = found.machine, found.workload
    assert machine.decode_alone_tokens_s == pytest.approx(40.0, rel=0.1 if told else 0.2)
    assert machine.decode_full_tokens_s == pytest.approx(120.0, rel=0.25)
    tokens = fmean(step.packed_tokens for step in run.steps)  # speed and step time are hard to part
    takes = tokens / machine.train_tokens_s + machine.step_s
    took = tokens / whole.machine.train_tokens_s + whole.machine.step_s
    assert takes == pytest.approx(took, rel=0.15)
    assert machine.to_training_s == pytest.approx(0.3, abs=1e-6)
    assert load.start_s == pytest.approx(LOAD.start_s, abs=1e-6)
    assert load.stop_s == pytest.approx(LOAD.stop_s, abs=1e-6)
    assert load.evaluation_s == pytest.approx(LOAD.evaluation_s, abs=1e-6)
    ratio = {one.name: one for one in compare(found, replay(found))}["mean step time"].ratio
    assert ratio == pytest.approx(1.0, abs=0.1)
    if machine.publish_s:  # or its only publication was stopped, and that is noted
        assert machine.publish_s == pytest.approx(0.4, abs=1e-6)


def test_a_stop_is_told_with_what_it_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = play(setting("elastic", seed=3), monkeypatch)
    rest = replace(PLAN, total_steps=9)
    again, _ = play(replace(setting("elastic", 4), plan=rest), monkeypatch)
    store_stopped(tmp_path, run, again, 0.4 * run.seconds, evaluation_s=LOAD.evaluation_s, cut=True)
    found = fit(measured(tmp_path))
    said = next(note for note in found.notes if "stopped" in note)
    (stop,) = found.run.stops
    assert f"stopped once: {stop.seconds:.1f} s" in said
    assert f"{found.run.begun_anew} executions" in said
    assert "The 9 of 12 steps" in said
    assert {one.name for one in compare(found, replay(found))} >= {"9 steps without a stop"}
    twice = replace(found.run, stops=(stop, Stop(stop.at + 30.0, 2.0)))
    assert any("stopped 2 times: " in note for note in fit(twice).notes)


def test_a_process_that_dies_while_it_starts_belongs_to_the_stop(tmp_path: Path) -> None:
    async def write(store: RunStore) -> None:
        await store.begin_life()
        for at in (10.0, 30.0):
            await store.put_event(EventRow(at=at, kind="phase", fields={"name": "training"}))
            await store.put_event(
                EventRow(at=at + 1, kind="waterlevel", fields={"waterlevel": 8.0})
            )
            await store.begin_life()
            role: dict[str, str | float] = {"cell": 0.0, "role": "rollout"}
            await store.put_event(EventRow(at=at + 5, kind="role", fields=role))
            await store.begin_life()

    with RunStore(tmp_path / "run.sqlite") as store:
        asyncio.run(write(store))
        assert find_gaps(store, []) == [(11.0, 31.0)]


def test_what_was_played_is_read_from_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = play(setting("colocate"), monkeypatch)
    everything = frozenset(group.group_id for group in run.groups)
    store_run(tmp_path, run, [Part(run, as_recorded, ended=everything)])
    found = measured(tmp_path)
    assert same(found, run)
    assert found.stops == ()


def test_steps_of_a_burst_with_a_stop_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = play(setting("elastic"), monkeypatch)
    ends = [step.at for step in run.steps]
    stopped = replace(run, stops=(Stop(ends[3] + 0.01, 7.0),))
    assert stopped.undisturbed() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert stopped.steps_s(ends) == pytest.approx(ends[-1] - (ends[5] - ends[2]))
    everywhere = tuple(Stop(end - 0.01, 1.0) for end in ends)
    assert len(replace(run, stops=everywhere).undisturbed()) == len(ends)


def test_what_was_computed_of_a_step_before_a_stop_does_not_count() -> None:
    """Two seconds of training before it, and four after it for all 400 tokens of the step."""
    spans = (
        Span(0, CellRole.TRAINING, 0.0, 2.0),
        Span(0, CellRole.ROLLOUT, 2.0, 3.0),
        Span(0, CellRole.TRAINING, 3.0, 11.0),
    )
    steps = [(7.0, 400.0), (11.0, 400.0)]
    with pytest.MonkeyPatch.context() as patch:
        run, _ = play(setting("elastic"), patch)
    groups = [replace(run.groups[place], version=0, dispatched=0.0) for place in (0, 1)]
    ready = [
        replace(g, executions=tuple(replace(one, ended=1.0) for one in g.executions))
        for g in groups
    ]
    found = fit_training(
        replace(
            run,
            groups=tuple(ready),
            spans=spans,
            steps=tuple(
                MeasuredStep(at, 0, (group.group_id,), tokens, 0.0)
                for (at, tokens), group in zip(steps, ready, strict=True)
            ),
            stops=(Stop(2.0, 100.0),),
        )
    )
    assert found.tokens_s == pytest.approx(100.0, rel=0.05)
