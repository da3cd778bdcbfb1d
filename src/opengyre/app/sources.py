"""Where a run's policy and tasks come from: folders, or what the package brings."""

import shutil
from importlib.resources import files
from pathlib import Path

from opengyre.app.policy import check_policy, open_family
from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from opengyre.tasks.base import Task
from opengyre.tasks.bundled import write_bundled
from opengyre.tasks.load import load_tasks

BUNDLED = "bundled:"
"""tasks.train = "bundled:FAMILY"."""

QUICKSTART_POLICY = "quickstart"
"""policy.model = "quickstart"."""


def policy_folder(config: RunConfig) -> Path:
    """The transformers folder that the run starts from. Raises UserError."""
    folder = named_policy(config.policy.model)
    if not folder.is_dir():
        raise UserError(
            "a folder at policy.model",
            f"nothing at {config.policy.model}",
            f'set it to a transformers folder, or to "{QUICKSTART_POLICY}"',
        )
    check_policy(folder, config.policy.context_tokens)
    open_family(folder, config.policy.family, config.policy.tool_style)
    return folder


def named_policy(model: Path) -> Path:
    """The folder that this names: itself, unless it is the bundled policy's name."""
    if str(model) == QUICKSTART_POLICY:
        return Path(str(files("opengyre.app.quickstart").joinpath("policy")))
    return model


def training_tasks(config: RunConfig, folder: Path) -> list[Task]:
    """The training tasks; bundled ones are written below `folder` first."""
    return _tasks(str(config.tasks.train), "train", config.tasks.train_count, folder)


def heldout_tasks(config: RunConfig, folder: Path) -> list[Task]:
    """The held-out tasks. Raises UserError when one of them is a training task."""
    return _tasks(str(config.tasks.heldout), "heldout", config.tasks.heldout_count, folder)


def check_disjoint(train: list[Task], heldout: list[Task]) -> None:
    """Raises UserError when a task, or its instruction, is in both sets."""
    both = {t.instruction for t in train} & {t.instruction for t in heldout}
    if both:
        raise UserError(
            "held-out tasks that are not trained on",
            f"{len(both)} in both sets, such as: {sorted(both)[0][:80]!r}",
            "set tasks.heldout to other tasks",
        )


def _tasks(source: str, split: str, count: int, folder: Path) -> list[Task]:
    if not source.startswith(BUNDLED):
        return load_tasks(Path(source))
    return bundled_tasks(source, split, count, folder)


def bundled_tasks(source: str, split: str, count: int, folder: Path) -> list[Task]:
    """Write `count` tasks of "bundled:FAMILY[+FAMILY…]" below folder/tasks and load them."""
    families = source.removeprefix(BUNDLED).split("+")
    _check_mix(source, families, count)
    target = folder / "tasks" / split
    shutil.rmtree(target, ignore_errors=True)  # a resumed run writes the same tasks again
    for i, family in enumerate(families):
        share = count // len(families) + (i < count % len(families))
        write_bundled(family, "train" if split == "train" else "heldout", share, 0, target / family)
    return [task for family in families for task in load_tasks(target / family)]


def _check_mix(source: str, families: list[str], count: int) -> None:
    if len(set(families)) < len(families):
        raise UserError("each bundled family once", source, "name it once")
    if count < len(families):
        raise UserError(
            f"a task or more of each family in {source}",
            f"a count of {count} for {len(families)} families",
            f"ask for at least {len(families)}",
        )
