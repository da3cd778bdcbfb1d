import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.recording.world import FAMILY, LINES, ROWS, speaking
from tests.proxy.tokenizers_for_tests import small_tokenizer

from opengyre.engine.upstream.fakes import FakeSGLang


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    small_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": ROWS}))
    return folder


@pytest.fixture
async def server(model: Path) -> AsyncIterator[FakeSGLang]:
    made = FakeSGLang(
        rows=ROWS, script=speaking(LINES), model=str(model), encode=lambda t: list(FAMILY.encode(t))
    )
    await made.start()
    yield made
    await made.stop()
