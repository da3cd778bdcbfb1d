"""The agent program of the bench: asks the model, waits as for a build, and asks again.

Invariant: how long it waits follows from its task and its place in the group alone, so that it is
the same under every policy. Standard library only, and little of it: each execution starts it once.

Run in a workspace with plan.json as `python3 -I -S agent.py BASE_URL KEY`; BASE_URL ends with
/run/GROUP-MEMBER-RANDOM. Leaves what the model said in answer.txt.
"""
# ruff: noqa: PTH123 — pathlib alone would double the program's start

from __future__ import annotations

import json
import socket
import sys
from time import sleep  # noqa: TID251 — a program of its own, outside of the controller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLAN, ANSWER = "plan.json", "answer.txt"
RECEIVE_BYTES = 65536


def member_of(base_url: str) -> int:
    """The place in the group, from .../run/g00003-05-1f2e."""
    return int(base_url.rsplit("/", 1)[1].split("-")[1])


def ask(base_url: str, key: str, messages: list[dict[str, str]]) -> str:
    """One chat completion. Exits with the proxy's words when it fails."""
    address, _, path = base_url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    head = (
        f"POST /{path}/v1/chat/completions HTTP/1.1\r\nHost: {address}\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        status, content = split(receive(connection))
    if status != "200":
        sys.exit(f"the model call failed with {status}: {content[:300]}")
    said: dict[str, Any] = json.loads(content)
    return said["choices"][0]["message"]["content"] or ""


def receive(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    pieces = []
    while piece := connection.recv(RECEIVE_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def split(response: bytes) -> tuple[str, str]:
    """(status, body) of a response with a Content-Length."""
    head, _, body = response.partition(b"\r\n\r\n")
    return head.split(b" ", 2)[1].decode(), body.decode()


def main(base_url: str, key: str) -> None:
    """Ask, note the answer, wait; as often as the plan says."""
    with open(PLAN) as file:
        plan = json.load(file)
    messages = [{"role": "user", "content": plan["ask"]}]
    with open(ANSWER, "w") as answer:
        for wait in plan["waits"][member_of(base_url)]:
            said = ask(base_url, key, messages)
            answer.write(said)
            sleep(wait)
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": plan["tool_output"]},
            ]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
