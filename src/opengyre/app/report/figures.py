"""One function per figure. Each takes recorded rows and returns a plotly figure."""

from collections.abc import Sequence

import plotly.graph_objects as go

from opengyre.app.report.lanes import Span
from opengyre.core.reasons import CellRole
from opengyre.store.rows import EventRow, StepRow
from opengyre.tree.ledger import Ledger

COLOURS = {
    CellRole.ROLLOUT: "#2a9d8f",
    CellRole.TRAINING: "#9b5de5",
    CellRole.SWITCHING: "#f4a261",
    CellRole.LOST: "#d62828",
}
"""The terminal's colours, in shades that can be told apart in print."""

STEP_TICKS = 16
"""Most ticks of an axis of steps: more run into one another."""

LANE_HEIGHT = 46
"""Pixels of a cell's lane: room for its label."""

LONG_S = 7200.0
"""A run from here on is shown in hours: nobody reads 70,000 seconds."""


def time_unit(end_s: float) -> tuple[str, float]:
    """What an axis up to there counts, and how many seconds one of them has."""
    return ("hours", 3600.0) if end_s >= LONG_S else ("seconds", 1.0)


def learning(steps: Sequence[StepRow], evaluations: Sequence[EventRow]) -> go.Figure:
    """Reward and pass rate of training by step; held-out pass rate as points."""
    figure = go.Figure()
    x = [row.step for row in steps]
    figure.add_scatter(x=x, y=[row.reward_mean for row in steps], name="reward (training)")
    figure.add_scatter(
        x=x,
        y=[row.pass_rate for row in steps],
        name="pass rate (training)",
        line={"dash": "dash"},  # where rewards are 0 and 1 it lies on the reward
    )
    for greedy, symbol in ((False, "circle"), (True, "diamond-open")):
        points = [e for e in evaluations if str(e.fields["name"]).endswith("greedy") is greedy]
        figure.add_scatter(
            x=[e.fields["step"] for e in points],
            y=[e.fields["rate"] for e in points],
            name="held-out pass@1" + (", greedy" if greedy else ""),
            mode="markers+lines",
            marker={"symbol": symbol, "size": 11},
        )
    figure.update_layout(
        title="Learning", xaxis=_step_axis(steps), yaxis={"range": [0, 1.03], "title": ""}
    )
    return figure


def cell_lanes(spans: Sequence[Span], publications: Sequence[EventRow]) -> go.Figure:
    """A lane per cell with its roles over time; dotted lines where weights were published."""
    end = max((span.end for span in spans), default=1.0)
    unit, each_s = time_unit(end)
    figure = go.Figure()
    for role, colour in COLOURS.items():
        mine = [span for span in spans if span.role is role]
        figure.add_bar(
            orientation="h",
            y=[_cell_name(span.cell) for span in mine],
            base=[span.start / each_s for span in mine],
            x=[(span.end - span.start) / each_s for span in mine],
            customdata=[span.end - span.start for span in mine],
            name=role.value,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"from {unit} %{{base:.2f}}, for %{{customdata:.2f}} s"
            f"<extra>{role.value}</extra>",
        )
    for event in publications:
        figure.add_vline(x=event.at / each_s, line={"width": 1, "dash": "dot", "color": "#888"})
    cells = {span.cell for span in spans}
    figure.update_layout(
        title="Cells (dotted: weights published)",
        barmode="overlay",
        xaxis={"title": unit, "range": [0, end / each_s]},
        yaxis={
            "categoryorder": "array",
            "categoryarray": [_cell_name(c) for c in sorted(cells)[::-1]],
            "automargin": False,  # begins where the waterlevel below it begins
        },
        height=170 + LANE_HEIGHT * len(cells),
    )
    return figure


def waterlevel(events: Sequence[EventRow], end: float) -> go.Figure:
    """Executions that wait or run, against the room in rollout cells; time as in the lanes."""
    unit, each_s = time_unit(end)
    figure = go.Figure()
    x = [event.at / each_s for event in events]
    for key, name, style in (
        ("waterlevel", "waterlevel", {"color": "#577590"}),
        ("capacity", "rollout capacity", {"color": "#e76f51", "dash": "dot"}),
    ):
        y = [event.fields[key] for event in events]
        figure.add_scatter(
            x=[*x, end / each_s] if x else [],
            y=[*y, *y[-1:]],  # the last level lasts
            name=name,
            mode="lines",
            line={"shape": "hv", **style},
            fill="tozeroy" if key == "waterlevel" else "none",
        )
    figure.update_layout(
        title="Waterlevel",
        xaxis={"title": unit, "range": [0, end / each_s]},
        yaxis={"title": "executions", "rangemode": "tozero", "automargin": False},
    )
    return figure


def tokens(ledger: Ledger, steps: Sequence[StepRow]) -> go.Figure:
    """Where sampled tokens went, and what packing saved."""
    parts = {"trained": ledger.trained, "shared": ledger.shared, "cut by J_max": ledger.cut}
    parts |= {f"excluded: {reason}": n for reason, n in sorted(ledger.excluded.items())}
    parts |= {f"truncated: {reason}": n for reason, n in sorted(ledger.truncated.items())}
    packed = sum(row.metrics["packed_tokens"] for row in steps)
    expanded = sum(row.metrics["expanded_tokens"] for row in steps)
    parts |= {"computed, packed as trees": int(packed), "computed, if separate": int(expanded)}
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=list(parts)[::-1],
        x=list(parts.values())[::-1],
        text=[f"{n:,}" for n in parts.values()][::-1],
        marker={"color": "#577590"},
    )
    figure.update_layout(title="Tokens", xaxis_title="tokens", showlegend=False)
    return figure


def training_health(steps: Sequence[StepRow]) -> go.Figure:
    """Clip share, entropy and gradient norm by step."""
    figure = go.Figure()
    x = [row.step for row in steps]
    for key in ("clip_share", "entropy", "gradient_norm"):
        y = [row.metrics.get(key) for row in steps]
        figure.add_scatter(x=x, y=y, name=key.replace("_", " "))
    figure.update_layout(title="Optimiser", xaxis=_step_axis(steps))
    return figure


def _step_axis(steps: Sequence[StepRow]) -> dict[str, object]:
    """There are no half steps."""
    last = max((row.step for row in steps), default=0)
    return {"title": "optimiser step", "dtick": 1 + last // STEP_TICKS}


def _cell_name(cell: int) -> str:
    return "core" if cell == 0 else f"satellite {cell}"
