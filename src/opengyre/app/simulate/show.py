"""The simulator's tables."""

from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from opengyre.app.simulate.baselines import Result
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.ensemble import Fitted
from opengyre.app.simulate.paper import Hours, Row
from opengyre.app.simulate.plain import PlainRow
from opengyre.app.simulate.population import quantile
from opengyre.app.simulate.presets import CALIBRATED, Preset, Span, load_preset, preset_names

SOLVED = ("nominal_h", "member_spread")
"""Parameters that the published durations pin."""


def presets_table() -> Table:
    """A line a preset."""
    table = Table(box=None, padding=(0, 2, 1, 0))
    table.add_column("preset", no_wrap=True)  # it is what one types
    table.add_column("workload (source), and what is known of it", overflow="fold")
    for name in preset_names():
        preset = load_preset(name)
        facts = ", ".join(f"{key} {_short(value)}" for key, value in preset.known.items())
        table.add_row(name, f"{preset.title} ({preset.source})\n{facts}")
    return table


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def paper_table(rows: list[Row]) -> Table:
    """Published against simulated speed-ups of elastic."""
    table = Table(title="Speed-up of elastic", box=None, padding=(0, 1, 0, 0))
    table.add_column("workload", no_wrap=True)
    table.add_column("over", no_wrap=True)
    for heading in ("published", "simulated", "residual"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        verdict = "hit" if row.hit else "MISS"
        table.add_row(
            row.workload,
            row.baseline,
            _span(row.published),
            f"{row.mean:.3f}±{row.spread:.3f}",
            f"{row.residual:+.3f}",
            f"{row.kind}, {verdict}",
        )
    return table


def _span(span: Span) -> str:
    return f"{span.low:.3f}" if span.low == span.high else f"{span.low:.3f}–{span.high:.3f}"


def plain_table(rows: Sequence[PlainRow]) -> Table:
    """Published speed-ups against those over baselines that are not at their best."""
    table = Table(
        title="Speed-up of elastic over baselines without streaming", box=None, padding=(0, 1, 0, 0)
    )
    for heading in ("workload", "over", "run with"):
        table.add_column(heading, no_wrap=True)
    for heading in ("published", "simulated", "of all sets"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in rows:
        row = one.row
        table.add_row(
            row.workload,
            row.baseline,
            one.way,
            _span(row.published),
            f"{row.mean:.2f}±{row.spread:.2f}",
            f"{min(row.simulated):.2f}–{max(row.simulated):.2f}",
            "reached" if row.reached else "",
        )
    return table


def plain_words(rows: Sequence[PlainRow]) -> str:
    """How many published speed-ups some way reaches."""
    published = {(one.row.workload, one.row.baseline) for one in rows}
    reached = {(one.row.workload, one.row.baseline) for one in rows if one.row.reached}
    return (
        f"published speed-ups that some set reaches over some plain baseline: {len(reached)} of "
        f"{len(published)}. How the published baselines ran is not known: this shows what they may "
        "have been, and predicts nothing"
    )


def hours_words(name: str, hours: list[Hours]) -> str:
    """What one preset's runs came to, in a line."""
    known = load_preset(name).known_numbers
    words = [
        f"{name}: execution {_mean_h([one.execution_h for one in hours], known, 'execution_h')}"
    ]
    words.append(
        f"slowest of a group {_mean_h([one.slowest_h for one in hours], known, 'slowest_h')}"
    )
    by_policy = {"elastic": [one.elastic for one in hours]}
    by_policy |= {base: [one.baselines[base] for one in hours] for base in ("async", "colocate")}
    for policy, found in by_policy.items():
        words.append(f"{policy} {_mean_h(found, known, f'{policy}_h')}")
    cut = {policy: sum(one.truncated[policy] for one in hours) for policy in by_policy}
    words.append("truncated " + "/".join(f"{count}" for count in cut.values()))
    return "; ".join(words)


def _mean_h(found: list[float], known: dict[str, float], key: str) -> str:
    published = f" (published {known[key]:g})" if key in known else ""
    return f"{fmean(found):.2f} h{published}"


def scene_words(name: str, preset: Preset, scene: Scene) -> str:
    """What is about to be simulated."""
    plan = scene.plan
    executions = plan.total_steps * plan.groups_per_step * plan.group_size
    return (
        f"{name}: {preset.title} ({preset.source}); {len(plan.cells)} cells of {plan.cells[0]} "
        f"places, {plan.total_steps} steps of {plan.groups_per_step} groups of {plan.group_size}, "
        f"mu {plan.steps_per_burst}, phi {plan.staleness_steps}, {executions:,} executions"
    )


def spread_table(sets: Sequence[Fitted]) -> Table:
    """What accepted sets leave of each range that sets were drawn from."""
    table = Table(title="Accepted sets", box=None, padding=(0, 1, 0, 0))
    table.add_column("parameter", no_wrap=True)
    for heading in ("drawn from", "lowest", "10%", "median", "90%", "highest"):
        table.add_column(heading, justify="right", no_wrap=True)
    prior = load_preset(CALIBRATED).assumed
    drawn = {name: f"{min(among):g}, …, {max(among):g}" for name, among in prior.choices.items()}
    drawn |= {name: f"{low:g} to {high:g}" for name, (low, high) in prior.ranges.items()}
    drawn |= dict.fromkeys(SOLVED, "solved for")
    for name, source in drawn.items():
        values = [one.parameters[name] for one in sets]
        row = [quantile(values, share) for share in (0.0, 0.1, 0.5, 0.9, 1.0)]
        table.add_row(name, source, *(f"{value:.3g}" for value in row))
    return table


def results_table(results: list[Result]) -> Table:
    """A line a policy; staleness as mean/p95/maximum, cut = truncated by the harness timeout."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    headings = ("hours", "×", "stale steps", "versions", "cut", "moved", "events")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    first = results[0].hours
    for result in results:
        outcome = result.outcome
        stale, tally = outcome.staleness, outcome.tally
        assert stale is not None, "a finished simulation has its staleness"
        table.add_row(
            str(result.choice),
            f"{result.hours:.2f}",
            f"{result.hours / first:.3f}",
            f"{stale.steps.mean:.2f}/{stale.steps.p95}/{stale.steps.max}",
            f"{stale.versions.mean:.2f}/{stale.versions.p95}/{stale.versions.max}",
            f"{tally.truncated}",
            f"{tally.moved_with_kv + tally.recomputed}",
            f"{outcome.events:,}",
        )
    return table


def result_json(result: Result) -> dict[str, object]:
    """One policy's figures."""
    outcome = result.outcome
    stale = outcome.staleness
    assert stale is not None, "a finished simulation has its staleness"
    return {
        "policy": result.choice.policy,
        "choice": str(result.choice),
        "hours": result.hours,
        "step_ends_s": outcome.steps,
        "staleness_steps": [stale.steps.mean, stale.steps.p95, stale.steps.max],
        "staleness_versions": [stale.versions.mean, stale.versions.p95, stale.versions.max],
        "executions": outcome.tally.executions,
        "truncated": outcome.tally.truncated,
        "events": outcome.events,
    }
