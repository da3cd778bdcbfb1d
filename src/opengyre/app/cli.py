"""The command line. Each command says in its help what it needs and what it leaves behind."""

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from opengyre.core.errors import OpenGyreError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train coding agents by online reinforcement learning through real agent programs.",
)
tasks_app = typer.Typer(no_args_is_help=True, help="Look at task folders and check them.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure, always as ratios in one run.")
app.add_typer(tasks_app, name="tasks")
app.add_typer(bench_app, name="bench")

DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What the user has to mend; any other OSError is a fault of ours and keeps its traceback."""

Config = Annotated[Path, typer.Argument(help="A TOML file; see docs/configuration.md.")]
Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/quickstart.")]
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


def main() -> None:
    """Entry point: our own errors, and a disk that refuses, become one line and exit code 2."""
    try:
        app()
    except OpenGyreError as error:
        _tell(str(error))
    except OSError as error:
        if error.errno not in DISK_REFUSES:
            raise
        _tell(f"wanted to read and write files; found {error}; free space or mend permissions")


def _tell(message: str) -> NoReturn:
    Console(stderr=True).print(
        f"[bold red]opengyre:[/] {escape(message)}", highlight=False, soft_wrap=True
    )
    sys.exit(2)


@app.command()
def train(
    config: Config,
    *,
    resume: Annotated[bool, typer.Option(help="Go on from the run's newest checkpoint.")] = False,
    seed: Annotated[int | None, typer.Option(help="Instead of run.seed.")] = None,
    name: Annotated[str | None, typer.Option(help="Instead of run.name.")] = None,
) -> None:
    """Train a policy through a real agent program.

    Writes a run folder (run.folder/run.name): the store, checkpoints, summary.json and report.html.
    Ctrl-C stops it; the same command with --resume goes on.
    """
    from opengyre.app.commands import run_training
    from opengyre.config.load import load_config

    run_training(load_config(config), config, resume=resume, seed=seed, name=name)


@app.command()
def quickstart(
    *,
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the run's folder.")] = "quickstart",
    resume: Annotated[bool, typer.Option(help="Go on where an earlier one stopped.")] = False,
) -> None:
    """Train the bundled small policy through Claude Code on generated file tasks, in minutes.

    Needs nothing but this package: two cores, no GPU, no network. Writes runs/NAME.
    """
    from opengyre.app.commands import quickstart_config, run_training
    from opengyre.config.load import load_config

    path = quickstart_config()
    run_training(load_config(path), path, resume=resume, seed=seed, name=name)


@app.command(name="eval")
def evaluate(
    config: Config,
    *,
    model: Annotated[
        Path | None, typer.Option(help="A checkpoint's folder, instead of policy.model.")
    ] = None,
    greedy: Annotated[bool, typer.Option(help="Take the likeliest token always.")] = False,
) -> None:
    """Measure a policy's pass@1 on the held-out tasks, through the harness, without training."""
    from opengyre.app.commands import run_evaluation
    from opengyre.config.load import load_config

    run_evaluation(load_config(config), model, greedy=greedy)


@app.command()
def report(run: Run) -> None:
    """Write RUN/report.html: reward, held-out pass rate, cells, waterlevel, tokens and what was cut."""
    from opengyre.app.report.page import write_report

    print(write_report(run))


@app.command()
def simulate(  # noqa: PLR0913 — a command's options
    what: Annotated[
        str | None,
        typer.Argument(help="A preset's name; paper; policies; or calibrate.", show_default=False),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show the presets.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", help="Also write the rows here.")] = None,
    sets: Annotated[int, typer.Option(min=1, help="Accepted parameter sets that paper uses.")] = 6,
    tuned: Annotated[
        bool, typer.Option(help="With paper: tune every policy at equal staleness; takes long.")
    ] = False,
    ensemble: Annotated[
        Path | None, typer.Option(help="Sets that calibrate wrote, instead of the bundled ones.")
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=1, help="With calibrate: parameter sets to try.")
    ] = 200,
    out: Annotated[Path, typer.Option(help="With calibrate: where the sets go.")] = Path(
        "ensemble.json"
    ),
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
    looks for parameter sets anew, in many.

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
        ensemble=ensemble,
        candidates=candidates,
        out=out,
        from_run=from_,
        against=tuple(against or ()),
        change=change_of(cells, policy, training_cells, burst, staleness),
        html=html,
    )
    run_simulate("--list" if list_ else what, options)


@app.command()
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


@app.command()
def tree(
    run: Run,
    execution: Annotated[
        str, typer.Argument(help="An execution's id, or the start of one; 'list' shows them.")
    ],
) -> None:
    """Show the call tree of one execution, with roles, forks and token counts."""
    from opengyre.app.show_tree import show_tree

    show_tree(run, execution, Console())


@app.command()
def export(  # noqa: PLR0913 — a command's options
    run: Run,
    out: Annotated[Path, typer.Argument(help="A new folder for the data.")],
    *,
    format_: Annotated[
        list[str] | None, typer.Option("--format", help="parquet, atif; both if left out.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only train, or only heldout.")] = None,
    role: Annotated[
        list[str] | None, typer.Option(help="Only trajectories of this role; may be repeated.")
    ] = None,
    scored_only: Annotated[
        bool, typer.Option("--scored-only", help="Only executions with a reward.")
    ] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A model's folder; decodes ATIF where the run has none.")
    ] = None,
) -> None:
    """Write what a run recorded as data: trajectories in Parquet, conversations in ATIF.

    Parquet needs pyarrow, which the extra named export brings; see docs/export.md.
    """
    from opengyre.app.export.command import run_export
    from opengyre.app.export.write import choice_of

    choice = choice_of(format_ or [], split, role or [], scored_only=scored_only)
    run_export(run, out, choice, tokenizer)


@app.command()
def proxy(  # noqa: PLR0913 — a command's options
    *,
    upstream: Annotated[
        str | None, typer.Option(help="A running SGLang or vLLM server: http://HOST:PORT.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of the model it serves (tokenizer, config.json).")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Without a server: serve this dense Qwen3; or: quickstart.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run folder; an older recording goes on.")] = Path(
        "runs/recording"
    ),
    execution: Annotated[
        list[str] | None,
        typer.Option(help="Name of an execution that may call, with its own key; may be repeated."),
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Any name opens an execution on its first call.")
    ] = False,
    harness: Annotated[
        str, typer.Option(help="The program that calls, or auto: told by its requests.")
    ] = "auto",
    family: Annotated[
        str, typer.Option(help="Chat format, or auto: by the model's folder.")
    ] = "auto",
    tool_style: Annotated[
        str, typer.Option(help="How tools are shown: json, or signature for tiny models.")
    ] = "json",
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0: any free.")] = 4873,
    socket: Annotated[Path | None, typer.Option(help="Also listen on this unix socket.")] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="OPENGYRE_KEY", help="Key of the recording; else a new one."),
    ] = None,
    upstream_key: Annotated[
        str | None, typer.Option(envvar="OPENGYRE_UPSTREAM_KEY", help="Key that the server wants.")
    ] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of sampling; 0 is greedy.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of sampling, where the server obeys it.")] = 0,
    context_tokens: Annotated[
        int | None, typer.Option(min=64, help="Longest prompt + answer; else the server's own.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 8192,
    patience: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for a server that is gone.")
    ] = 300.0,
    silence: Annotated[
        float, typer.Option(min=1.0, help="Seconds to wait for its next token, queue included.")
    ] = 600.0,
) -> None:
    """Record any agent program against a served model, without training.

    Exact tokens and log-probabilities of every call go to the run folder, before its answer leaves.
    Point the program at the base URL that is printed, with its key. Whole command lines are printed:

    Claude Code: ANTHROPIC_BASE_URL=BASE ANTHROPIC_API_KEY=KEY

    Codex: a provider with base_url BASE/v1 and wire_api responses

    Qwen Code: OPENAI_BASE_URL=BASE/v1 OPENAI_API_KEY=KEY

    OpenCode: a provider with baseURL BASE/v1 and apiKey KEY

    mini-swe-agent: OPENAI_API_BASE=BASE/v1 OPENAI_API_KEY=KEY

    POST BASE/end with {"reward": 1.0} ends an execution with a reward.
    Ctrl-C stops it, the same command goes on. See docs/recording.md.
    """
    from opengyre.app.recording.command import run_recording
    from opengyre.app.recording.options import chosen

    options = chosen(
        upstream,
        model,
        policy,
        execution or [],
        any_name=open_,
        upstream_key=upstream_key,
        family=family,
        tool_style=tool_style,
        harness=harness,
        temperature=temperature,
        seed=seed,
        context_tokens=context_tokens,
        max_new_tokens=max_new_tokens,
        patience_s=patience,
        silence_s=silence,
        port=port,
        socket=socket,
    )
    run_recording(options, out, key)


@app.command()
def warmstart(
    out: Annotated[Path, typer.Argument(help="Folder for the policy.")],
    *,
    seed: Annotated[int, typer.Option(help="Seed of demonstrations and weights.")] = 0,
    traces: Annotated[int, typer.Option(help="Demonstrations to imitate.")] = 5000,
    epochs: Annotated[int, typer.Option(help="Passes over them.")] = 4,
) -> None:
    """Make the small policy that the quickstart starts from, by imitating sloppy demonstrations."""
    from opengyre.app.warmstart.make import make_policy

    make_policy(out, seed=seed, traces=traces, epochs=epochs, console=Console())


@tasks_app.command(name="check")
def tasks_check(
    folder: Annotated[
        str, typer.Argument(help='A folder of task folders, or "bundled:FAMILY[+FAMILY…]".')
    ],
    *,
    count: Annotated[int, typer.Option(help="How many bundled tasks to check.")] = 8,
) -> None:
    """Check that doing nothing scores 0 and the solution scores 1, for every task."""
    from opengyre.app.commands import check_task_folder

    sys.exit(0 if check_task_folder(folder, count) else 1)


@tasks_app.command(name="write")
def tasks_write(
    family: Annotated[str, typer.Argument(help="A bundled family; 'list' names them.")],
    into: Annotated[Path, typer.Argument(help="Folder for the task folders.")],
    *,
    split: Annotated[str, typer.Option(help="train or heldout.")] = "train",
    count: Annotated[int, typer.Option(help="How many.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Write bundled tasks as Harbor task folders."""
    from opengyre.app.commands import write_task_folders

    write_task_folders(family, into, split, count, seed)


if __name__ == "__main__":
    main()


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
    run_policies(work, repeats, keep, json)


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
