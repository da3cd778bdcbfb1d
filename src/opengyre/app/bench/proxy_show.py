"""The proxy bench's tables, words and JSON."""

import msgspec
from rich.table import Table

from opengyre.app.bench.crowd import CrowdResult
from opengyre.app.bench.proxy import ProxyResult
from opengyre.app.machine import machine

MIB = 1 << 20


def proxy_table(result: ProxyResult) -> Table:
    """One line a length."""
    table = Table(
        title="Proxy CPU per call as a conversation grows", box=None, padding=(0, 2, 0, 0)
    )
    table.add_column("history", no_wrap=True)
    headings = ["tokens", "body", "CPU ms", "encoded", "again ms", "×", "find", "read", "plan"]
    headings += ["keep", "memory"]
    for heading in [*headings, "peer ms", "peer ×"] if result.peer else headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in result.lengths:
        cells = [
            one.nominal,
            f"{one.history_tokens:,}",
            f"{one.body_bytes / MIB:.2f} MiB",
            f"{one.cpu_ms:.1f}",
            f"{one.encoded_tokens:.0f}",
            f"{one.reencoding_ms:.0f}",
            f"{one.reencoding_ms / one.cpu_ms:.0f}",
            *(f"{part:.1f}" for part in msgspec.structs.astuple(one.phases)),
            f"{one.resident_bytes / MIB:.1f} MiB",
        ]
        if one.peer_cpu_ms is not None:
            cells += [f"{one.peer_cpu_ms:.1f}", f"{one.peer_cpu_ms / one.cpu_ms:.1f}"]
        table.add_row(*cells)
    return table


def proxy_words(result: ProxyResult) -> list[str]:
    """What the columns are."""
    words = [
        f"{result.calls_each} calls each; tokenizer {result.tokenizer}, {result.vocabulary:,} tokens",
        "CPU: the proxy's whole process, socket to store; encoded: tokens per call; again: decode the "
        "body, render and encode all of it, without network or store; ×: again / CPU",
        "find, read, plan, keep: parts of a call in ms, timed beside the server; the rest is HTTP, the "
        "record and the reply; memory: growth of the process since before the conversation",
    ]
    if result.peer:
        words.append(f"peer: {result.peer}, the same bodies; peer ×: its CPU / ours")
    return words


def crowd_words(result: CrowdResult) -> list[str]:
    """The figures in sentences."""
    return [
        f"{result.completed} of {result.executions} executions completed {result.calls_each} calls "
        f"each on one core, {result.most_in_flight} in flight at once, in {result.seconds:.0f} s: "
        f"{result.calls_per_s:.0f} calls/s",
        f"histories of {result.history_tokens:,} tokens at the end; CPU per call: "
        f"{result.first_call_cpu_ms:.0f} ms for the first, which brings all of it, then "
        f"{result.later_call_cpu_ms:.1f} ms",
        f"memory: {result.resident_bytes_each / 1024:.0f} KiB an execution, "
        f"{result.resident_bytes_each / result.history_tokens:.1f} bytes a token",
        f"event loop: longest slice {result.worst_slice_ms:.0f} ms of CPU, latest by "
        f"{result.worst_lag_ms:.0f} ms, {result.over_50_ms} times by more than 50 ms",
    ]


def proxy_json(result: ProxyResult) -> dict[str, object]:
    """All figures of the bench."""
    figures: dict[str, object] = msgspec.to_builtins(result)
    return {
        "bench": "proxy",
        "cpu_ms_by_history": result.cpu_ms_by_history,
        "speedup_over_reencoding": result.speedup_over_reencoding,
        "peer_over_ours": result.peer_over_ours,
        **figures,
        "machine": machine(),
    }


def crowd_json(result: CrowdResult) -> dict[str, object]:
    """All figures of the bench."""
    figures: dict[str, object] = msgspec.to_builtins(result)
    return {"bench": "proxy executions", **figures, "machine": machine()}
