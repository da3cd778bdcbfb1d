"""Every state that a small world can reach, each visited once.

Executions of a group are alike to the scheduler, and so are groups apart from what the key keeps of
them; time stands still, for no rule reads it. So a state is a key of counts, roles and positions.
Every state is judged by the world's own books on the way in; afterwards the graph shows whether
each run ends, whatever comes first.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import Decision, Event, SchedulePlan
from opengyre.scheduler.state import Phase
from tests.scheduler.world import LOST, Action, World


class Timeless(list[tuple[Event, float, list[Decision]]]):
    """A log that keeps nothing, so that time stands still."""

    def append(self, _: tuple[Event, float, list[Decision]], /) -> None:
        """Nothing stays."""


SHARED: set[type] = {int, float, str, bool, type(None), tuple, Phase, CellRole, SchedulePlan}
"""What never changes; other frozen records are added as they are met."""


def copy_of(value: object) -> object:
    """A deep copy of plain objects; what never changes is shared."""
    kind = type(value)
    if kind in SHARED:
        return value
    if isinstance(value, list):
        return type(value)([one if type(one) in SHARED else copy_of(one) for one in value])
    if isinstance(value, Counter | set | deque):
        return value.copy()  # of atoms
    if isinstance(value, dict):
        return _copies(value)
    params = getattr(kind, "__dataclass_params__", None)
    if params is not None and params.frozen:
        SHARED.add(kind)
        return value
    twin = object.__new__(kind)
    slots = getattr(kind, "__slots__", None)
    if slots is None:
        twin.__dict__ = _copies(value.__dict__)
    for name in slots or ():
        setattr(twin, name, copy_of(getattr(value, name)))
    return twin


def _copies(values: dict[Any, object]) -> dict[Any, object]:
    return {name: one if type(one) in SHARED else copy_of(one) for name, one in values.items()}


def key_of(world: World) -> Hashable:
    """What the future of a world depends on."""
    state = world.scheduler.state
    books = state.groups
    ready = {name: place for place, name in enumerate(books.ready)}
    chosen = {name: place for place, name in enumerate(books.chosen)}
    groups = []
    for name, group in world.groups.items():
        known = books.outstanding[name]
        again = sum(one in world.again for one in group.queued)
        places = (ready.get(name, -1), chosen.get(name, -1))
        counts = (len(group.queued), len(group.running), again, known.live)
        groups.append((group.version, group.ready, *counts, *places))
    told = tuple(cell.burst if cell.target is CellRole.TRAINING else -1 for cell in state.cells)
    return (
        tuple(sorted(groups)),
        tuple(world.roles),
        tuple(sorted(world.targets.items())),
        told,
        (state.phase, state.burst.index, state.admitted, state.paused, tuple(books.ordered)),
        (world.step, world.version, world.to_make, world.closed, world.publishing),
        (world.core_restarting, world.paused, world.finished),
    )


@dataclass
class Graph:
    """What was reached. Edges lead from a state to states."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    onward: dict[int, list[int]] = field(default_factory=dict)
    """By what must happen sooner or later: answers to decisions, executions, verdicts."""
    faults: int = 0
    """Edges by what may never happen: losses, time limits, cancelled and repeated executions."""
    finished: set[int] = field(default_factory=set)

    @property
    def edges(self) -> int:
        return self.faults + sum(map(len, self.onward.values()))

    def every_run_ends(self) -> bool:
        """Once faults stop: no way leads in a circle, and each ends where the run is finished."""
        last = {one for one, after in self.onward.items() if not after}
        if last != self.finished:
            return False
        ways_in = Counter(to for after in self.onward.values() for to in after)
        sources = [one for one in self.onward if not ways_in[one]]
        seen = 0
        while sources:
            one = sources.pop()
            seen += 1
            for to in self.onward[one]:
                ways_in[to] -= 1
                if not ways_in[to]:
                    sources.append(to)
        return seen == len(self.onward)


@dataclass(frozen=True)
class Faults:
    """How much may go wrong on one way through the world."""

    losses: int = 0
    """Cells that die, the core and those in mid-switch included."""
    mishaps: int = 0
    """Executions that end while no cell serves them, before they began, or begin twice."""


@dataclass
class Place:
    """A world and the faults that are left."""

    world: World
    left: Faults

    def key(self) -> Hashable:
        return key_of(self.world), self.left


def onward(world: World) -> list[Action]:
    """What must happen sooner or later; executions of a group stand for one another."""
    found = [one for one in world.actions() if not _is_another(one)]
    if not found and not world.finished and world.policy == "async":
        found = [partial(world.give_back, world.roles.index(LOST))]  # nobody else rolls out
    return found


def _is_another(action: Action) -> bool:
    return isinstance(action, partial) and len(action.args) > 1 and action.args[1] in range(1, 99)


def losses(world: World) -> list[Action]:
    """Each live cell may die."""
    return [partial(world.lose, i) for i, role in enumerate(world.roles) if role is not LOST]


def returns(world: World) -> list[Action]:
    """Each lost satellite may come back, or never does."""
    lost = [i for i, role in enumerate(world.roles) if role is LOST and i]
    return [partial(world.give_back, cell) for cell in lost]


def mishaps(world: World) -> list[Action]:
    """What executions may do against the order of things."""
    found: list[Action] = []
    serving = not world.paused and world.capacity > 0
    for name, group in world.groups.items():
        if group.queued:
            found.append(partial(world.cancel_queued, name))
        if group.running:
            found.append(partial(world.repeat, name))
            if not serving:
                found.append(partial(world.time_out, name))
    return found


@dataclass
class Explorer:
    """Goes everywhere, the newest place first."""

    whims: Sequence[Action] = (lambda: None,)
    """Settings of a policy's free choice; each is tried before each action."""
    graph: Graph = field(default_factory=Graph)
    todo: list[Place] = field(default_factory=list)

    def arrive(self, place: Place) -> int:
        """The number of a state; a new one is looked at later."""
        key, numbers = place.key(), self.graph.numbers
        if key not in numbers:
            numbers[key] = len(numbers)
            if place.world.finished:
                self.graph.finished.add(numbers[key])
            self.todo.append(place)
        return numbers[key]

    def step(self, world: World, menu: Callable[[World], list[Action]], left: Faults) -> list[int]:
        """Each action on the menu, on a copy of its own."""
        reached = []
        for number, whim in product(range(len(menu(world))), self.whims):
            after: World = copy_of(world)  # type: ignore[assignment]
            whim()
            menu(after)[number]()
            reached.append(self.arrive(Place(after, left)))
        return reached

    def go_on(self, place: Place) -> None:
        """Everything that can happen at a place."""
        world, left, graph = place.world, place.left, self.graph
        graph.onward[graph.numbers[place.key()]] = self.step(world, onward, left)
        if world.finished:
            return
        graph.faults += len(self.step(world, returns, left))
        if left.losses:
            fewer = Faults(left.losses - 1, left.mishaps)
            graph.faults += len(self.step(world, losses, fewer))
        if left.mishaps:
            fewer = Faults(left.losses, left.mishaps - 1)
            graph.faults += len(self.step(world, mishaps, fewer))


def explore(world: World, faults: Faults, whims: Sequence[Action] = (lambda: None,)) -> Graph:
    """All interleavings. Raises AssertionError where a rule is broken."""
    world.log = Timeless()
    explorer = Explorer(whims)
    explorer.arrive(Place(world, faults))
    while explorer.todo:
        explorer.go_on(explorer.todo.pop())
    return explorer.graph
