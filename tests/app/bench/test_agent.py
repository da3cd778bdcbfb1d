import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

from opengyre.app.bench import agent


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with how many messages it saw."""

    asked: list[tuple[str, str | None, list[dict[str, str]]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body["messages"]))
        said = {"choices": [{"message": {"content": f"é{len(body['messages'])} "}}]}
        content = json.dumps(said, ensure_ascii=False).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_asks_as_often_as_its_place_in_the_plan_says_and_notes_the_answers(tmp_path: Path) -> None:
    plan = {"ask": "Go.", "tool_output": "done", "waits": [[], [0.0, 0.0, 0.0]]}
    (tmp_path / agent.PLAN).write_text(json.dumps(plan))
    Echo.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/run/g00003-01-beef"
        program = [sys.executable, "-I", "-S", agent.__file__, url, "key-1"]
        subprocess.run(program, cwd=tmp_path, check=True, timeout=20)
        server.shutdown()
    assert (tmp_path / agent.ANSWER).read_text() == "é1 é3 é5 "
    paths, keys, messages = zip(*Echo.asked, strict=True)
    assert set(paths) == {"/run/g00003-01-beef/v1/chat/completions"}
    assert set(keys) == {"Bearer key-1"}
    assert messages[1] == [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "é1 "},
        {"role": "user", "content": "done"},
    ]
