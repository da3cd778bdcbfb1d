"""Which options go with what. Invariant: an option that would do nothing is refused."""

from collections.abc import Mapping

from opengyre.core.errors import UserError

LIST, PAPER, TUNED, PLAIN, POLICIES, CALIBRATE = (
    "--list",
    "paper",
    "paper --tuned",
    "paper --plain",
    "policies",
    "calibrate",
)
PRESET, RUN = "a preset", "--from RUN"
NAMED = (LIST, PAPER, POLICIES, CALIBRATE)

APPLIES: dict[str, tuple[str, ...]] = {
    "json": (PAPER, TUNED, PLAIN, POLICIES, PRESET, RUN),
    "html": (PAPER, PRESET, RUN),
    "tuned": (TUNED,),
    "plain": (PLAIN,),
    "sets": (PAPER, TUNED, PLAIN, POLICIES, CALIBRATE),
    "calls": (PAPER,),
    "wide": (PAPER, PLAIN),
    "candidates": (CALIBRATE,),
    "jobs": (PAPER, PLAIN, CALIBRATE),
    "against": (RUN,),
    "change": (PRESET, RUN),
}
"""By the option's field; what is not here goes with everything, or is checked where it is used."""
OPTIONS = {"change": "--cells, --policy, --training-cells, --burst or --staleness"}
"""Fields of several options; the others are called as their option."""


def kind_of(what: str | None, options: Mapping[str, object]) -> str | None:
    """What was asked for; None: nothing."""
    if options.get("from_run") is not None:
        return RUN
    if what == PAPER and options.get("tuned"):
        return TUNED
    if what == PAPER and options.get("plain"):
        return PLAIN
    return what if what is None or what in NAMED else PRESET


def check_options(what: str | None, options: Mapping[str, object]) -> None:
    """By field of SimulateOptions. Raises UserError for one that has nothing to do with `what`."""
    kind = kind_of(what, options)
    if kind is None:
        return
    for name, kinds in APPLIES.items():
        if options.get(name) and kind not in kinds:
            option = OPTIONS.get(name, f"--{name}")
            found = kind if what is None or kind != PRESET else what
            raise UserError(
                f"{option} with {' or '.join(kinds)}", f"it with {found}", f"leave out {option}"
            )
