"""Accepted sets fit the calibrated row; those that are used when not all are come from many ancestors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.app.simulate.ensemble import Ensemble, Fitted, bundled_ensemble
from opengyre.app.simulate.fitting import in_calls, measured, near
from opengyre.app.simulate.presets import CALIBRATED, load_preset
from opengyre.core.errors import UserError


def test_every_accepted_set_fits_the_calibrated_row() -> None:
    preset = load_preset(CALIBRATED)
    ensemble = bundled_ensemble()
    assert ensemble.accepted
    for fitted in ensemble.accepted:
        assert fitted.execution_h == pytest.approx(1.93, rel=0.05)
        assert fitted.slowest_h == pytest.approx(2.96, rel=0.05)
        for baseline, span in preset.published.items():
            assert span.low <= fitted.speedups[baseline] <= span.high


def test_a_bundled_set_still_gives_what_it_was_accepted_for() -> None:
    """The simulator has not changed since by more than its noise; else calibrate anew."""
    first = bundled_ensemble().accepted[0]
    again = measured(first.parameters, first.candidate)
    assert again.execution_h == pytest.approx(first.execution_h, rel=0.03)
    for baseline, speedup in first.speedups.items():
        assert again.speedups[baseline] == pytest.approx(speedup, rel=0.03)


def a_set(number: int, ancestor: int) -> Fitted:
    return Fitted(
        candidate=number,
        ancestor=ancestor,
        execution_h=1.93,
        slowest_h=2.96,
        speedups={},
        parameters={},
    )


@given(ancestors=st.lists(st.integers(0, 5), min_size=1, max_size=20), count=st.integers(1, 25))
@settings(max_examples=50, deadline=None)
def test_sets_are_chosen_from_as_many_ancestors_as_there_are(
    ancestors: list[int], count: int
) -> None:
    sets = tuple(a_set(number, ancestor) for number, ancestor in enumerate(ancestors))
    ensemble = Ensemble(seed=0, candidates=99, accepted=sets)
    chosen = ensemble.spread_out(count)
    assert len(chosen) == min(count, len(sets))
    assert len({one.candidate for one in chosen}) == len(chosen)
    assert len({one.ancestor for one in chosen}) == min(count, len(set(ancestors)))
    assert ensemble.spread_out(99)[: len(chosen)] == chosen


def test_an_ensemble_without_sets_says_how_to_get_some() -> None:
    with pytest.raises(UserError, match="calibrate"):
        Ensemble(seed=0, candidates=9, accepted=()).spread_out(3)


def test_the_same_set_in_finer_calls_keeps_its_durations() -> None:
    preset, fitted = load_preset(CALIBRATED), bundled_ensemble().accepted[0]
    finer = in_calls(fitted, 6)
    assert finer.parameters["calls"] == 6
    found = measured(finer.parameters, fitted.candidate)
    assert found.execution_h == pytest.approx(preset.known_numbers["execution_h"], rel=0.05)
    assert found.slowest_h == pytest.approx(preset.known_numbers["slowest_h"], rel=0.05)


def test_a_set_that_hardly_trains_is_far_from_the_row() -> None:
    preset, fitted = load_preset(CALIBRATED), bundled_ensemble().accepted[0]
    assert near(fitted.parameters | {"training_share": 0.05}, preset, 1, 3.0) is None
