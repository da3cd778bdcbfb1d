import sys
from pathlib import Path

import pytest
from tests.proxy.tokenizers_for_tests import small_tokenizer

from opengyre.app.bench.crowd import measure_crowd
from opengyre.app.bench.door import ANSWER
from opengyre.app.bench.peer import measure_peer
from opengyre.app.bench.proxy import measure_proxy, with_peer
from opengyre.app.bench.proxy_show import (
    crowd_json,
    crowd_words,
    proxy_json,
    proxy_table,
    proxy_words,
)
from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError
from opengyre.proxy.families.qwen3 import Qwen3Family

ECHO = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if self.path == "/chat" and body.startswith(b"{") else 404)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    file = tmp_path / "tokenizer.json"
    small_tokenizer().save(str(file))
    return file


def test_a_call_encodes_as_much_after_a_long_history_as_after_a_short_one(
    tokenizer: Path, tmp_path: Path
) -> None:
    result, bodies = measure_proxy([2000, 8000], 2, tokenizer, tmp_path, lambda _words: None)
    short, long = result.lengths
    assert [one.nominal for one in result.lengths] == ["2k", "8k"]
    assert long.history_tokens > 3 * short.history_tokens
    assert long.encoded_tokens < 2 * short.encoded_tokens
    assert [len(calls) for calls in bodies] == [2, 2]
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    times = measure_peer(f"{sys.executable} {script} {{port}}", bodies, "/chat", WallClock())
    figures = proxy_json(with_peer(result, "echo", times))
    for key in ("cpu_ms_by_history", "speedup_over_reencoding", "peer_over_ours"):
        found = figures[key]
        assert isinstance(found, dict)
        assert list(found) == ["2k", "8k"]
    assert {"machine", "lengths", "tokenizer"} <= set(figures)
    shown = with_peer(result, "echo", times)
    assert len(proxy_table(shown).columns) == 14
    assert any("echo" in words for words in proxy_words(shown))


def test_a_peer_that_does_not_come_up_is_a_clear_error() -> None:
    with pytest.raises(UserError, match="ended at once"):
        measure_peer(f"{sys.executable} -c pass", [[b"{}"]], "/chat", WallClock())
    with pytest.raises(UserError, match="mend --peer"):
        measure_peer("no-such-program-anywhere", [[b"{}"]], "/chat", WallClock())


def test_all_of_a_crowd_complete_and_are_in_flight_at_once(tokenizer: Path, tmp_path: Path) -> None:
    result = measure_crowd(12, 2, 200, tokenizer, tmp_path, WallClock(), lambda _words: None)
    assert (result.completed, result.most_in_flight) == (12, 12)
    family = Qwen3Family(small_tokenizer())
    assert result.history_tokens > len(family.encode(ANSWER)) + 200
    assert "12 of 12" in crowd_words(result)[0]
    assert crowd_json(result)["executions"] == 12
