"""task.toml as records: Harbor's schema 0.1 to 1.4, deprecated keys turned into today's.

Invariant: a key that we read has its type checked; a key that we do not know is reported, not
refused, because folders in the wild carry keys of other tools.
"""

import difflib
import math
import re
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from opengyre.core.errors import UserError

VERSIONS = ("0.1", "1.0", "1.1", "1.2", "1.3", "1.4")
SIZE_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """A table; unknown keys are kept aside."""

    model_config = ConfigDict(extra="allow", frozen=True)


class AgentTable(Section):
    """[agent]"""

    timeout_sec: Seconds | None = None


class VerifierTable(Section):
    """[verifier]"""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}


class SolutionTable(Section):
    """[solution]"""

    env: dict[str, str] = {}


class EnvironmentTable(Section):
    """[environment]"""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    workdir: str | None = None
    network_mode: str = "public"
    memory_mb: int | None = None
    storage_mb: int | None = None
    env: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _deprecated(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        table = dict(data)
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if old in table:
                table.setdefault(new, megabytes(table.pop(old)))
        if "allow_internet" in table:
            allowed = table.pop("allow_internet")
            table.setdefault("network_mode", "public" if allowed else "no-network")
        return table


class MetadataTable(Section):
    """[metadata]: free, but for what we read of it."""

    difficulty: str = ""
    family: str = ""
    category: str = ""
    reward_range: tuple[float, float] = (0.0, 1.0)

    @field_validator("reward_range")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not (all(map(math.isfinite, value)) and value[0] < value[1]):
            raise ValueError("must be [low, high] with low < high")
        return value


class TaskDocument(Section):
    """The whole file."""

    schema_version: str = VERSIONS[-1]
    metadata: MetadataTable = MetadataTable()
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    steps: list[object] = []

    @model_validator(mode="before")
    @classmethod
    def _alias(cls, data: dict[str, object]) -> dict[str, object]:
        document = dict(data)
        if "version" in document:
            document.setdefault("schema_version", document.pop("version"))
        if "schema_version" in document:
            document["schema_version"] = str(document["schema_version"])
        return document


KNOWN = {
    "": {"artifacts", "multi_step_reward_strategy", "source", "task"},
    "agent": {"allowed_hosts", "network_mode", "user"},
    "verifier": {"allowed_hosts", "collect", "environment_mode", "network_mode", "user"},
    "environment": {
        *("allowed_hosts", "cpus", "gpu_types", "gpus", "healthcheck", "mcp_servers", "os"),
        *("skills_dir", "tpu", "user"),
    },
    "solution": set(),
}
"""Keys of Harbor that say nothing to a local sandbox; any other is worth a word."""


def megabytes(size: object) -> int:
    """Of "2G", "512M", "1024K". Raises ValueError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])B?\s*", str(size).upper())
    if found is None:
        raise ValueError(f'{size!r} is no size such as "2G" or "512M"')
    return int(float(found[1]) * SIZE_MB[found[2]])


def read_document(file: Path) -> TaskDocument:
    """Raises UserError, which names all faults of the file."""
    wanted = f"a task's settings at {file}"
    try:
        document = TaskDocument.model_validate(tomllib.loads(file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(wanted, f"an unreadable file ({error})", "check the file") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(wanted, f"a TOML fault: {error}", "mend that line") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UserError(wanted, faults, "mend these keys") from error
    if document.schema_version not in VERSIONS:
        raise UserError(
            f"{wanted} with schema_version {', '.join(VERSIONS)}",
            f"schema_version {document.schema_version!r}",
            "write it for one of these versions, or update OpenGyre",
        )
    return document


def unknown_keys(document: TaskDocument) -> list[str]:
    """A note for each key that neither we nor Harbor know."""
    tables: dict[str, BaseModel] = {
        "": document,
        "agent": document.agent,
        "verifier": document.verifier,
        "environment": document.environment,
        "solution": document.solution,
    }
    notes = []
    for name, table in tables.items():
        ours = set(type(table).model_fields)
        for key in sorted(set(table.model_extra or {}) - KNOWN[name]):
            near = difflib.get_close_matches(key, sorted(ours | KNOWN[name]), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notes.append(f"task.toml: unknown key {name and name + '.'}{key} ignored{hint}")
    return notes
