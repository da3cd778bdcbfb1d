"""What `opengyre export` does on a terminal."""

from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from opengyre.app.export.write import Choice, export_run
from opengyre.app.policy import open_family
from opengyre.app.recorded import config_of, open_run
from opengyre.app.sources import QUICKSTART_POLICY, policy_folder
from opengyre.core.errors import UserError
from opengyre.proxy.families.base import Family


def run_export(run: Path, out: Path, choice: Choice, tokenizer: Path | None) -> None:
    """Export with a bar, and say what was written."""
    console = Console()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"exporting {run.name}", total=None)
        counts = export_run(
            run,
            out,
            choice,
            lambda: family_of(run, tokenizer),
            lambda done, total: progress.update(bar, completed=done, total=total),
        )
    parts = []
    if "parquet" in choice.formats:
        parts.append(f"{counts.rows} trajectories with {counts.tokens:,} target tokens")
    if "atif" in choice.formats:
        parts.append(f"{counts.documents} ATIF documents")
    console.print(
        f"{counts.executions} executions: {', '.join(parts)} in {out}",
        highlight=False,
        soft_wrap=True,
    )


def family_of(run: Path, tokenizer: Path | None) -> Family:
    """What decodes the run's tokens. Raises UserError."""
    with open_run(run) as store:
        config = config_of(run, store)
    if tokenizer is None and config is None:
        raise UserError(
            f"the tokenizer of {run}, for ATIF",
            "a recording without a configuration",
            "name the model's folder with --tokenizer, or ask for --format parquet alone",
        )
    if config is None:
        assert tokenizer is not None
        return open_family(tokenizer)
    bundled = str(config.policy.model) == QUICKSTART_POLICY
    own = policy_folder(config) if bundled else config.policy.model  # a served model has no weights
    folder = tokenizer or own
    return open_family(folder, config.policy.family, config.policy.tool_style)
