"""No parameter of the official clients is dropped in silence: honoured, named, or refused by name."""

from pathlib import Path
from typing import Any

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_create_params
from hypothesis import event, given
from hypothesis import strategies as st
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.dialects.anthropic_offers import ANTHROPIC
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.dialects.chat_offers import CHAT
from opengyre.proxy.dialects.offers import NOTHING, Offers, Standing, examine
from opengyre.proxy.dialects.responses import ResponsesDialect
from opengyre.proxy.dialects.responses_offers import RESPONSES
from opengyre.proxy.headers import LONGEST, answer_headers
from opengyre.proxy.refusals import Refusal

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
ASK: Any = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, tuple[Any, Offers, dict[str, Any]]] = {
    "anthropic": (AnthropicDialect(), ANTHROPIC, {"model": "m", "max_tokens": 9, "messages": ASK}),
    "chat": (ChatDialect(), CHAT, {"model": "m", "messages": ASK}),
    "responses": (ResponsesDialect(), RESPONSES, {"model": "m", "input": "Hi"}),
}


@pytest.mark.parametrize(
    ("request_type", "offers"),
    [
        (message_create_params.MessageCreateParamsBase, ANTHROPIC),
        (message_count_tokens_params.MessageCountTokensParams, ANTHROPIC),
        (beta_create_params.MessageCreateParamsBase, ANTHROPIC),
        (completion_create_params.CompletionCreateParamsBase, CHAT),
        (response_create_params.ResponseCreateParamsBase, RESPONSES),
    ],
)
def test_every_parameter_of_the_official_clients_has_a_standing(
    request_type: type, offers: Offers
) -> None:
    assert set(request_type.__annotations__) <= offers.keys()


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (dialect, name)
        for dialect, (_, offers, _) in BODIES.items()
        for name, offer in offers.items()
        if offer.standing is Standing.REFUSED
    ],
)
def test_what_is_refused_is_refused_by_its_name_and_let_through_when_it_asks_for_nothing(
    dialect: str, name: str
) -> None:
    parser, offers, body = BODIES[dialect]
    with pytest.raises(Refusal) as found:
        parser.parse({**body, **_nested(name, "something else")})
    assert found.value.param == name
    assert found.value.message.startswith(f"{name}: not served: ")
    assert found.value.kind.value == 400
    for harmless in offers[name].harmless:
        if harmless is None:
            parser.parse({**body, **_nested(name, harmless)})


@pytest.mark.parametrize("dialect", BODIES)
def test_what_is_not_applied_or_unknown_is_named(dialect: str) -> None:
    parser, offers, body = BODIES[dialect]
    examined = [name for name in offers if name.split(".")[0] not in {"messages", "tools"}]
    for name in examined:
        if offers[name].standing is Standing.NOT_APPLIED:
            assert name in examine({**body, **_nested(name, "other")}, offers)
        elif offers[name].standing is Standing.NO_EFFECT:
            assert examine({**body, **_nested(name, "other")}, offers) == ()
    assert parser.parse({**body, "brand_new": 1}).not_applied == ("brand_new",)
    assert parser.parse({**body, "brand_new": None}).not_applied == ()
    assert parser.parse({**body, "temperature": 0.5}).not_applied == ("temperature",)


def _nested(name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.partition(".")
    return {outer: _nested(inner, value)} if inner else {outer: value}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted(BODIES)),
    st.dictionaries(st.sampled_from(sorted({*ANTHROPIC, *CHAT, *RESPONSES})), json_values),
)
def test_any_body_is_parsed_or_refused(dialect: str, more: dict[str, Any]) -> None:
    parser, offers, body = BODIES[dialect]
    given_names = {name for name, value in more.items() if value not in NOTHING}
    try:
        asked = parser.parse({**body, **more})
    except Refusal as refusal:
        event(f"{dialect}: {refusal.kind.name}")
        return
    silent = {Standing.NOT_APPLIED, Standing.REFUSED}
    for name in given_names:
        offer = offers.get(name)
        if offer is None or (offer.standing in silent and more[name] not in offer.harmless):
            assert name in asked.not_applied


@given(st.lists(st.text()))
def test_names_in_a_header_cannot_break_it(names: list[str]) -> None:
    value = answer_headers("request-id", "r", names).get("x-opengyre-not-applied", "")
    assert len(value) <= LONGEST
    assert value.isascii()
    assert value.isprintable()


def test_the_page_of_parity_tells_every_parameter_and_its_standing() -> None:
    """docs/dialects.md is the table; this is what keeps it true."""
    text = PAGE.read_text()
    for title, offers in (
        ("## Anthropic Messages", ANTHROPIC),
        ("## OpenAI Chat Completions", CHAT),
        ("## OpenAI Responses", RESPONSES),
    ):
        told = text.partition(title)[2].partition("\n## ")[0]
        for name, offer in offers.items():
            assert f"| `{name}` | {offer.standing.value} | {offer.why} |" in told
