"""A configuration is good, or every fault of it is named together with the way out."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import get_args, get_origin

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opengyre.config.load import load_config, parse_config
from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from tests.config.strategies import LETTERS, good, keys, sections, typos

QUICKSTART = Path(str(files("opengyre.app.quickstart").joinpath("quickstart.toml")))


def refused(raw: dict[str, object]) -> str:
    with pytest.raises(UserError) as caught:
        parse_config(raw)
    return caught.value.found


def with_value(table: str, key: str, value: object) -> dict[str, object]:
    raw = good()
    raw.setdefault(table, {})[key] = value
    return raw


# ---- values of another type ---------------------------------------------------------------------

WRONG: dict[type, list[object]] = {
    bool: ["yes", "true", 1, 0.0, []],
    int: ["3", 3.0, True, [3]],
    float: ["1.5", True, [1.5]],
    str: [3, True, ["x"]],
    Path: [3, True, ["x"]],
}
"""What people write where that type is wanted; pydantic would make something of most of it."""


@pytest.mark.parametrize(("table", "key"), keys())
def test_a_value_of_another_type_is_refused_whatever_could_be_made_of_it(
    table: str, key: str
) -> None:
    kinds = kinds_of(table, key)
    plain = next((kind for kind in WRONG if kind in kinds[:2]), None)
    for value in [object()] if plain is None else WRONG[plain]:
        assert f"{table}.{key}" in refused(with_value(table, key, value)), value


def kinds_of(table: str, key: str) -> list[object]:
    """Its type, and what that is made of."""
    annotation = sections()[table].model_fields[key].annotation
    inner = [] if get_origin(annotation) in {list, dict} else get_args(annotation)
    return [annotation, *inner]


# ---- unknown keys -------------------------------------------------------------------------------


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_a_mistyped_key_is_refused_with_the_nearest_valid_one(data: st.DataObject) -> None:
    table, key = data.draw(st.sampled_from(keys()))
    typo = data.draw(typos(key))
    valid = list(sections()[table].model_fields)
    assume(typo not in valid)
    found = refused(with_value(table, typo, 1))
    assert f"unknown key {table}.{typo}" in found
    told = found.split("did you mean ")[1].split("?")[0]
    assert told in valid
    if len(key) > 4:  # short words may be as near to another key
        assert told == key
    assert f"(choices: {', '.join(valid)})" in found


@given(st.data())
@settings(deadline=None)
def test_a_mistyped_table_is_refused_with_the_nearest_valid_one(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(sections())))
    typo = data.draw(typos(table))
    assume(typo not in sections())
    found = refused(good() | {typo: {}})
    assert f"unknown key {typo}" in found
    assert "did you mean" in found


@given(st.data())
@settings(deadline=None)
def test_any_unknown_key_is_refused_and_the_choices_listed(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(sections())))
    key = data.draw(st.text(LETTERS, min_size=1, max_size=20))
    assume(key not in sections()[table].model_fields)
    found = refused(with_value(table, key, 1))
    assert f"unknown key {table}.{key}" in found
    assert all(choice in found for choice in sections()[table].model_fields)


def test_all_faults_are_told_at_once() -> None:
    raw = good() | {"run": {"stepps": 3}, "eval": {"samples": 0}}
    raw["policy"] = {"modell": "quickstart"}
    found = refused(raw)
    for part in ("run.stepps", "eval.samples", "policy.modell", "no policy.model"):
        assert part in found


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "key", "value", "nearest"),
    [
        ("schedule", "policy", "elastik", "elastic"),
        ("schedule", "policy", "colocated", "colocate"),
        ("harness", "name", "claude", "claude-code"),
        ("harness", "name", "mini_swe_agent", "mini-swe-agent"),
        ("sandbox", "kind", "bwrap", "bubblewrap"),
        ("policy", "family", "qwen-3", "qwen3"),
        ("policy", "tool_style", "signatures", "signature"),
    ],
)
def test_a_wrong_choice_is_refused_with_the_nearest_one(
    table: str, key: str, value: str, nearest: str
) -> None:
    found = refused(with_value(table, key, value))
    assert f"{table}.{key} = {value!r}" in found
    assert f"did you mean {nearest}?" in found


@given(st.sampled_from(keys()))
@settings(deadline=None)
def test_no_key_takes_a_table_where_it_wants_a_value(place: tuple[str, str]) -> None:
    table, key = place
    assume(place != ("harness", "env"))
    assert f"{table}.{key}" in refused(with_value(table, key, {"a": {"b": 1}}))


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("run", "steps", 0),
        ("run", "seed", -1),
        ("run", "name", "../elsewhere"),
        ("run", "name", ""),
        ("policy", "temperature", 0.0),
        ("policy", "temperature", float("nan")),
        ("harness", "timeout_s", float("inf")),
        ("learner", "learning_rate", float("inf")),
        ("cells", "count", 1),
        ("cells", "capacity", 2.5),
        ("schedule", "group_size", 1),
        ("schedule", "staleness_steps", -1),
        ("learner", "learning_rate", -1e-6),
        ("learner", "final_learning_rate_share", 1.1),
        ("harness", "timeout_s", 0),
        ("harness", "args", "--bare"),
        ("proxy", "port", 65536),
        ("eval", "greedy", "perhaps"),
    ],
)
def test_an_impossible_value_is_refused_by_its_key(table: str, key: str, value: object) -> None:
    assert f"{table}.{key} = {value!r}" in refused(with_value(table, key, value))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"policy": {"context_tokens": 512, "max_new_tokens": 512}}, "policy.max_new_tokens"),
        ({"cells": {"kv_tokens": 1024}}, "cells.kv_tokens"),
        ({"schedule": {"policy": "async"}, "cells": {"training_cells": 2}}, "cells.training_cells"),
        ({"harness": {"name": "command"}}, "harness.command"),
        ({"harness": {"timeout_s": 10, "overall_timeout_s": 5}}, "harness.overall_timeout_s"),
        ({"run": {"steps": 2}, "schedule": {"steps_per_burst": 3}}, "schedule.steps_per_burst"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(
    changes: dict[str, dict[str, object]], named: str
) -> None:
    raw = good()
    for table, values in changes.items():
        raw[table] = raw.get(table, {}) | values
    assert named in refused(raw)


# ---- files --------------------------------------------------------------------------------------


def test_the_quickstart_loads() -> None:
    config = load_config(QUICKSTART)
    raw = tomllib.loads(QUICKSTART.read_text())
    assert config.run.name == raw["run"]["name"]
    assert config.harness.args == raw["harness"]["args"]


@given(st.sampled_from(keys()))
@settings(deadline=None)
def test_stating_a_default_changes_nothing(place: tuple[str, str]) -> None:
    plain = parse_config(good())
    table, key = place
    value = plain.model_dump(mode="json")[table][key]
    assert parse_config(with_value(table, key, value)) == plain


def test_a_configuration_cannot_be_changed_afterwards() -> None:
    config: RunConfig = parse_config(good())
    with pytest.raises(ValueError, match="frozen"):
        config.run.steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"[run\nsteps = 3\n", "a TOML fault"),
        (b"[run]\nsteps = 3\nsteps = 4\n", "a TOML fault"),
        (b"\xff\xfe", "an unreadable file"),
        (b"", "no policy, which is required"),
    ],
)
def test_a_broken_file_is_one_clear_message(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert found in caught.value.found
    assert str(path) in caught.value.wanted


def test_a_missing_file_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(UserError, match="an unreadable file"):
        load_config(tmp_path)


# ---- the room -----------------------------------------------------------------------------------


def test_the_room_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "numpy", "aiohttp", "starlette", "uvicorn", "rich", "typer"}
    program = (
        "import sys; import opengyre.config.load; "
        f"print(*sorted({heavy!r} & set(sys.modules)), sep=',')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
