"""Ctrl-C and go on, with a real run in a process of its own."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from opengyre.app.summary import ledger_of
from opengyre.store.rows import GroupState
from opengyre.store.run import RunStore

CONFIG = """
[run]
name = "resumed"
folder = "{folder}"
steps = 8
[policy]
model = "{policy}"
tool_style = "signature"
context_tokens = 768
max_new_tokens = 32
[tasks]
train = "bundled:repair"
heldout = "bundled:repair"
train_count = 8
heldout_count = 2
[harness]
name = "claude-code"
args = ["--bare", "--tools", "Bash", "--system-prompt", "Work in this folder."]
timeout_s = 60
overall_timeout_s = 120
[cells]
kv_tokens = 8192
capacity = 2
[schedule]
group_size = 2
groups_per_step = 1
steps_per_burst = 1
staleness_steps = 1
[eval]
before = false
after = false
"""


def opengyre(*args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "opengyre.app.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_was_stopped_goes_on_and_runs_no_member_twice(
    policy: Path, tmp_path: Path
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(folder=tmp_path, policy=policy))
    tomllib.loads(config.read_text())
    with opengyre("train", str(config)) as first:
        assert first.stdout is not None
        for line in first.stdout:
            if "step   1" in line:
                os.kill(first.pid, signal.SIGINT)
                break
        words = first.stdout.read()
    assert first.returncode == 130, words
    assert "--resume" in words
    with opengyre("train", str(config)) as refused:
        told, _ = refused.communicate()
    assert refused.returncode == 2
    assert "one is there" in told
    with opengyre("train", str(config), "--resume") as second:
        said, _ = second.communicate()
    assert second.returncode == 0, said
    with RunStore(tmp_path / "resumed" / "run.sqlite") as store:
        assert [row.step for row in store.steps()] == list(range(1, 9))
        final = [r.member for r in store.executions() if r.final]
        assert len(final) == len(set(final))
        groups = [g.group_id for row in store.steps() for g in store.groups() if g.step == row.step]
        assert len(groups) == len(set(groups)) == 8
        consumed = {g.group_id for g in store.groups() if g.state is GroupState.CONSUMED}
        assert consumed == set(groups)
        assert ledger_of(store)["balanced"] is True
