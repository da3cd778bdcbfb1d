"""Read a TOML file into a RunConfig; every fault names the key and the nearest valid choice."""

import difflib
import tomllib
from pathlib import Path

from pydantic import BaseModel, ValidationError

from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError


def load_config(path: Path) -> RunConfig:
    """Raises UserError, which names all faults of the file."""
    wanted = f"a configuration at {path}"
    try:
        raw = tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise UserError(wanted, "no such file", "pass the path of a TOML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(wanted, f"an unreadable file ({error})", "check its permissions") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(wanted, f"a TOML fault: {error}", "mend that line") from error
    return parse_config(raw, wanted)


def parse_config(raw: dict[str, object], wanted: str = "a configuration") -> RunConfig:
    """Validate a parsed TOML document. Raises UserError."""
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        faults = "; ".join(_fault(dict(e)) for e in error.errors())
        raise UserError(wanted, faults, "mend these keys") from error


def _fault(error: dict[str, object]) -> str:
    where = error["loc"]
    assert isinstance(where, tuple)
    key = ".".join(str(part) for part in where)
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key}{_nearest(str(where[-1]), _keys_at(where[:-1]))}"
        case "missing":
            return f"no {key}, which is required"
        case "literal_error":
            context = error.get("ctx")
            assert isinstance(context, dict)
            choices = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
            return f"{key} = {error['input']!r}{_nearest(str(error['input']), choices)}"
        case "value_error":
            return str(error["msg"]).removeprefix("Value error, ")
        case _:
            return f"{key} = {error['input']!r}: {error['msg']}"


def _keys_at(where: tuple[object, ...]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for part in where:
        kind = model.model_fields[str(part)].annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return []
        model = kind
    return list(model.model_fields)


def _nearest(found: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(found, choices, n=1, cutoff=0.4)
    listed = f" (choices: {', '.join(choices)})" if choices else ""
    return f" — did you mean {close[0]}?{listed}" if close else listed
