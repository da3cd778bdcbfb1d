"""What a dialect does with each parameter that its clients may send.

Invariant: a parameter is never dropped in silence. It is honoured, or it cannot change the answer,
or the answer's headers name it as not applied, or the request is refused by its name.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import bad

NOTHING: tuple[Json, ...] = (None, False, 0, "", [], {})
"""Values with which a parameter asks for nothing."""


class Standing(enum.Enum):
    """What becomes of a parameter."""

    HONOURED = "honoured"
    """The answer is what was asked for."""
    NO_EFFECT = "no effect"
    """It is about billing, caching or the vendor's servers, and cannot change the answer."""
    NOT_APPLIED = "not applied"
    """The run decides instead; the answer's header x-opengyre-not-applied names it."""
    REFUSED = "refused"
    """A 400 that names it: to answer without it would be to answer another question."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A parameter's standing, and why."""

    standing: Standing
    why: str
    harmless: tuple[Json, ...] = NOTHING
    """Values that ask for nothing beyond what is served."""


Offers = Mapping[str, Offer]
"""By the parameter's name; a parameter inside another one is outer.inner."""


def honoured(why: str) -> Offer:
    return Offer(Standing.HONOURED, why)


def no_effect(why: str) -> Offer:
    return Offer(Standing.NO_EFFECT, why)


def not_applied(why: str, *harmless: Json) -> Offer:
    return Offer(Standing.NOT_APPLIED, why, (None, *harmless))


def refused(why: str, *harmless: Json) -> Offer:
    """harmless: values to let through; by default those that ask for nothing."""
    return Offer(Standing.REFUSED, why, (None, *harmless) if harmless else NOTHING)


def examine(body: Mapping[str, Json], offers: Offers, within: str = "") -> tuple[str, ...]:
    """Names of what is not applied, unknown parameters included. Raises Refusal for refused ones."""
    found: list[str] = []
    for key, value in body.items():
        name = f"{within}{key}"
        offer = offers.get(name)
        if isinstance(value, dict) and any(known.startswith(f"{name}.") for known in offers):
            found += examine(value, offers, f"{name}.")
        if offer is None:
            if value is not None and not (within and _covers(offers, within)):
                found.append(name)
        elif offer.standing is Standing.REFUSED and value not in offer.harmless:
            raise bad(f"not served: {offer.why}", name)
        elif offer.standing is Standing.NOT_APPLIED and value not in offer.harmless:
            found.append(name)
    return tuple(found)


def _covers(offers: Offers, within: str) -> bool:
    """Whether the outer parameter speaks for all that is inside it."""
    outer = offers.get(within.removesuffix("."))
    return outer is not None and outer.standing is not Standing.HONOURED
