"""Scores a workspace by fail-to-pass times pass-to-pass; copied into each bundled task as tests/check.py.

Invariant: the agent's code never runs in the process that knows the answers. It runs in a child
that was forked before the answers were read and that may open no file and start no process, so it
can neither look at /tests nor write a reward; it sends values back and the parent compares them.

Run in the workspace as `python3 -I -S -B check.py LOGS`, standard library only. Kinds of test in
expected.json, all with "id", "kind" and "path" (a regular file of the workspace):
function (name, calls = [[arguments, value], …]), settings (values = {key: text}), keys (keys =
sorted list: no others), file (text; gone = a path that must not exist, or "").
"""
# pathlib would be a fifth of the time of a run.
# ruff: noqa: PTH100, PTH105, PTH118, PTH120, PTH123

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import sys

TYPE_CHECKING = False
"""The module typing would be a fifth of the time of a run."""
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

FILE_BYTES = 65536
"""A bundled file has some hundred bytes; anything near this is not an answer."""
ANSWER_BYTES = 65536
"""Likewise for what the agent's code sends back."""
CODE_SECONDS = 5
"""For the agent's code: it adds two numbers."""
CODE_MEMORY = 256 * 1024 * 1024
"""Room for what it adds, not for breaking the machine."""
CANARY = ("def canary(a, b):\n    return a + b\n", [["canary", [2, 3]]], [5])
"""Code of ours, its calls and their values: if this fails, the fault is not the agent's."""


class CodeRunner:
    """A child that waits for one program, runs it and answers with the values of its calls."""

    def __init__(self) -> None:
        take, self._give = os.pipe()
        self._take, give = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._give)
            os.close(self._take)
            run_agent_code(take, give)
        os.close(take)
        os.close(give)

    def values(self, source: str, calls: list[Any]) -> list[Any]:
        """Values of calls ([name, arguments]); None for what failed, all None if the child died."""
        signal.signal(signal.SIGALRM, out_of_time)
        signal.alarm(CODE_SECONDS)
        try:
            write_all(self._give, json.dumps([source, calls]).encode())
            os.close(self._give)
            answer = json.loads(read_all(self._take, ANSWER_BYTES))
        except (OSError, ValueError, RecursionError):
            answer = None
        signal.alarm(0)
        self.close()
        good = isinstance(answer, list) and len(answer) == len(calls)
        return answer if good else [None] * len(calls)

    def close(self) -> None:
        """Kill the child and wait for it."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)


def out_of_time(_number: int, _frame: FrameType | None) -> None:
    """Ends the wait for an answer."""
    raise TimeoutError


def run_agent_code(take: int, give: int) -> None:
    """The child's whole life."""
    source, calls = json.loads(read_all(take, 2 * FILE_BYTES))
    os.dup2(give, 1)
    os.closerange(2, 256)
    resource.setrlimit(resource.RLIMIT_CPU, (CODE_SECONDS, CODE_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (CODE_MEMORY, CODE_MEMORY))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    sys.stdout = sys.stderr = None
    names: dict[str, Any] = {"__name__": "agent"}
    answer = []
    try:
        exec(compile(source, "agent", "exec"), names)  # noqa: S102 — what this process is for
        answer = [one_value(names, name, arguments) for name, arguments in calls]
        os.write(1, json.dumps(answer).encode())
    finally:
        os._exit(0)


def one_value(names: dict[str, Any], name: str, arguments: list[Any]) -> int | None:
    """The call's value if it is an int."""
    try:
        value = names[name](*arguments)
    except Exception:  # noqa: BLE001 — the agent's code may raise anything
        return None
    return value if type(value) is int else None


def write_all(descriptor: int, content: bytes) -> None:
    """All of content."""
    while content:
        content = content[os.write(descriptor, content) :]


def read_all(descriptor: int, limit: int) -> bytes:
    """To the end or the limit."""
    content = b""
    while len(content) <= limit and (more := os.read(descriptor, 65536)):
        content += more
    return content


def text_of(path: str) -> str | None:
    """Text of a small regular file, links not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > FILE_BYTES:
            return None
        return read_all(descriptor, FILE_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def settings_of(path: str) -> dict[str, Any]:
    """Key -> value of `key = value` or `key: value` lines; any other line, or a key that comes
    twice, is kept under its own text, so that it counts as a key too many."""
    found: dict[str, Any] = {}
    for line in (text_of(path) or "").splitlines():
        if not line.strip() or line[0] in "#;":
            continue
        cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
        key = line[:cut].strip() if cut >= 0 else line
        found[line if key in found else key] = line[cut + 1 :].strip() if cut >= 0 else None
    return found


def passes(test: dict[str, Any]) -> bool:
    """Whether the workspace passes one test that runs no code."""
    path = test["path"]
    match test["kind"]:
        case "file":
            gone = not test["gone"] or not os.path.lexists(test["gone"])
            return gone and text_of(path) == test["text"]
        case "settings":
            found = settings_of(path)
            return all(found.get(key) == value for key, value in test["values"].items())
        case "keys":
            return set(settings_of(path)) == set(test["keys"])
        case other:
            raise ValueError(other)


def code_results(tests: list[Any], runner: CodeRunner) -> dict[str, Any]:
    """Test id -> passed, for all function tests; they share one file and one run of it."""
    calls = [[t["name"], arguments] for t in tests for arguments, _ in t["calls"]]
    source = text_of(tests[0]["path"])
    values = iter([None] * len(calls) if source is None else runner.values(source, calls))
    return {
        t["id"]: [next(values) for _ in t["calls"]] == [v for _, v in t["calls"]] for t in tests
    }


def share(tests: list[Any], passed: dict[str, Any]) -> float:
    """Passed over declared."""
    return sum(bool(passed[test["id"]]) for test in tests) / len(tests)


def write(folder: str, name: str, content: dict[str, Any]) -> None:
    """In one step, over whatever may lie there."""
    path = os.path.join(folder, name)
    with open(path + ".new", "x") as file:
        json.dump(content, file)
    os.replace(path + ".new", path)


def main(logs: str) -> None:
    """Canary first, then the workspace."""
    source, calls, values = CANARY
    write(logs, "canary.json", {"ok": CodeRunner().values(source, calls) == values})
    runner = CodeRunner()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected.json")) as file:
        expected = json.load(file)
    tests = expected["f2p"] + expected["p2p"]
    code = [test for test in tests if test["kind"] == "function"]
    passed = {t["id"]: passes(t) for t in tests if t["kind"] != "function"}
    if code:
        passed |= code_results(code, runner)
    else:
        runner.close()
    f2p, p2p = share(expected["f2p"], passed), share(expected["p2p"], passed)
    write(logs, "reward.json", {"reward": f2p * p2p, "f2p": f2p, "p2p": p2p})


if __name__ == "__main__":
    main(sys.argv[1])
