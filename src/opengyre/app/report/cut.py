"""Where sampled tokens went, and why some are not trained: for a run, its roles, reasons, executions.

Invariant: every token that a call of the run sampled is counted exactly once, also where it was never
to be trained; the sums of all tables are equal.
"""

import html
from collections.abc import Iterable

import plotly.graph_objects as go

from opengyre.app.recorded import Books
from opengyre.tree.ledger import Ledger
from opengyre.tree.show import CUT, SHARED, TRAINED, fates_of

LISTED = 100
"""Executions in the table: those with the most tokens that were not trained."""


def fates_figure(books: Books) -> go.Figure:
    """A bar a role, a colour a fate."""
    roles = sorted(books.total.by_role, key=lambda role: books.total.by_role[role].sampled)
    figure = go.Figure()
    by_role = {role: fates_of(books.total.by_role[role]) for role in roles}
    for fate in fates_of(books.total):
        figure.add_bar(
            orientation="h",
            y=roles,
            x=[by_role[role].get(fate, 0) for role in roles],
            name=fate,
            hovertemplate="%{x:,} tokens<extra>" + html.escape(fate) + "</extra>",
        )
    figure.update_layout(
        title="Sampled tokens by role, and what became of them",
        barmode="stack",
        xaxis_title="tokens",
    )
    return figure


def tables(books: Books) -> str:
    """HTML: by role, by fate, by execution."""
    heads = ("sampled", TRAINED, SHARED, CUT, "excluded", "truncated", "not trained because")
    roles = [(role, "", part) for role, part in sorted(books.total.by_role.items())]
    whole = [*roles, ("all", "", books.total)]
    shown = books.executions[:LISTED]
    left = len(books.executions) - len(shown)
    more = f"<p>{left:,} more executions have no more untrained tokens than these.</p>"
    return (
        "<h2>What was cut, and why</h2>"
        + _table(("role", ""), heads, whole)
        + f"<details><summary>By execution ({len(shown):,} of {len(books.executions):,})</summary>"
        + _table(("execution", "task"), heads, shown)
        + (more if left else "")
        + "</details>"
    )


def _table(
    names: tuple[str, str], heads: tuple[str, ...], rows: Iterable[tuple[str, str, Ledger]]
) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (*names, *heads))
    body = "".join(f"<tr>{_cells(*row)}</tr>" for row in rows)
    return f"<table class='books'><tr>{head}</tr>{body}</table>"


def _cells(name: str, task: str, ledger: Ledger) -> str:
    excluded, truncated = sum(ledger.excluded.values()), sum(ledger.truncated.values())
    counts = (ledger.sampled, ledger.trained, ledger.shared, ledger.cut, excluded, truncated)
    kept = (TRAINED, SHARED)
    why = ", ".join(f"{fate} {n:,}" for fate, n in fates_of(ledger).items() if fate not in kept)
    words = "".join(f"<td>{html.escape(word)}</td>" for word in (name, task))
    return words + "".join(f"<td>{n:,}</td>" for n in counts) + f"<td>{html.escape(why)}</td>"
