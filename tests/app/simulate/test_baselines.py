"""A run says how far it is, and is the same whether anybody listens."""

from opengyre.app.simulate.baselines import ELASTIC, best, run, splits
from opengyre.app.simulate.ensemble import bundled_ensemble
from opengyre.app.simulate.paper import scene_of

STEPS = 4


def test_a_watched_run_tells_of_each_step_and_ends_as_it_would_alone() -> None:
    scene = scene_of("deepswe", bundled_ensemble().accepted[0])
    said: list[str] = []
    watched = run(scene, ELASTIC, 0, STEPS, said.append)
    assert said == [f"elastic: {done} of 4 steps" for done in range(1, STEPS + 1)]
    assert watched.outcome == run(scene, ELASTIC, 0, STEPS).outcome


def test_the_best_split_tells_of_every_split_that_it_tries() -> None:
    scene = scene_of("deepswe", bundled_ensemble().accepted[0])
    short = scene.with_plan(total_steps=STEPS)
    said: list[str] = []
    chosen = best(short, splits(short), 0, said.append)
    assert {line.rpartition(":")[0] for line in said} == {str(choice) for choice in splits(short)}
    assert f"{chosen.choice}: 4 of 4 steps" in said
