"""What a run came to, as one JSON file: written from the store, so that it can be made again."""

import json
from pathlib import Path
from statistics import median

import msgspec

from opengyre.app.machine import machine
from opengyre.app.recorded import Recorded, books_of
from opengyre.app.train import Outcome
from opengyre.cluster.base import Move
from opengyre.config.run import RunConfig
from opengyre.core.reasons import VerdictKind
from opengyre.store.run import RunStore
from opengyre.tree.ledger import Ledger


def write_summary(
    config: RunConfig, outcome: Outcome, store: RunStore, path: Path
) -> dict[str, object]:
    """Gather, write and return the summary."""
    summary = summarise(config, outcome, store)
    path.write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def summarise(config: RunConfig, outcome: Outcome, store: RunStore) -> dict[str, object]:
    """Figures of the whole run; calls, moves, retries, switches, staleness and seconds are those of
    this process, where the run was resumed.
    """
    records = store.executions()
    steps = store.steps()
    curve = store.events("evaluation")
    rates = {
        e.fields["name"]: round(float(e.fields["rate"]), 4)
        for e in curve
        if float(e.fields["n"]) > 0  # nothing was scored: no rate, and not a rate of 0
    }
    verdicts: dict[str, int] = {}
    for record in records:
        verdicts[record.verdict.kind] = verdicts.get(record.verdict.kind, 0) + 1
    return {
        "harness": config.harness.name,
        "policy": config.schedule.policy,
        "seed": config.run.seed,
        "heldout_tasks": len({r.task_id for r in records if r.split == "heldout"}),
        "heldout_temperature": config.eval.temperature or config.policy.temperature,
        "heldout_pass_before": rates.get("before"),
        "heldout_pass_after": rates.get("after"),
        "heldout_pass_before_greedy": rates.get("before-greedy"),
        "heldout_pass_after_greedy": rates.get("after-greedy"),
        "heldout_curve": [
            {
                "step": int(float(e.fields["step"])),
                "name": e.fields["name"],
                "pass": e.fields["rate"],
            }
            for e in curve
        ],
        "training_pass_by_step": [round(row.pass_rate, 4) for row in steps],
        "executions": len(records),
        "training_executions": sum(r.split == "train" and r.final for r in records),
        "verdicts": verdicts,
        "excluded": sum(r.final and r.verdict.kind is not VerdictKind.SCORED for r in records),
        "steps": len(steps),
        "role_switches": outcome.role_switches,
        "role_switches_by_burst": switches_by_burst(store),
        "calls": outcome.tally.calls,
        "calls_by_cell": dict(sorted(outcome.tally.calls_by_cell.items())),
        "tokens_by_cell": dict(sorted(outcome.tally.tokens_by_cell.items())),
        "calls_moved_with_kv": outcome.moved_with_kv,
        "calls_recomputed": outcome.recomputed,
        "stall_ms": {
            "with_kv": stalls([move for move in outcome.moves if move.with_kv]),
            "recomputed": stalls([move for move in outcome.moves if not move.with_kv]),
        },
        "harness_visible_errors": outcome.tally.harness_visible_errors,
        "retries": outcome.tally.retries,
        "forks": outcome.tally.forks,
        "ledger": ledger_of(store),
        "account": account_of(store, config),
        "staleness": msgspec.to_builtins(outcome.staleness),
        "seconds": {phase: round(seconds, 1) for phase, seconds in outcome.seconds.items()},
        "machine": machine(),
    }


def ledger_of(store: RunStore) -> dict[str, object]:
    """The sum of the ledgers of all groups that were weighed."""
    total = ledger_total(store)
    balanced = total.balanced and all(one.balanced for one in store.ledgers().values())
    return in_words(total) | {"balanced": balanced}


def account_of(store: RunStore, config: RunConfig) -> dict[str, object]:
    """Every token that any call sampled, held-out and unfinished executions included."""
    books = books_of(Recorded(store, config).ledgers())
    roles = {role: in_words(part) for role, part in sorted(books.total.by_role.items())}
    cut = {execution: ledger.cut for execution, _, ledger in books.executions if ledger.cut}
    return in_words(books.total) | {
        "balanced": books.total.balanced,
        "by_role": roles,
        "cut_by_execution": cut,
    }


def in_words(ledger: Ledger) -> dict[str, object]:
    """The counts, without roles."""
    return {
        "sampled": ledger.sampled,
        "trained": ledger.trained,
        "shared": ledger.shared,
        "cut": ledger.cut,
        "excluded": ledger.excluded,
        "truncated": ledger.truncated,
    }


def stalls(moves: list[Move]) -> dict[str, float]:
    """Milliseconds from the interruption of a moved call to its next token."""
    times = sorted(move.stall_s * 1000 for move in moves)
    if not times:
        return {"calls": 0}
    return {
        "calls": len(times),
        "median": round(median(times), 1),
        "max": round(times[-1], 1),
        "median_tokens": median(move.tokens for move in moves),
    }


def ledger_total(store: RunStore) -> Ledger:
    """All executions' ledgers as one."""
    total = Ledger()
    for ledger in store.ledgers().values():
        total.add(ledger)
    return total


def switches_by_burst(store: RunStore) -> list[int]:
    """Moves to training before each publication."""
    published = [event.at for event in store.events("published")]
    at = [event.at for event in store.events("switch")]
    edges = [float("-inf"), *published]
    return [sum(low < t <= high for t in at) for low, high in zip(edges, published, strict=False)]
