"""What `opengyre simulate --from RUN` does: fit, play again, compare, and answer what if."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec.structs import replace as with_fields
from rich.console import Console
from rich.table import Table

from opengyre.app.simulate.baselines import Choice
from opengyre.app.simulate.fit import FASTEST_S, Fit, fit
from opengyre.app.simulate.measured import Measured, measured
from opengyre.app.simulate.replay import Compared, compare, replay, scene_of_run, step_s
from opengyre.app.simulate.whatif import SEEDS, Answer, Case, Change, answer, changed, usual_cases
from opengyre.sim.outcome import Outcome

SAME_AGENTS = 1.25
"""Between calls of an execution, or tokens of a call, of two runs of the same agents."""
NEAR = 0.15
"""Of the measured step time: what a replay should reach."""


@dataclass(frozen=True)
class Predicted:
    """Another run, simulated with what was fitted to this one."""

    run: str
    policy: str
    measured_s: float
    predicted_s: float
    """Of a step, on the mean."""
    times_measured: float
    times_predicted: float
    """As fast as the fitted run, both measured and both simulated: what the policy makes of it."""
    differs: str
    """How its executions are others than those that were fitted; empty: they are alike."""


@dataclass(frozen=True)
class Studied:
    """A run, what was fitted to it, and what that answers."""

    fit: Fit
    outcome: Outcome
    """Of the replay."""
    compared: list[Compared]
    answers: list[Answer]
    predicted: list[Predicted]

    @property
    def off(self) -> float:
        """How far the simulated mean step time is from the measured one, as a share of it."""
        return abs((self.compared[0].ratio or 1.0) - 1.0)

    def as_json(self) -> dict[str, object]:
        """All figures."""
        load = with_fields(self.fit.workload, recorded=())
        return {
            "run": self.fit.run.name,
            "policy": self.fit.run.policy,
            "workload": _finite(msgspec.to_builtins(load)),
            "machine": _finite(msgspec.to_builtins(self.fit.machine)),
            "load": msgspec.to_builtins(self.fit.load),
            "training": msgspec.to_builtins(self.fit.training),
            "stops": [{"at_s": stop.at, "seconds": stop.seconds} for stop in self.fit.run.stops],
            "notes": self.fit.notes,
            "replay": [
                {"name": c.name, "measured": c.measured, "simulated": c.simulated, "ratio": c.ratio}
                for c in self.compared
            ],
            "measured_step_ends_s": [step.at for step in self.fit.run.steps],
            "simulated_step_ends_s": self.outcome.steps,
            "predicted": msgspec.to_builtins(self.predicted),
            "what_if": [answer_json(one) for one in self.answers],
        }


def _finite(fields: dict[str, object]) -> dict[str, object]:
    """JSON has no infinity: null, as for what was not measured."""
    return {
        key: None if isinstance(value, float) and value == float("inf") else value
        for key, value in fields.items()
    }


def answer_json(one: Answer) -> dict[str, object]:
    """One case's figures."""
    mean, p95 = one.staleness
    return {
        "case": one.case.name,
        "step_s": one.step_s,
        "times_as_fast": one.speedup,
        "spread": one.speedup_spread,
        "idle_share": one.idle,
        "staleness_steps_mean": mean,
        "staleness_steps_p95": p95,
        "truncated": one.truncated,
    }


def study(
    run: Path,
    change: Change,
    against: Sequence[Path] = (),
    *,
    seeds: int = SEEDS,
    seed: int = 0,
) -> Studied:
    """Fit a run and ask. Without a change: what is usually asked. Raises UserError."""
    fitted = fit(measured(run))
    outcome = replay(fitted)
    predicted = [predict(fitted, outcome, other) for other in against]
    scene = scene_of_run(fitted)
    choice = Choice(fitted.run.policy, fitted.run.plan.training_cells)
    if change:
        asked = changed(scene, choice, change)
        cases = [Case("as it ran", scene, choice), Case(in_words(change), *asked)]
    else:
        cases = usual_cases(scene, choice)
    answers = answer(cases, seeds, seed)
    return Studied(fitted, outcome, compare(fitted, outcome), answers, predicted)


def predict(fitted: Fit, replayed: Outcome, other: Path) -> Predicted:
    """The step time of another run, from its plan and policy alone."""
    run = measured(other)
    outcome = replay(replace(fitted, run=run))
    took_s, takes_s = step_s(run), step_s(run, outcome)
    mine = fitted.run
    return Predicted(
        "/".join(other.resolve().parts[-2:]),
        run.policy,
        took_s,
        takes_s,
        step_s(mine) / took_s,
        step_s(mine, replayed) / takes_s,
        differs(mine, run),
    )


def differs(one: Measured, other: Measured) -> str:
    """How the agents of another run are others; empty when they are about the same."""
    calls = [len(run.calls) / len(run.executions) for run in (one, other)]
    tokens = [_sampled(run) for run in (one, other)]
    if max(max(pair) / min(pair) for pair in (calls, tokens)) <= SAME_AGENTS:
        return ""
    return (
        f"its executions have {calls[1]:.1f} calls of {tokens[1]:.0f} tokens, the fitted ones "
        f"{calls[0]:.1f} of {tokens[0]:.0f}"
    )


def in_words(change: Change) -> str:
    """Such as "4 cells, burst 2"."""
    words: list[str] = [change.policy] if change.policy else []
    if change.training_cells is not None:
        words.append(f"{change.training_cells} training")
    if change.cells is not None:
        words.append(f"{change.cells} cells")
    if change.burst is not None:
        words.append(f"bursts of {change.burst}")
    if change.staleness is not None:
        words.append(f"staleness budget {change.staleness}")
    return ", ".join(words)


def show(studied: Studied, console: Console) -> None:
    """Print it all."""
    for line in fit_words(studied.fit):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(load_table(studied.fit))
    console.print(replay_table(studied))
    for note in studied.fit.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    verdict = "within" if studied.off <= NEAR else "NOT within"
    console.print(
        f"the simulated step time is {studied.off:.1%} from the measured one, {verdict} {NEAR:.0%}",
        highlight=False,
    )
    if studied.predicted:
        console.print(predicted_table(studied.predicted))
        for other in studied.predicted:
            if other.differs:
                words = f"note: {other.run} is of other agents: {other.differs}"
                console.print(words, highlight=False, soft_wrap=True)
    console.print(what_if_table(studied.answers))
    console.print(
        f"{what_if_words(studied.answers)}; more cells are taken as cells with processors of their own",
        highlight=False,
        soft_wrap=True,
    )


def what_if_words(answers: Sequence[Answer]) -> str:
    """What the columns of the table mean."""
    draws = len(answers[0].outcomes)
    groups = "recorded groups" if answers[0].case.scene.workload.recorded else "executions"
    over = f"mean and standard deviation of {draws} draws of the {groups}"
    return (
        f"×: times as fast as the first line, {over if draws > 1 else f'on one draw of the {groups}'}; "
        "stale: steps from dispatch, mean/p95; cut: executions that the harness timeout ended"
    )


def fit_words(fitted: Fit) -> list[str]:
    """The fitted world in sentences."""
    load, machine, run = fitted.workload, fitted.machine, fitted.run
    return [
        f"{run.name}: {run.policy}, {len(run.plan.cells)} cells of {run.plan.cells[0]} places, "
        f"{len(run.steps)} steps of {run.plan.groups_per_step} groups of {run.plan.group_size}, "
        f"mu {run.plan.steps_per_burst}, phi {run.plan.staleness_steps}",
        f"an execution: {load.calls:.1f} calls of {_sampled(run):.0f} sampled tokens, "
        f"{load.start_s:.2f} s before the first, {load.tool_s:.2f} s between two, "
        f"{load.stop_s:.2f} s after the last, {load.evaluation_s:.2f} s to the verdict",
        f"a cell: {machine.decode_alone_tokens_s:.0f} tokens/s for a call alone, "
        f"{_limit_words(machine.decode_full_tokens_s)}; trains "
        f"{machine.train_tokens_s:.0f} tokens/s; a prompt token weighs "
        f"{fitted.load.prompt_weight:.3f} of a sampled one, a call by itself "
        f"{fitted.load.call_tokens:g} of them",
        f"beside that: optimiser step {machine.step_s:.2f} s, publication {machine.publish_s:.2f} s, switch to "
        f"training {machine.to_training_s:.2f} s, back {machine.to_rollout_s:.2f} s",
    ]


def _sampled(run: Measured) -> float:
    return fmean(call.answer_tokens for call in run.calls)


def _limit_words(full: float) -> str:
    return "no limit seen for many" if full * FASTEST_S >= 1 else f"{full:.0f} for all under load"


def load_table(fitted: Fit) -> Table:
    """Speed under load."""
    table = Table(title="A call under load", box=None, padding=(0, 2, 0, 0))
    for heading in ("at once on a cell", "calls", "measured s", "fitted s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point in fitted.load.curve:
        table.add_row(
            f"{point.at_once:.1f}",
            str(point.calls),
            f"{point.measured_s:.3f}",
            f"{point.fitted_s:.3f}",
        )
    return table


def replay_table(studied: Studied) -> Table:
    """Measured against simulated."""
    title = f"Played again under {studied.fit.run.policy}"
    table = Table(title=title, box=None, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")  # gives way, so that no figure is cut
    for heading in ("measured", "simulated", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in studied.compared:
        ratio = f"{one.ratio:.3f}" if one.ratio is not None else ""
        table.add_row(
            f"{one.name}{', ' if one.unit else ''}{one.unit}",
            f"{one.measured:.3f}",
            f"{one.simulated:.3f}",
            ratio,
        )
    return table


def predicted_table(predicted: Sequence[Predicted]) -> Table:
    """A line a run that was not fitted."""
    table = Table(title="Predicted for other runs", box=None, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("policy", no_wrap=True)
    headings = (
        "measured\ns/step",
        "predicted\ns/step",
        "ratio",
        "×, as\nmeasured",
        "×, as\npredicted",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in predicted:
        table.add_row(
            one.run,
            one.policy,
            f"{one.measured_s:.2f}",
            f"{one.predicted_s:.2f}",
            f"{one.predicted_s / one.measured_s:.3f}",
            f"{one.times_measured:.2f}",
            f"{one.times_predicted:.2f}",
        )
    return table


def what_if_table(answers: Sequence[Answer]) -> Table:
    """A line a case; the first is what the others are compared with."""
    table = Table(title="What if", box=None, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")  # gives way, so that no figure is cut
    for heading in ("s/step", "×", "±", "idle", "stale", "cut"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in answers:
        mean, p95 = one.staleness
        table.add_row(
            one.case.name,
            f"{one.step_s:.2f}",
            f"{one.speedup:.2f}",
            f"{one.speedup_spread:.2f}" if len(one.outcomes) > 1 else "",
            f"{one.idle:.0%}",
            f"{mean:.1f}/{p95}",
            str(one.truncated),
        )
    return table
