"""docs/configuration.md lists every table, key and default of the configuration, and nothing else."""

import json
import re
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from tests.config.strategies import keys, sections

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
TABLE = re.compile(r"^## `\[(\w+)\]`$", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", re.MULTILINE)


def described() -> dict[str, dict[str, tuple[str, str]]]:
    """(default, meaning) by table and key."""
    parts = TABLE.split(PAGE.read_text())[1:]
    return {
        table: {key: (default, meaning) for key, default, meaning in ROW.findall(text)}
        for table, text in zip(parts[::2], parts[1::2], strict=True)
    }


def shown(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None:
        return "absent"
    return f"`{json.dumps(default if isinstance(default, int | float | list | dict) else str(default))}`"


def test_every_table_and_key_is_described_in_the_order_of_the_code() -> None:
    assert [(table, key) for table, rows in described().items() for key in rows] == keys()


@pytest.mark.parametrize("table", sorted(sections()))
def test_defaults_are_those_of_the_code(table: str) -> None:
    told = {key: default for key, (default, _) in described()[table].items()}
    assert told == {key: shown(field) for key, field in sections()[table].model_fields.items()}
