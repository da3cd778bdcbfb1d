"""What a run was made with is what is fitted to it; what it did is what its replay does."""

import asyncio
import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields
from tests.app.simulate.played import play

from opengyre.app.recorded import config_of
from opengyre.app.report.lanes import Span
from opengyre.app.simulate.fit import fit
from opengyre.app.simulate.from_run import differs
from opengyre.app.simulate.load import at_least_zero, fit_load
from opengyre.app.simulate.measured import (
    Measured,
    MeasuredCall,
    MeasuredExecution,
    MeasuredGroup,
    MeasuredStep,
    measured,
)
from opengyre.app.simulate.replay import compare, replay
from opengyre.config.load import parse_config
from opengyre.config.run import PolicyName
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole, Ending, FinishReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict, VersionSpan
from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.workload import Machine, Workload
from opengyre.sim.world import Setting
from opengyre.store.rows import EventRow, GroupRow, GroupState, StepRow
from opengyre.store.run import RunStore

POLICIES: tuple[PolicyName, ...] = ("elastic", "colocate", "async")
LOAD = Workload(
    calls=4.0,
    answer_tokens=20.0,
    observation_tokens=30.0,
    first_prompt_tokens=100.0,
    tool_s=2.0,
    task_spread=0.3,
    member_spread=0.4,
    answer_spread=0.6,
    tool_spread=0.7,
    start_s=1.0,
    stop_s=0.5,
    evaluation_s=0.7,
)
MACHINE = Machine(
    decode_alone_tokens_s=40.0,
    decode_full_tokens_s=120.0,
    train_tokens_s=400.0,
    micro_step_tokens=600.0,
    step_s=1.5,
    publish_s=0.4,
    to_training_s=0.3,
    to_rollout_s=0.2,
    publish_drops_prefixes=False,
)
PLAN = SchedulePlan(
    cells=(12, 12),
    group_size=4,
    groups_per_step=2,
    steps_per_burst=3,
    staleness_steps=1,
    total_steps=12,
)


def setting(policy: PolicyName, seed: int = 0) -> Setting:
    return Setting(plan=PLAN, policy=policy, workload=LOAD, machine=MACHINE, seed=seed)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_machine_that_a_run_had_is_fitted(
    policy: PolicyName, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = play(setting(policy), monkeypatch)
    found = fit(run)
    assert found.machine.decode_alone_tokens_s == pytest.approx(40.0, rel=0.2)
    assert found.machine.train_tokens_s == pytest.approx(400.0, rel=0.25)
    assert found.machine.to_training_s == pytest.approx(0.3)
    assert found.machine.publish_s == pytest.approx(0.4)
    for point in found.load.curve:
        assert point.fitted_s == pytest.approx(point.measured_s, rel=0.15)
    assert found.workload.evaluation_s == pytest.approx(LOAD.evaluation_s, abs=1e-6)
    assert found.workload.start_s == pytest.approx(LOAD.start_s, abs=1e-6)
    assert found.workload.stop_s == pytest.approx(LOAD.stop_s, abs=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replay_takes_the_measured_time(
    policy: PolicyName, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = play(setting(policy, seed=3), monkeypatch)
    found = fit(run)
    outcome = replay(found)
    compared = {one.name: one for one in compare(found, outcome)}
    assert compared["mean step time"].ratio == pytest.approx(1.0, abs=0.05)
    assert compared["mean execution"].ratio == pytest.approx(1.0, abs=0.05)
    idle = compared["cells idle"]
    assert idle.simulated == pytest.approx(idle.measured, abs=0.12)


def test_another_policy_is_predicted_from_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = play(setting("colocate"), monkeypatch)
    found = fit(run)
    for policy in POLICIES:
        truth, outcome = play(setting(policy), monkeypatch)
        asked = fit(truth)
        asked.machine, asked.workload = found.machine, found.workload
        assert replay(asked).seconds == pytest.approx(outcome.seconds, rel=0.1), policy


def as_found_at(run: Measured, at: float) -> Measured:
    """What a reader would have found at some time of the run."""
    whole = tuple(group for group in run.groups if group.ready <= at)
    begun = [g for g in run.groups if g.dispatched <= at < g.ready]
    calls = [call for g in begun for one in g.executions for call in one.calls if call.ended <= at]
    steps = tuple(step for step in run.steps if step.at <= at)
    until = steps[-1].at
    return replace(
        run,
        groups=whole,
        other_calls=tuple(calls),
        steps=steps,
        planned_steps=len(run.steps),
        plan=replace(run.plan, total_steps=len(steps)),
        spans=tuple(replace(s, end=min(s.end, until)) for s in run.spans if s.start < until),
        levels=tuple(level for level in run.levels if level[0] <= at),
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("step", [4, 5])
def test_a_run_that_goes_on_is_compared_up_to_its_last_step(
    policy: PolicyName, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = play(setting(policy, seed=3), monkeypatch)
    at = run.steps[step - 1].at + 0.01  # in the middle of a burst of three
    found = fit(as_found_at(run, at))
    compared = {one.name: one for one in compare(found, replay(found))}
    assert compared["mean step time"].ratio == pytest.approx(1.0, abs=0.12)
    assert any(f"{step} of its 12 steps" in note for note in found.notes)


def test_slower_calls_of_the_same_agents_make_a_slower_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing but waits is taken from the record: durations of calls come from the fit."""
    slow = Setting(
        plan=PLAN,
        policy="colocate",
        workload=LOAD,
        machine=with_fields(MACHINE, decode_alone_tokens_s=20.0, decode_full_tokens_s=60.0),
    )
    run, outcome = play(slow, monkeypatch)
    before, _ = play(setting("colocate"), monkeypatch)
    found, fast = fit(run), fit(before)
    assert replay(found).seconds == pytest.approx(outcome.seconds, rel=0.05)
    found.machine = fast.machine
    assert replay(found).seconds == pytest.approx(replay(fast).seconds, rel=0.1)


def test_twice_the_cells_are_predicted_from_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = play(setting("colocate"), monkeypatch)
    found = fit(run)
    many = replace(PLAN, cells=PLAN.cells * 2)
    _, outcome = play(replace(setting("colocate"), plan=many), monkeypatch)
    found.run = replace(run, plan=many)
    assert replay(found).seconds == pytest.approx(outcome.seconds, rel=0.1)


def test_staleness_is_counted_from_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    run, outcome = play(setting("elastic"), monkeypatch)
    ages = run.staleness_steps()
    assert outcome.staleness is not None
    assert sum(ages) / len(ages) == pytest.approx(outcome.staleness.steps.mean)
    assert max(ages) == outcome.staleness.steps.max


def test_loads_that_are_alike_are_one_line_of_the_curve() -> None:
    calls = tuple(MeasuredCall(10.0 * i, 10.0 * i + 1, 4, 4, 10, moved=False) for i in range(50))
    span = Span(0, CellRole.ROLLOUT, 0.0, 600.0)
    one = MeasuredExecution("g", 0.0, 600.0, calls, trained=True)
    run = Measured(
        name="alone",
        plan=replace(PLAN, cells=(12,)),
        policy="elastic",
        limit_s=math.inf,
        token_budget=100,
        groups=(MeasuredGroup("g", 0, 0.0, (one,)),),
        other_calls=(),
        steps=(MeasuredStep(600.0, 0, ("g",), 10.0, 0.0),),
        planned_steps=1,
        spans=(span,),
        levels=(),
    )
    curve = fit_load(run).curve
    assert [(point.calls, point.at_once) for point in curve] == [(50, 1.0)]


rows = st.lists(
    st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(-5.0, 5.0)),
    min_size=2,
    max_size=12,
)


@given(rows)
@settings(max_examples=60, deadline=None)
def test_no_coefficients_of_at_least_zero_are_better(
    drawn: list[tuple[float, float, float]],
) -> None:
    columns, values = [row[:2] for row in drawn], [row[2] for row in drawn]

    def error(first: float, second: float) -> float:
        return sum(
            (first * a + second * b - v) ** 2 for (a, b), v in zip(columns, values, strict=True)
        )

    best = at_least_zero(columns, values)
    assert min(best) >= 0
    for step in (-0.1, 0.1):
        for near in ((best[0] + step, best[1]), (best[0], best[1] + step)):
            if min(near) >= 0:
                assert error(*best) <= error(*near) + 1e-6


# -- the store -----------------------------------------------------------------------------------------


def write_run(folder: Path, steps: int = 2) -> None:
    """One cell, groups of two; execution i of a group makes one call of 4 tokens."""
    raw = {
        "run": {"steps": steps},
        "policy": {"model": "quickstart"},
        "tasks": {"train": "t", "heldout": "h"},
        "cells": {"count": 2, "capacity": 2},
        "schedule": {"group_size": 2, "groups_per_step": 1, "steps_per_burst": 1},
    }
    asyncio.run(_write(folder, steps, parse_config(raw, "a run").model_dump_json()))


async def _write(folder: Path, steps: int, config: str) -> None:
    with RunStore(folder / "run.sqlite") as store:
        await store.put_meta("config", config)
        await store.put_event(EventRow(at=100.0, kind="phase", fields={"name": "training"}))
        for step in range(steps):
            await _write_step(store, step)


async def _write_step(store: RunStore, step: int) -> None:
    began, name = 100.0 + 10 * step, f"g{step:05d}"
    for place in range(2):
        member = f"{name}-{place:02d}"
        call = Call(
            call_id=f"c{member}",
            execution_id=member,
            index=0,
            dialect="openai-chat",
            parent_id=None,
            reused=0,
            suffix_ids=[1, 2, 3],
            output_ids=[4, 5, 6, 7],
            output_logprobs=[-1.0] * 4,
            versions=[VersionSpan(step, 0, 4)],
            finish=FinishReason.STOP,
            role=Role.MAIN,
            role_why="",
            fork=None,
            started_at=began + 1,
            ended_at=began + 3,
        )
        await store.record(call)
        verdict = Verdict(
            kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=float(place), passed=False
        )
        record = ExecutionRecord(
            execution_id=member,
            group_id=name,
            task_id="t",
            harness="command",
            split="train",
            version_dispatched=step,
            attempt=1,
            dispatched_at=began,
            started_at=began,
            ended_at=began + 5 + place,
            verdict=verdict,
            member=member,
        )
        await store.put_execution(record)
    row = GroupRow(
        group_id=name,
        index=step,
        task_id="t",
        version_dispatched=step,
        state=GroupState.CONSUMED,
        step=step + 1,
    )
    done = StepRow(
        step=step + 1,
        version=step,
        at=began + 9,
        executions=2,
        groups=[name],
        reward_mean=0.5,
        pass_rate=0.0,
        metrics={"packed_tokens": 14.0, "staleness_versions_mean": 0.0},
    )
    await store.put_step(done, [row])
    for at, level in ((0.0, 2.0), (4.5, 1.0), (5.5, 0.0)):
        fields: dict[str, str | float] = {"waterlevel": level, "capacity": 4.0}
        await store.put_event(EventRow(at=began + at, kind="waterlevel", fields=fields))
    for cell in (0.0, 1.0):
        for at, role in (
            (6.0, "switching"),
            (6.5, "training"),
            (9.0, "switching"),
            (9.5, "rollout"),
        ):
            await store.put_event(
                EventRow(at=began + at, kind="role", fields={"cell": cell, "role": role})
            )


def test_what_the_store_says_is_measured_from_the_first_dispatch(tmp_path: Path) -> None:
    write_run(tmp_path)
    run = measured(tmp_path)
    assert [step.at for step in run.steps] == [9.0, 19.0]
    assert run.plan.cells == (2, 2)
    assert run.policy == "elastic"
    call = run.calls[0]
    assert (call.began, call.ended, call.prompt_tokens, call.answer_tokens) == (1.0, 3.0, 3, 4)
    assert all(execution.trained for execution in run.executions)
    found = fit(run)
    assert found.workload.evaluation_s == pytest.approx(0.5)
    assert found.machine.to_training_s == pytest.approx(0.5)
    assert found.machine.publish_s == pytest.approx(1.0)
    script = found.workload.recorded[0][0]
    assert script.stop_s == pytest.approx(1.5)
    assert script.trained_tokens == pytest.approx(7.0)
    assert replay(found).seconds == pytest.approx(run.seconds, rel=0.15)


def test_a_run_of_one_step_and_a_recording_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "short", steps=1)
    with pytest.raises(UserError, match="2 optimiser steps"):
        measured(tmp_path / "short")
    with RunStore(tmp_path / "none" / "run.sqlite"):
        pass
    with pytest.raises(UserError, match="without one"):
        measured(tmp_path / "none")
    with pytest.raises(UserError, match=r"no run\.sqlite"):
        measured(tmp_path / "nowhere")


async def _write_unfinished(folder: Path) -> None:
    """A third group: one of its two members has ended, the other has answered a call. And a call of an
    evaluation before training that was stopped."""
    with RunStore(folder / "run.sqlite") as store:
        await _write_step(store, 2)
        await store.rewind(2)
        call = with_fields(store.calls("g00000-00")[0], call_id="h", execution_id="held-out")
        await store.record(with_fields(call, started_at=3.0, ended_at=4.0))
        await store.put_group(
            GroupRow(
                group_id="g00002",
                index=2,
                task_id="t",
                version_dispatched=2,
                state=GroupState.OUTSTANDING,
            )
        )
    with sqlite3.connect(folder / "run.sqlite") as file:
        file.execute("DELETE FROM executions WHERE execution_id = 'g00002-01'")
    file.close()


def test_groups_that_are_not_whole_are_not_played_but_used_the_cells(tmp_path: Path) -> None:
    write_run(tmp_path)
    asyncio.run(_write_unfinished(tmp_path))
    run = measured(tmp_path)
    assert [group.group_id for group in run.groups] == ["g00000", "g00001"]
    assert len(run.other_calls) == 2  # and not the one before the first dispatch
    assert run.staleness_steps() == [0, 0]


def test_runs_of_other_agents_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path)
    run = measured(tmp_path)
    assert differs(run, run) == ""
    longer = [replace(call, answer_tokens=400) for call in run.groups[0].executions[0].calls]
    group = replace(run.groups[0], executions=(replace(run.executions[0], calls=tuple(longer)),))
    assert "400 tokens" in differs(run, replace(run, groups=(group,)))


@pytest.mark.parametrize("config", ["{", '{"run": {"nonsense": 1}}'])
def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path, config: str) -> None:
    write_run(tmp_path)
    with RunStore(tmp_path / "run.sqlite") as store:
        asyncio.run(store.put_meta("config", config))
    with pytest.raises(UserError, match="the configuration of the run"):
        measured(tmp_path)


@pytest.mark.parametrize("summary", ["{", "{}", "[]", '{"seed": "x"}'])
def test_a_summary_without_a_seed_is_told(tmp_path: Path, summary: str) -> None:
    text = """
        run = {steps = 2}
        policy = {model = "quickstart"}
        tasks = {train = "t", heldout = "h"}
    """
    (tmp_path / "config.toml").write_text("\n".join(line.strip() for line in text.splitlines()))
    (tmp_path / "summary.json").write_text(summary)
    with RunStore(tmp_path / "run.sqlite") as store, pytest.raises(UserError, match="seed"):
        config_of(tmp_path, store)


def test_a_folder_of_runs_says_which_there_are(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "elastic-0")
    for folder in (tmp_path, tmp_path / "runs"):
        with pytest.raises(UserError, match="elastic-0"):
            measured(folder)


def test_verdicts_that_the_waterlevel_does_not_tell_are_remarked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, _ = play(setting("elastic"), monkeypatch)
    found = fit(replace(run, levels=run.levels[:-3], limit_s=math.inf))
    assert found.workload.evaluation_s == pytest.approx(LOAD.evaluation_s, abs=0.1)
    assert any("waterlevel" in note for note in found.notes)
