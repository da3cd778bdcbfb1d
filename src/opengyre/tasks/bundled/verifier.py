"""Scores a workspace by fail-to-pass times pass-to-pass; copied into each bundled task as tests/check.py.

Invariant: the agent's code never runs in the process that knows the answers. It runs in a child
that was forked before the answers were read and that may open no file, so it can neither look at
/tests nor write a reward; it sends values back and the parent compares them.

Run in the workspace as `python3 -I -S -B check.py LOGS`, standard library only. Kinds of test in
expected.json, all with "id", "kind" and "path" (a regular file of the workspace):
function (name, calls = [[arguments, value], …], all integers), settings (values = {key: text}),
keys (keys: these and no others), file (text; gone = a path that must not exist, or "").

It runs thousands of times: what it imports is there once Python runs. The modules json, signal and
pathlib alone would triple its time.
"""
# ruff: noqa: PTH100, PTH105, PTH118, PTH120, PTH123

from __future__ import annotations

import os
import resource
import select
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE_BYTES = 32768
"""A bundled file has some hundred bytes; anything near this is not an answer. Fits a pipe."""
CODE_SECONDS = 5
"""For the agent's code: it adds two numbers."""
CODE_MEMORY = 256 * 1024 * 1024
"""Room for what it adds, not for breaking the machine."""
CANARY = ("def canary(a, b):\n    return a + b\n", [("canary", [2, 3])], ["5"])
"""Code of ours, its calls and their values: if this fails, the fault is not the agent's."""
KILL = 9


class CodeRunner:
    """A child that runs the canary, then waits for one program and answers with its values."""

    def __init__(self) -> None:
        take, self._give = os.pipe()
        self._take, give = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._give)
            os.close(self._take)
            live_in_child(take, give)
        os.close(take)
        os.close(give)

    def values(self) -> list[str]:
        """What the next run gave, as texts; nothing if it died, broke or took too long."""
        ready, _, _ = select.select([self._take], [], [], CODE_SECONDS)
        answer = os.read(self._take, FILE_BYTES) if ready else b""
        return answer.decode(errors="replace").split(" ")

    def ask(self, source: str, calls: list[Any]) -> list[str]:
        """Values of calls ((name, arguments)) of a program."""
        lines = [f"{name} {' '.join(map(str, arguments))}" for name, arguments in calls]
        try:
            os.write(self._give, f"{';'.join(lines)}\n{source}".encode())
            os.close(self._give)
        except BrokenPipeError:
            return []
        return self.values()

    def close(self) -> None:
        """Kill the child and wait for it."""
        os.kill(self._child, KILL)
        os.waitpid(self._child, 0)


def live_in_child(take: int, give: int) -> None:
    """The child's whole life. The answer goes out in one piece, so that one read gets all of it."""
    os.closerange(0, 3)
    for limit, most in (
        (resource.RLIMIT_CPU, CODE_SECONDS),
        (resource.RLIMIT_AS, CODE_MEMORY),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    sys.stdin = sys.stdout = sys.stderr = None
    try:
        source, calls, _ = CANARY
        os.write(give, run(source, calls))
        head, _, source = read_all(take).decode(errors="replace").partition("\n")
        calls = [
            (name, [int(a) for a in rest])
            for name, *rest in (c.split(" ") for c in head.split(";"))
        ]
        os.write(give, run(source, calls))
    finally:
        os._exit(0)


def run(source: str, calls: list[tuple[str, list[int]]]) -> bytes:
    """The program's values; "-" for what failed or is no integer."""
    names: dict[str, Any] = {"__name__": "agent"}
    exec(compile(source, "agent", "exec"), names)  # noqa: S102 — what this process is for
    return " ".join(one_value(names, name, arguments) for name, arguments in calls).encode()


def one_value(names: dict[str, Any], name: str, arguments: list[int]) -> str:
    """The call's value as text."""
    try:
        value = names[name](*arguments)
    except Exception:  # noqa: BLE001 — the agent's code may raise anything
        return "-"
    return str(value) if type(value) is int else "-"


def read_all(descriptor: int) -> bytes:
    """To the end or to one byte past the limit."""
    content = b""
    while len(content) <= 2 * FILE_BYTES and (more := os.read(descriptor, 65536)):
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
        return read_all(descriptor).decode(errors="replace")
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
    calls = [(t["name"], arguments) for t in tests for arguments, _ in t["calls"]]
    source = text_of(tests[0]["path"])
    found = [] if source is None else runner.ask(source, calls)
    values = iter(found if len(found) == len(calls) else ["-"] * len(calls))
    return {
        t["id"]: [next(values) for _ in t["calls"]] == [str(v) for _, v in t["calls"]]
        for t in tests
    }


def share(tests: list[Any], passed: dict[str, Any]) -> float:
    """Passed over declared."""
    return sum(bool(passed[test["id"]]) for test in tests) / len(tests)


def write(folder: str, name: str, content: str) -> None:
    """In one step, over whatever may lie there."""
    path = os.path.join(folder, name)
    with open(path + ".new", "x") as file:
        file.write(content)
    os.replace(path + ".new", path)


def expectations() -> dict[str, Any]:
    """expected.json, which holds only what JSON and Python write alike."""
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "expected.json")) as file:
        found = eval(file.read(), {"__builtins__": {}})  # noqa: S307 — our own file
    assert isinstance(found, dict)
    return found


def main(logs: str) -> None:
    """Canary first, then the workspace."""
    runner = CodeRunner()
    sound = runner.values() == CANARY[2]
    write(logs, "canary.json", '{"ok": %s}' % ("true" if sound else "false"))
    expected = expectations()
    tests = expected["f2p"] + expected["p2p"]
    passed = {t["id"]: passes(t) for t in tests if t["kind"] != "function"}
    code = [test for test in tests if test["kind"] == "function"]
    passed |= code_results(code, runner) if code else {}
    runner.close()
    f2p, p2p = share(expected["f2p"], passed), share(expected["p2p"], passed)
    write(logs, "reward.json", f'{{"reward": {f2p * p2p}, "f2p": {f2p}, "p2p": {p2p}}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
