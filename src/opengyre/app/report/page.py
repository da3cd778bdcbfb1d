"""Put the figures of a run on one page that needs no network."""

import html
import json
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from opengyre.app.recorded import Books, Recorded, books_of, config_of
from opengyre.app.report import figures
from opengyre.app.report.cut import fates_figure, tables
from opengyre.app.report.lanes import busy_share, lanes
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole
from opengyre.store.run import RunStore

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:24px auto;padding:0 16px}"
    "table{border-collapse:collapse}td{padding:2px 18px 2px 0;vertical-align:top}"
    "td:first-child{color:#666}code{font-size:13px}"
    ".books{font-size:13px}.books th{text-align:left;padding-right:14px}"
)

NO_SUMMARY = "<tr><td>The run has not ended yet.</td></tr>"

MARGIN = {"t": 80, "b": 50, "l": 110, "r": 30}
"""The same for all, so that lanes and waterlevel stand below one another; left: "satellite 1000"."""
LEGEND = {"orientation": "h", "x": 1.0, "xanchor": "right", "y": 1.0, "yanchor": "bottom"}
"""Above the plot: beside it, a longer name would make one plot narrower than the next."""

HIDDEN_KEYS = ("heldout_curve", "training_pass_by_step", "role_switches_by_burst", "account")
"""Lists that the figures show better."""


def write_report(run: Path) -> Path:
    """Draw RUN/report.html from the store, and the summary if there is one. Raises UserError."""
    if not (run / "run.sqlite").is_file():
        raise UserError(f"a run folder at {run}", "no run.sqlite in it", "pass a run's folder")
    with RunStore(run / "run.sqlite") as store:
        books = books_of(Recorded(store, config_of(run, store)).ledgers())
        drawn = _figures(store, books)
    summary = run / "summary.json"
    facts = json.loads(summary.read_text()) if summary.is_file() else {}
    page = run / "report.html"
    page.write_text(page_of(run.name, facts, drawn, tables(books)))
    return page


def _figures(store: RunStore, books: Books) -> list[go.Figure]:
    steps, roles = store.steps(), store.events("role")
    levels, published = store.events("waterlevel"), store.events("published")
    evaluations = store.events("evaluation")
    told = (*roles, *levels, *published, *evaluations, *store.events("phase"))
    end = max([*(event.at for event in told), *(row.at for row in steps)], default=0.0)
    spans = lanes(roles, end)
    cells = figures.cell_lanes(spans, published)
    share = busy_share(spans, CellRole.TRAINING)
    cells.update_layout(title=f"Cells: {share:.0%} of their time in training (dotted: published)")
    return [
        figures.learning(steps, evaluations),
        cells,
        figures.waterlevel(levels, end),
        figures.tokens(books.total, steps),
        fates_figure(books),
        figures.training_health(steps),
    ]


def page_of(name: str, facts: dict[str, object], drawn: list[go.Figure], cut: str) -> str:
    parts = []
    for i, figure in enumerate(drawn):
        figure.update_layout(template="plotly_white", margin=MARGIN, legend=LEGEND)
        parts.append(plotly.io.to_html(figure, include_plotlyjs=i == 0, full_html=False))
    rows = "".join(
        f"<tr><td>{html.escape(key)}</td><td><code>{html.escape(_text(value))}</code></td></tr>"
        for key, value in facts.items()
        if key not in HIDDEN_KEYS
    )
    title = html.escape(f"OpenGyre: {name}")
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>{''.join(parts)}"
        f"{cut}<h2>Summary</h2><table>{rows or NO_SUMMARY}</table></body></html>\n"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
