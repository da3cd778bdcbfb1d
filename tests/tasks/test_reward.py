"""Whatever an evaluator writes, a usable reward comes out, or an error; never a made-up zero."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opengyre.core.errors import EvaluatorError
from opengyre.tasks.reward import read_reward

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.dictionaries(st.sampled_from(["reward", "f2p", "x"]), values, max_size=3) | values)
def test_any_json_is_a_reward_in_range_or_an_error(tmp_path: Path, found: object) -> None:
    logs = tmp_path
    (logs / "reward.json").write_text(json.dumps(found))
    try:
        reward = read_reward(logs, 0, 1)
    except EvaluatorError:
        return
    assert reward is not None
    assert 0 <= reward.value <= 1
    assert all(map(math.isfinite, reward.parts.values()))
    assert isinstance(found, dict)
    assert reward.value in {float(value) for value in found.values()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "[1]",
        "{}",
        '{"reward": NaN}',
        '{"reward": Infinity}',
        '{"reward": -1}',
        '{"reward": 1.01}',
        '{"reward": true}',
        '{"reward": "1"}',
        '{"reward": {"reward": 1}}',
        '{"reward": 1, "part": [1]}',
        '{"f2p": 1, "p2p": 1}',
        "[" * 100_000,
        '{"reward": 1' + "0" * 400 + "}",
    ],
)
def test_unusable_json_is_an_error_even_beside_a_good_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "reward.json").write_text(text)
    (tmp_path / "reward.txt").write_text("1")
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, 0, 1)


@pytest.mark.parametrize("text", ["", "one", "nan", "-1", "2", "0.5 0.5"])
def test_unusable_text_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "reward.txt").write_text(text)
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, 0, 1)


def test_minus_one_is_a_crash_even_inside_the_range(tmp_path: Path) -> None:
    (tmp_path / "reward.txt").write_text("-1")
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, -5, 5)


def test_json_beats_text_and_a_single_key_may_have_any_name(tmp_path: Path) -> None:
    assert read_reward(tmp_path, 0, 1) is None
    (tmp_path / "reward.txt").write_text(" 0.25\n")
    found = read_reward(tmp_path, 0, 1)
    assert found is not None
    assert found.value == 0.25
    (tmp_path / "reward.json").write_text('{"score": 0.75}')
    found = read_reward(tmp_path, 0, 1)
    assert found is not None
    assert (found.value, found.parts) == (0.75, {})


def test_links_pipes_and_folders_are_no_rewards(tmp_path: Path) -> None:
    (tmp_path / "good").write_text('{"reward": 1}')
    file = tmp_path / "reward.json"
    file.symlink_to("good")
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, 0, 1)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, 0, 1)
    file.unlink()
    file.mkdir()
    with pytest.raises(EvaluatorError):
        read_reward(tmp_path, 0, 1)
