"""What was excluded is said with its reason, in the listing and at the end."""

import asyncio
from pathlib import Path

import msgspec
from rich.console import Console
from tests.app.test_steps import a_config
from tests.app.test_summary import a_record

from opengyre.app.claim import META
from opengyre.app.excluded import SHOWN, last_line, why_excluded
from opengyre.app.show_tree import show_tree
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict
from opengyre.store.run import RunStore

FAILURE = Verdict(
    kind=VerdictKind.INFRASTRUCTURE_FAILURE,
    ending=Ending.NEVER_STARTED,
    detail="[bold]starting[/]\n  prompt too long  \n",
)


def failed(number: int, *, final: bool = True) -> ExecutionRecord:
    record = a_record(f"e{number}", final=final, kind=VerdictKind.INFRASTRUCTURE_FAILURE)
    return msgspec.structs.replace(record, verdict=FAILURE)


def test_the_most_frequent_reason_is_told_with_an_example() -> None:
    scored = a_record("e0", final=True, kind=VerdictKind.SCORED)
    other = a_record("e1", final=True, kind=VerdictKind.EVALUATOR_FAILURE)
    told = why_excluded([scored, other, failed(2, final=False), failed(3), failed(4)])
    assert told == (
        "3 of 4 executions are excluded, 2 of them as infrastructure-failure (never-started), "
        "such as: prompt too long"
    )


def test_nothing_is_told_when_all_are_scored() -> None:
    assert why_excluded([a_record("e0", final=True, kind=VerdictKind.SCORED)]) == ""


def test_a_last_line_is_one_short_line() -> None:
    verdict = Verdict(kind=VerdictKind.SCORED, ending=Ending.FINISHED, detail="a\n" + "b" * 1000)
    assert last_line(verdict) == "b" * SHOWN


def test_the_listing_and_the_tree_say_why(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        asyncio.run(store.put_meta(META, a_config().model_dump_json()))
        asyncio.run(store.put_execution(failed(1)))
    console = Console(record=True, width=60)
    with console.capture() as listed:
        show_tree(tmp_path, "list", console)
    assert listed.get().count("\n") == 1
    assert "prompt too long" in listed.get()
    with console.capture() as shown:
        show_tree(tmp_path, "e1", console)
    assert "[bold]starting[/]" in shown.get(), "a program's words are no markup"
