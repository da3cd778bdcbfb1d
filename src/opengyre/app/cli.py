"""The command line. Each command says in its help what it needs and what it leaves behind."""

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from opengyre.app.bench.cli import bench_app
from opengyre.app.simulate.cli import plan, simulate
from opengyre.core.errors import OpenGyreError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train coding agents by online reinforcement learning through real agent programs.",
)
tasks_app = typer.Typer(no_args_is_help=True, help="Look at task folders and check them.")
app.add_typer(tasks_app, name="tasks")
app.add_typer(bench_app, name="bench")

DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""What the user has to mend; any other OSError is a fault of ours and keeps its traceback."""

Config = Annotated[Path, typer.Argument(help="A TOML file; see docs/configuration.md.")]
Run = Annotated[Path, typer.Argument(help="A run folder, such as runs/quickstart.")]


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


app.command()(simulate)
app.command()(plan)

if __name__ == "__main__":
    main()
