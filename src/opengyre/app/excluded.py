"""Why executions were excluded, in words: a run that trains on nothing must say so."""

from collections import Counter

from opengyre.core.reasons import VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict

SHOWN = 160
"""Characters of a program's last line: enough for an error, short enough for a terminal."""


def last_line(verdict: Verdict) -> str:
    """The last thing that was said, on one line."""
    lines = verdict.detail.strip().splitlines()
    return lines[-1].strip()[:SHOWN] if lines else ""


def why_excluded(records: list[ExecutionRecord]) -> str:
    """The most frequent reason with an example; empty when every execution was scored."""
    final = [record for record in records if record.final]
    verdicts = [r.verdict for r in final if r.verdict.kind is not VerdictKind.SCORED]
    if not verdicts:
        return ""
    reasons = Counter((verdict.kind, verdict.ending) for verdict in verdicts)
    (kind, ending), count = reasons.most_common(1)[0]
    example = next(v for v in reversed(verdicts) if (v.kind, v.ending) == (kind, ending))
    words = last_line(example) or "without a word"
    return (
        f"{len(verdicts)} of {len(final)} executions are excluded, {count} of them as {kind} "
        f"({ending}), such as: {words}"
    )
