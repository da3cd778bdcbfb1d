"""Errors form one tree, and a user's error says three things."""

import inspect

import pytest

from opengyre.core import errors
from opengyre.core.errors import OpenGyreError, UserError

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_one_root_and_says_when_it_is_raised(kind: type) -> None:
    assert issubclass(kind, OpenGyreError)
    assert kind.__doc__


def test_a_user_error_says_what_was_wanted_found_and_to_do() -> None:
    error = UserError("a port", "port 80 in use", "set proxy.port = 0")
    assert str(error) == "wanted a port; found port 80 in use; set proxy.port = 0"
    assert (error.wanted, error.found, error.action) == (
        "a port",
        "port 80 in use",
        "set proxy.port = 0",
    )


def test_a_user_error_is_a_value_error_so_that_validators_may_raise_it() -> None:
    assert issubclass(UserError, ValueError)
