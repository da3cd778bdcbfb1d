"""The scripted engine keeps the engine's promises."""

import pytest

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.base import Engine
from opengyre.engine.embedded import EmbeddedEngine
from opengyre.engine.scripted import ScriptedEngine
from tests.engine.tiny import request


def script(request: GenerateRequest) -> list[int]:
    return [request.prompt_ids[0], 7, 8, 9]


def drain(engine: Engine) -> list[TokenChunk]:
    return [chunk for _ in range(20) for chunk in engine.step()]


def test_a_moved_call_goes_on_where_it_was(tmp_path):
    one, two = ScriptedEngine(script), ScriptedEngine(script)
    one.submit(request("a", [4, 5]))
    first = one.step() + one.step()
    assert one.export_kv("a", tmp_path / "kv")
    assert not one.busy
    assert two.submit(request("a", [4, 5, 4, 7], first_index=2), tmp_path / "kv")
    chunks = first + drain(two)
    assert [t for c in chunks for t in c.token_ids] == [4, 7, 8, 9]
    assert [c.finish for c in chunks] == [None, None, None, FinishReason.STOP]
    assert two.stats.imported == 1


def test_limits_cancels_and_versions(tmp_path):
    engine = ScriptedEngine(script)
    engine.submit(request("a", [4], new=2))
    engine.load_weights(3, [])
    assert [c.finish for c in drain(engine)] == [None, FinishReason.LENGTH]
    assert engine.version == 3
    engine.submit(request("a", [4]), tmp_path / "absent")
    assert engine.stats.recomputed == 1
    with pytest.raises(EngineError):
        engine.submit(request("a", [4]))
    cancelled = engine.cancel("a")
    assert cancelled is not None
    assert cancelled.finish is FinishReason.ABORT
    assert engine.cancel("a") is None
    assert not engine.export_kv("a", tmp_path / "kv")


def test_both_engines_are_engines():
    made: list[type[Engine]] = [ScriptedEngine, EmbeddedEngine]
    assert len(made) == 2
