"""Harbor task folders in, checked tasks out.

Invariant: a folder that loads can be materialised and evaluated by a local sandbox; whatever it
asks for beyond that is in the task's notes. Each fault names the file and the way out.
"""

import re
from pathlib import Path, PurePosixPath

from opengyre.core.errors import UserError
from opengyre.tasks.base import Task
from opengyre.tasks.dockerfile import DEFAULT_WORKDIR, Recipe, read_dockerfile
from opengyre.tasks.document import EnvironmentTable, TaskDocument, read_document, unknown_keys
from opengyre.tasks.links import all_inside

TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Safe in file names, URLs and tables."""
RESERVED = ("/", "/tests", "/logs", "/solution", "/setup", "/usr", "/etc", "/proc", "/dev", "/tmp")
"""Taken inside a sandbox, so that they cannot be a work folder."""
COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


def load_tasks(folder: Path) -> list[Task]:
    """All tasks in a folder of task folders, or the one task that folder is, by name.

    Raises UserError for the first that is broken.
    """
    if not folder.is_dir():
        raise UserError(f"a folder of tasks at {folder}", "no such folder", "check the path")
    if (folder / "task.toml").exists():
        return [load_task(folder)]
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not inner:
        raise UserError(
            f"task folders in {folder}",
            "none",
            "put one folder for each task there, each with task.toml and instruction.md",
        )
    return [load_task(path) for path in inner]


def load_task(folder: Path) -> Task:
    """One task folder. Raises UserError."""
    if TASK_ID.fullmatch(folder.name) is None:
        raise UserError(
            "a task folder's name of letters, digits, dot, dash and underscore",
            repr(folder.name),
            f"rename {folder}",
        )
    _need(folder, "task.toml", "Harbor's settings of a task")
    document = read_document(folder / "task.toml")
    _refuse_steps(folder, document)
    _need(folder, "instruction.md", "what the agent is told")
    _need(folder, "tests/test.sh", "the evaluator, which writes /logs/verifier/reward.json")
    all_inside(folder)
    recipe = _recipe(folder, document.environment)
    setup = folder / "environment" / "setup.sh"
    metadata, environment = document.metadata, document.environment
    return Task(
        task_id=folder.name,
        folder=folder.absolute(),
        instruction=_instruction(folder / "instruction.md"),
        workdir=_workdir(folder, recipe.workdir),
        copies=tuple(recipe.copies),
        setup=setup.absolute() if setup.exists() else None,
        env=_literal(folder, environment.env),
        setup_timeout_s=environment.build_timeout_sec,
        agent_timeout_s=document.agent.timeout_sec,
        verifier_timeout_s=document.verifier.timeout_sec,
        verifier_env=_literal(folder, document.verifier.env),
        solution_env=_literal(folder, document.solution.env),
        reward_low=metadata.reward_range[0],
        reward_high=metadata.reward_range[1],
        difficulty=metadata.difficulty,
        family=metadata.family or metadata.category,
        notes=(*unknown_keys(document), *recipe.notes, *_network(environment)),
    )


def _need(folder: Path, name: str, what: str) -> None:
    if not (folder / name).is_file():
        raise UserError(
            f"{name} ({what}) in the task folder {folder}", "no such file", f"write {folder / name}"
        )


def _refuse_steps(folder: Path, document: TaskDocument) -> None:
    if document.steps or (folder / "steps").exists():
        raise UserError(
            f"a task of one step in {folder}",
            "a multi-step task (steps/)",
            "split it into one task folder for each step: multi-step tasks are not supported",
        )


def _instruction(file: Path) -> str:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"an instruction in {file}", f"an unreadable file ({error})", "mend it"
        ) from error
    if not text:
        raise UserError(f"an instruction in {file}", "an empty file", "say what is to be done")
    return text


def _recipe(folder: Path, table: EnvironmentTable) -> Recipe:
    environment = folder / "environment"
    for name in COMPOSE:
        if (environment / name).exists():
            raise UserError(
                f"an environment of one container in {environment}",
                name,
                "tasks of several containers need Harbor's own environments; leave it out",
            )
    dockerfile = environment / "Dockerfile"
    if dockerfile.is_file():
        return read_dockerfile(dockerfile, table.workdir)
    if (environment / "setup.sh").is_file():
        return Recipe(workdir=table.workdir or DEFAULT_WORKDIR)
    image = f"only the image {table.docker_image}" if table.docker_image else "neither"
    raise UserError(
        f"Dockerfile or setup.sh in {environment}",
        image,
        "write a Dockerfile with WORKDIR and COPY, or a setup.sh that makes the workspace",
    )


def _workdir(folder: Path, workdir: str) -> str:
    path = PurePosixPath(workdir)
    if not path.is_absolute() or ".." in path.parts or str(path) in RESERVED:
        raise UserError(
            f"an absolute work folder of its own for the task in {folder}",
            repr(workdir),
            f"set WORKDIR in environment/Dockerfile, for example to {DEFAULT_WORKDIR}",
        )
    return str(path)


def _literal(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Values with ${NAME:-default} replaced by the default: the host's variables stay outside."""
    values = {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in env.items()}
    for name, value in values.items():
        if re.search(r"\$\{\w+\}", value):
            raise UserError(
                f"a plain value for {name} in {folder / 'task.toml'}",
                value,
                "give it a default, as in ${NAME:-default}: tasks do not see the host's variables",
            )
    return values


def _network(table: EnvironmentTable) -> list[str]:
    if table.network_mode == "no-network":
        return []
    return [f"task.toml: network_mode {table.network_mode}: a local sandbox has no network"]
