"""The commands of `opengyre bench`."""

from pathlib import Path
from typing import Annotated

import typer

bench_app = typer.Typer(no_args_is_help=True, help="Measure, always as ratios in one run.")

JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write all figures here.")]


@bench_app.command(name="policies")
def bench_policies(  # noqa: PLR0913 — a command's options
    *,
    steps: Annotated[int, typer.Option(min=2, help="Optimiser steps of each run.")] = 12,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each policy, in turns.")] = 1,
    cells: Annotated[
        int, typer.Option(min=2, help="Cells; more than CPUs make cells borrow from one another.")
    ] = 2,
    seed: Annotated[int, typer.Option(help="Of tasks, waits, weights and sampling.")] = 0,
    wait: Annotated[
        float, typer.Option(min=0.1, help="Mean seconds of tool time of an execution.")
    ] = 5.0,
    burst: Annotated[int, typer.Option(min=1, help="mu, optimiser steps of a burst.")] = 3,
    staleness: Annotated[int, typer.Option(min=0, help="phi, staleness budget in steps.")] = 1,
    forecast: Annotated[bool, typer.Option("--forecast", help="Run forecast as well.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="A new folder for the runs, for opengyre report.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare elastic, colocate and async (every split) on the same work and the same seeds.

    Real cells, proxy, sandboxes and steps; a random policy; tools that wait. About five minutes
    with the defaults on two idle cores. Two cells, a core each, are what two cores measure honestly.
    """
    from opengyre.app.bench.commands import run_policies
    from opengyre.app.bench.workload import Workload

    work = Workload(
        steps=steps,
        cells=cells,
        seed=seed,
        wait_s=wait,
        steps_per_burst=burst,
        staleness_steps=staleness,
    )
    run_policies(work, repeats, keep, json, forecast=forecast)


@bench_app.command(name="tree")
def bench_tree(
    run: Annotated[Path, typer.Argument(help="A run folder.")] = Path("runs/quickstart"),
    *,
    groups: Annotated[int, typer.Option(min=1, help="The newest so many groups.")] = 12,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes in each mode, in turns.")] = 3,
    json: JsonFile = None,
) -> None:
    """Compare tree-packed with path-expanded training on the trees that a run recorded."""
    from opengyre.app.bench.commands import run_tree

    run_tree(run, groups, repeats, json)


@bench_app.command(name="jmax")
def bench_jmax(  # noqa: PLR0913 — a command's options
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, or folders of such.", show_default="runs/quickstart"),
    ] = None,
    *,
    executions: Annotated[int, typer.Option(min=1, help="The newest so many of each run.")] = 32,
    draws: Annotated[int, typer.Option(min=1, help="Selections, averaged.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes of each, in turns.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the selections.")] = 0,
    token_budget: Annotated[
        int | None, typer.Option(min=64, help="Packed tokens of a micro-step, not the run's own.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare J_max 1, 5 and unlimited: tokens trained, time, gradient norm and direction.

    Takes any recorded run, of `opengyre train` or `opengyre proxy`. A recording whose model is not
    here is trained with a small random model of its vocabulary.
    """
    from opengyre.app.bench.commands import run_jmax
    from opengyre.app.bench.jmax import JmaxSettings

    settings = JmaxSettings(executions, draws, repeats, seed, token_budget)
    run_jmax(runs or [Path("runs/quickstart")], settings, json)


@bench_app.command(name="proxy")
def bench_proxy(  # noqa: PLR0913 — a command's options
    *,
    history: Annotated[
        list[int] | None,
        typer.Option(min=1000, help="Tokens; repeat it.", show_default="1k 10k 100k 1M"),
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="Measured calls at each length.")] = 10,
    executions: Annotated[
        int | None, typer.Option(min=1, help="So many at once on one core instead; e.g. 1000.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=100, help="With --executions: tokens that each begins with.")
    ] = 8000,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A model's tokenizer.json; else one is made from source code."),
    ] = None,
    peer: Annotated[
        str | None,
        typer.Option(help="A command that starts another proxy at {port} before {upstream}."),
    ] = None,
    peer_path: Annotated[
        str, typer.Option(help="Where the peer takes OpenAI chat completions.")
    ] = "/v1/chat/completions",
    json: JsonFile = None,
) -> None:
    """Measure the proxy's CPU per call as a conversation grows, or many executions at once.

    The real path from the socket to the store, with an instant engine; against rendering and encoding
    everything again, and with --peer against another proxy on the same calls. Two minutes.
    """
    from opengyre.app.bench.proxy_commands import ProxyOptions, run_proxy

    options = ProxyOptions(
        lengths=history or [1_000, 10_000, 100_000, 1_000_000],
        calls=calls,
        executions=executions,
        tokens=tokens,
        tokenizer=tokenizer,
        peer=peer,
        peer_path=peer_path,
        json=json,
    )
    run_proxy(options)


@bench_app.command(name="sim")
def bench_sim(
    *,
    cells: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Cells of a world; repeat it.", show_default="4 100 1000 10000"),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Optimiser steps: 4 executions a cell in each.")
    ] = 3,
    work: Annotated[
        bool,
        typer.Option(
            "--work",
            help="Also count the instructions an event takes, up to 1,000 cells. A minute more.",
        ),
    ] = False,
    json: JsonFile = None,
) -> None:
    """Measure what a simulated event costs in a small world and in large ones.

    The same agents, policy and work a cell; only the number of cells differs. Every size plays about
    as many events, in turns of a second; the mean counts. One core, two minutes.
    """
    from opengyre.app.bench.sim_command import run_sim

    run_sim(cells or [4, 100, 1_000, 10_000], steps, json, work=work)


@bench_app.command(name="kv")
def bench_kv(
    *,
    context: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Tokens; repeat it.", show_default="16 64 256 1024 4096"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A transformers folder of a dense Qwen3; else a small random one."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of both ways; the best counts.")] = 5,
    seed: Annotated[int, typer.Option(help="Of weights and tokens.")] = 0,
    json: JsonFile = None,
) -> None:
    """Compare moving a call with its KV cache with computing that again, as its context grows.

    Between two embedded engines on one thread, through shared memory, as between two cells. Half a
    minute.
    """
    from opengyre.app.bench.moves_command import run_kv

    run_kv(model, context or [16, 64, 256, 1_024, 4_096], repeats, seed, json)
