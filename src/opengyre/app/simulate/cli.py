"""The commands `opengyre simulate` and `opengyre plan`."""

from pathlib import Path
from typing import Annotated

import typer

CellsOption = Annotated[int | None, typer.Option(help="What if there were so many cells?")]
PolicyOption = Annotated[
    str | None, typer.Option(help="What if elastic, forecast, colocate or async scheduled?")
]
TrainingCellsOption = Annotated[
    int | None, typer.Option(help="With --policy async: cells that always train.")
]
BurstOption = Annotated[int | None, typer.Option(help="What if a burst had so many steps (mu)?")]
StalenessOption = Annotated[
    int | None, typer.Option(help="What if the staleness budget were so many steps (phi)?")
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also draw it, as one page that needs no network.")
]


def simulate(  # noqa: PLR0913 — a command's options
    what: Annotated[
        str | None,
        typer.Argument(help="A preset's name; paper; policies; or calibrate.", show_default=False),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show the presets.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", help="Also write the rows here.")] = None,
    sets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parameter sets that paper uses (16; 1 with --tuned) or calibrate looks for (24); "
            "settings that policies draws (16).",
            show_default=False,
        ),
    ] = None,
    tuned: Annotated[
        bool, typer.Option(help="With paper: tune every policy at equal staleness; takes long.")
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            help="With paper: baselines without streaming, at other splits and burst lengths than "
            "their best."
        ),
    ] = False,
    calls: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="With paper: calls of an execution, the grain of its simulation; durations stay.",
            show_default="3",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            help="With paper: all that is not published of a predicted workload is drawn anew."
        ),
    ] = False,
    ensemble: Annotated[
        Path | None, typer.Option(help="Sets that calibrate wrote, instead of the bundled ones.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            min=1, help="With calibrate: stop after about so many.", show_default="no limit"
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="With calibrate: where the sets go, and what it goes on from.")
    ] = Path("ensemble.json"),
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With paper and calibrate: processes; the results are the same.",
            show_default="the cores there are",
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", help="A run folder: fit it, play it again, answer what if."),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="With --from: another run, whose step time is predicted; repeat it."),
    ] = None,
    cells: CellsOption = None,
    policy: PolicyOption = None,
    training_cells: TrainingCellsOption = None,
    burst: BurstOption = None,
    staleness: StalenessOption = None,
    html: HtmlFile = None,
) -> None:
    """Simulate a cluster with the scheduler that drives the live one (docs/simulation.md).

    PRESET runs one published workload under each policy; paper compares all of them with the
    published speed-ups, in two minutes; policies compares elastic with what might beat it; calibrate
    looks for parameter sets anew, from nothing, in half an hour or more; stopped, it goes on from --out.

    --from RUN fits a recorded run, plays it again, and prints simulated beside measured. With --cells,
    --policy, --burst or --staleness, it and PRESET answer what would be if that were different.
    """
    from opengyre.app.simulate.commands import SimulateOptions, run_simulate
    from opengyre.app.simulate.whatif import change_of

    options = SimulateOptions(
        seed=seed,
        json=json,
        sets=sets,
        tuned=tuned,
        plain=plain,
        ensemble=ensemble,
        candidates=candidates,
        jobs=jobs,
        calls=calls,
        wide=wide,
        out=out,
        from_run=from_,
        against=tuple(against or ()),
        change=change_of(cells, policy, training_cells, burst, staleness),
        html=html,
    )
    run_simulate("--list" if list_ else what, options)


def plan(  # noqa: PLR0913 — a command's options
    *,
    from_: Annotated[
        Path | None, typer.Option("--from", help="A run folder whose agents and cells it is for.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="A published workload; see opengyre simulate --list.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE over a preset's parameter; may be repeated."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps to be done.")] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.0, help="Time for them; with --steps.")
    ] = None,
    steps_per_hour: Annotated[
        float | None, typer.Option(min=0.0, help="The target, instead of --steps and --hours.")
    ] = None,
    staleness_limit: Annotated[
        int | None, typer.Option(min=0, help="95th percentile of a group's age in steps.")
    ] = None,
    cells: Annotated[int | None, typer.Option(min=1, help="Plan for so many, no others.")] = None,
    most_cells: Annotated[
        int | None, typer.Option(min=1, help="Cells that can be had.", show_default="4 × its own")
    ] = None,
    sets: Annotated[int, typer.Option(min=1, help="With --preset: parameter sets.")] = 4,
    seeds: Annotated[int, typer.Option(min=2, help="Draws that the finalists are run on.")] = 5,
    ensemble: Annotated[
        Path | None, typer.Option(help="With --preset: sets that simulate calibrate wrote.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Also write all figures here.")
    ] = None,
    html: HtmlFile = None,
) -> None:
    """Recommend cells, policy, split, mu and phi, and say when elasticity does not pay.

    For a run's own agents and cells (--from) or a published workload (--preset). With a target, the
    fewest cells that reach it; without one, the fastest plan on the cells it has.
    """
    from opengyre.app.simulate.plan_command import PlanOptions, run_plan

    options = PlanOptions(
        from_run=from_,
        preset=preset,
        parameters=tuple(set_ or ()),
        steps=steps,
        hours=hours,
        steps_per_hour=steps_per_hour,
        staleness_limit=staleness_limit,
        cells=cells,
        most_cells=most_cells,
        sets=sets,
        seeds=seeds,
        ensemble=ensemble,
        json=json,
        html=html,
    )
    run_plan(options)
