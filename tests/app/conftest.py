from pathlib import Path

import pytest
from tests.app.policies import small_policy


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_policy(tmp_path_factory.mktemp("policy"))
