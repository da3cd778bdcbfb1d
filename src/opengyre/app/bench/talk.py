"""Conversations for the proxy bench: a harness's bodies, grown turn by turn, and who sends them.

Invariant: a body holds every turn before it in the same bytes, as agent programs send them; answers
are echoed as they came.
"""

import http.client
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from opengyre.app.bench.door import KEY, DoorSettings, DoorStats
from opengyre.core.errors import UserError

SYSTEM = "You are a coding agent. Work in the current folder and use the tools that you have."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} in the sandbox; output is cut at 30,000 characters.",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "What to run."},
                    "timeout": {"type": "integer", "description": "Seconds."},
                },
                "required": ["command"],
            },
        },
    }
    for name in ("Bash", "Python")
]
START_S = 60
"""Seconds that a server gets to come up."""


def corpus(at_least: int) -> str:
    """So many characters of the standard library's own source: what agents read all day."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    pieces, size = [], 0
    while size < at_least:
        for file in files:
            pieces.append(file.read_text(errors="replace"))
            size += len(pieces[-1])
            if size >= at_least:
                break
    return "".join(pieces)[:at_least]


class Talk:
    """One conversation, kept as the bytes of its body."""

    def __init__(self, name: str) -> None:
        system = {"role": "system", "content": SYSTEM}
        user = {"role": "user", "content": f"Task {name}: find out why the tests fail and mend it."}
        self._messages = b",".join(json.dumps(one).encode() for one in (system, user))
        self._tools = json.dumps(TOOLS).encode()

    def body(self) -> bytes:
        """The next request."""
        return b'{"model":"policy","messages":[%b],"tools":%b,"max_tokens":1024}' % (
            self._messages,
            self._tools,
        )

    def say(self, text: str) -> None:
        """Something more from the user."""
        self._messages += b"," + json.dumps({"role": "user", "content": text}).encode()

    def add(self, reply: bytes, result: str) -> None:
        """The answer, echoed, and what its tool said."""
        message: dict[str, Any] = json.loads(reply)["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        told = {"role": "tool", "content": result, "tool_call_id": calls[0]["id"] if calls else ""}
        self._messages += b"," + json.dumps(message).encode() + b"," + json.dumps(told).encode()


class Caller:
    """A client with one connection."""

    def __init__(self, port: int, path: str) -> None:
        self._path = path
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def call(self, body: bytes) -> bytes:
        """The answer's body. Raises UserError unless it is a 200."""
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        self._connection.request("POST", self._path, body, headers)
        return _read(self._connection)

    def get(self, path: str) -> bytes:
        """Of another path."""
        self._connection.request("GET", path)
        return _read(self._connection)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def _read(connection: http.client.HTTPConnection) -> bytes:
    response = connection.getresponse()
    content = response.read()
    if response.status != http.HTTPStatus.OK:
        found = content[:300].decode(errors="replace")
        raise UserError("an answer to the bench's call", found, "mend the server that is measured")
    return content


class DoorProcess:
    """The proxy's process, running."""

    def __init__(self, settings: DoorSettings) -> None:
        text = msgspec.json.encode(settings).decode()
        command = [sys.executable, "-m", "opengyre.app.bench.door", text]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline() or 0)
        if not self.port:
            raise UserError("a proxy to measure", "it ended at once", "read its error above")

    def __enter__(self) -> "DoorProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def caller(self, execution: int = 0) -> Caller:
        """A client of one execution."""
        return Caller(self.port, f"/run/e{execution}/v1/chat/completions")

    def cpu_s(self) -> float:
        """What it has used so far."""
        return tree_cpu_s(self._process.pid)

    def resident_bytes(self) -> int:
        """What it occupies."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stats(self) -> DoorStats:
        """Since the last time."""
        caller = self.caller()
        try:
            return msgspec.json.decode(caller.get("/stats"), type=DoorStats)
        finally:
            caller.close()


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all below it, to the nanosecond."""
    return sum(_own_cpu_s(one) for one in _tree(pid))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _own_cpu_s(pid: int) -> float:
    total = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[0])
        except OSError:
            continue  # the thread has just ended
    return total / 1e9
