"""How fast cells answered, by how many calls ran at once.

A call is beside those of its own cell; calls of which no cell is recorded are taken as spread evenly
over the cells in rollout. Only calls that met no change of roles count. The model is the simulator's own:
a call of t tokens behind p new prompt tokens takes (t + k + w p)(a + b n) seconds with n calls on its
cell, all coefficients at least 0, by least squares. So a cell gives no fewer tokens when it has more
calls, and what a call costs beside its tokens is k tokens of cell time.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import fmean

from opengyre.app.simulate.measured import Measured, MeasuredCall
from opengyre.app.simulate.stays import RolloutTimes
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole

WEIGHTS = (0.0, *(2.0**power for power in range(-10, 2)))
"""Of a prompt token against a sampled one: from nothing, over what prefill in parallel gives, to twice."""
EXTRAS = (0.0, *(2.0**power for power in range(8)))
"""Tokens that a call costs by itself."""
TINY = 1e-12
"""A pivot below it, of columns scaled to 1, means columns that say the same."""
MOST_SAMPLES = 3000
"""Calls that are fitted on, evenly taken: more do not change the coefficients, only the waiting."""
BINS = 5
"""Rows of the printed curve: enough to see a bend."""
USUAL = 0.95
"""Of the calls take less than what counts as a long one."""
SAME_LOAD = 0.05
"""Calls at once between two bins that are printed as one: the difference could not be read."""


@dataclass(frozen=True)
class LoadPoint:
    """A bin of calls with about as many others beside them."""

    calls: int
    at_once: float
    """Mean calls at once on a cell, itself included."""
    measured_s: float
    fitted_s: float
    """Mean duration of a call."""


@dataclass(frozen=True)
class LoadFit:
    """The model's coefficients."""

    own_s: float
    """a: seconds a token, however many calls there are."""
    shared_s: float
    """b: seconds a token for each call on the cell."""
    prompt_weight: float
    """w: of a new prompt token against a sampled one."""
    call_tokens: float
    """k: of a call by itself."""
    used: int
    """Calls that it was fitted on, at most MOST_SAMPLES."""
    left_out: int
    """Calls that moved, met a change of roles, were given up, or ended just before a stop."""
    spread: int
    """Of those it was fitted on, calls that do not say which cell answered them."""
    curve: tuple[LoadPoint, ...]

    def seconds(self, sample: "Sample") -> float:
        """Of a call."""
        work = sample.answer + self.call_tokens + self.prompt_weight * sample.new
        return work * (self.own_s + self.shared_s * sample.at_once)


@dataclass(frozen=True)
class Sample:
    """A call that can be fitted on."""

    seconds: float
    answer: int
    new: int
    at_once: float
    placed: bool
    """It is known on which cell it was, and so how many were beside it."""


class _Count:
    """A count that changes at times, with its integral."""

    def __init__(self, changes: Sequence[tuple[float, int]]) -> None:
        self.times: list[float] = [0.0]
        self.counts: list[int] = [0]
        self._sums: list[float] = [0.0]
        for at, change in sorted(changes):
            self._sums.append(self._sums[-1] + self.counts[-1] * (at - self.times[-1]))
            self.counts.append(self.counts[-1] + change)
            self.times.append(at)

    def integral(self, at: float) -> float:
        """From 0."""
        place = max(0, bisect_right(self.times, at) - 1)
        return self._sums[place] + self.counts[place] * (at - self.times[place])

    def mean(self, began: float, ended: float) -> float:
        return (self.integral(ended) - self.integral(began)) / (ended - began)


def fit_load(run: Measured) -> LoadFit:
    """Coefficients, and how well they tell the durations."""
    samples = _samples(run)
    if not samples:
        raise UserError(
            "calls that met no change of roles, to fit speeds on",
            f"none among {len(run.all_calls)}",
            "pass a longer run",
        )
    chosen = samples[:: -(-len(samples) // MOST_SAMPLES)]
    fits = (_fitted(chosen, w, k) for w, k in product(WEIGHTS, EXTRAS))
    best = min(fits, key=lambda fit: sum((s.seconds - fit.seconds(s)) ** 2 for s in chosen))
    left_out = len(run.all_calls) - len(samples)
    spread = sum(not sample.placed for sample in chosen)
    return replace(best, left_out=left_out, spread=spread, curve=_curve(samples, best))


def _samples(run: Measured) -> list[Sample]:
    calls, beside = run.all_calls, _Beside(run)
    unseen = _Unseen(run)
    found = []
    for call in calls:
        if call.moved or call.cut or call.ended <= call.began or unseen.beside(call):
            continue
        at_once = beside.at_once(call)
        if at_once is not None:
            found.append(
                Sample(
                    call.ended - call.began,
                    call.answer_tokens,
                    call.new_tokens,
                    max(1.0, at_once),
                    bool(call.cells),
                )
            )
    return found


class _Unseen:
    """Calls that a stop ended were not recorded: of what ran beside the last calls before it too little
    is known."""

    def __init__(self, run: Measured) -> None:
        took = sorted(call.ended - call.began for call in run.all_calls if not call.moved)
        long = took[int(USUAL * (len(took) - 1))] if took else 0.0
        self._times = [(stop.at - long, stop.at) for stop in run.stops]

    def beside(self, call: MeasuredCall) -> bool:
        return any(since < call.ended <= at for since, at in self._times)


class _Beside:
    """How many calls were on a call's cell with it."""

    def __init__(self, run: Measured) -> None:
        self._times = RolloutTimes(run.spans)
        on: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        nowhere: list[tuple[float, int]] = []
        for call in run.all_calls:
            for stay in self._times.stays(call):
                on[stay.cell] += [(stay.began, 1), (stay.ended, -1)]
            if not call.cells:
                nowhere += [(call.began, 1), (call.ended, -1)]
        everywhere = [*nowhere, *(change for changes in on.values() for change in changes)]
        self._on = {cell: _Count(changes) for cell, changes in on.items()}
        self._nowhere, self._everywhere = _Count(nowhere), _Count(everywhere)
        rollout = [span for span in run.spans if span.role is CellRole.ROLLOUT]
        changes = [(s.start, 1) for s in rollout] + [(s.end, -1) for s in rollout]
        self._serving = _Count(changes)

    def at_once(self, call: MeasuredCall) -> float | None:
        """On the mean, itself included; None when roles changed meanwhile."""
        if not call.cells:
            cells = _steady(self._serving, call)
            return self._everywhere.mean(call.began, call.ended) / cells if cells else None
        cell = call.cells[-1]
        if not self._times.covers(cell, call.began, call.ended):
            return None
        spread = self._nowhere.mean(call.began, call.ended)
        serving = max(1.0, self._serving.mean(call.began, call.ended))
        return self._on[cell].mean(call.began, call.ended) + spread / serving


def _steady(serving: _Count, call: MeasuredCall) -> int:
    """Cells in rollout all through the call; 0 when their number changed."""
    first = bisect_right(serving.times, call.began) - 1
    last = bisect_right(serving.times, call.ended) - 1
    return serving.counts[first] if first == last else 0


def _fitted(samples: Sequence[Sample], weight: float, extra: float) -> LoadFit:
    works = [one.answer + extra + weight * one.new for one in samples]
    rows = [(work, work * one.at_once) for work, one in zip(works, samples, strict=True)]
    own_s, shared_s = at_least_zero(rows, [one.seconds for one in samples])
    return LoadFit(own_s, shared_s, weight, extra, len(samples), 0, 0, ())


def _curve(samples: Sequence[Sample], fit: LoadFit) -> tuple[LoadPoint, ...]:
    ordered = sorted(samples, key=lambda one: one.at_once)
    size = -(-len(ordered) // BINS)
    bins: list[list[Sample]] = []
    for i in range(0, len(ordered), size):
        one = ordered[i : i + size]
        if bins and _mean_load(one) - _mean_load(bins[-1]) < SAME_LOAD:
            bins[-1] += one
        else:
            bins.append(one)
    return tuple(
        LoadPoint(
            len(one),
            _mean_load(one),
            fmean(s.seconds for s in one),
            fmean(fit.seconds(s) for s in one),
        )
        for one in bins
    )


def _mean_load(samples: Sequence[Sample]) -> float:
    return fmean(one.at_once for one in samples)


def at_least_zero(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Least squares with coefficients of at least 0, over few columns: the best of all supports."""
    width = len(rows[0]) if rows else 0
    gram = [[sum(r[i] * r[j] for r in rows) for j in range(width)] for i in range(width)]
    right = [sum(r[i] * v for r, v in zip(rows, values, strict=True)) for i in range(width)]
    best, gain = [0.0] * width, 0.0
    for count in range(1, width + 1):
        for support in combinations(range(width), count):
            solved = _solve(
                [[gram[i][j] for j in support] for i in support], [right[i] for i in support]
            )
            if solved is None or min(solved) < 0:
                continue
            explained = sum(c * right[i] for c, i in zip(solved, support, strict=True))
            if explained > gain * (1 + TINY):
                best, gain = [0.0] * width, explained
                for coefficient, i in zip(solved, support, strict=True):
                    best[i] = coefficient
    return best


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Of a symmetric positive system, by elimination; None when its columns say the same."""
    size = len(right)
    scale = [matrix[i][i] ** 0.5 for i in range(size)]
    if min(scale) == 0:
        return None
    work = [
        [matrix[i][j] / scale[i] / scale[j] for j in range(size)] + [right[i] / scale[i]]
        for i in range(size)
    ]
    for i in range(size):
        if work[i][i] < TINY:
            return None
        for k in range(i + 1, size):
            factor = work[k][i] / work[i][i]
            work[k] = [a - factor * b for a, b in zip(work[k], work[i], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(work[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (work[i][size] - rest) / work[i][i]
    return [value / scale[i] for i, value in enumerate(found)]
