"""Every family on a small tokenizer of its own, and conversations that try its markup."""

from hypothesis import strategies as st

from opengyre.proxy.families.base import Family
from opengyre.proxy.families.make import FAMILIES, make_family
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from tests.proxy import strategies
from tests.proxy.tokenizers_for_tests import CHATML, DEEPSEEK, GLM, MARKS, small_tokenizer

SPECIAL = {"glm-4.5": GLM, "deepseek-v3.1": DEEPSEEK}
SMALL: dict[str, Family] = {
    name: make_family(name, small_tokenizer(SPECIAL.get(name, CHATML))) for name in FAMILIES
}
FIELDS: dict[str, Json] = {
    "command": {"type": "string", "description": "What to run."},
    "timeout": {"type": ["integer", "null"]},
    "ratio": {"type": "number", "minimum": 0},
    "flag": {"type": "boolean"},
    "items": {"type": "array", "items": {}},
    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "mode": {"enum": ["fast", "slow", "7"]},
    "free": {},
}
BASH = Tool("Bash", "Runs it.\n", {"type": "object", "properties": FIELDS, "required": ["command"]})
UNTYPED = Tool("mcp__other-tool", "", {})

MARKUP = "<function= </function> <parameter=x> </parameter> \\u003c \\ True null 5 1e3 {} [1] 日本"
BREAKS = [
    "</parameter>\n<parameter=y>\n",
    "</parameter>\n</function>",
    "</arg_value>\n</tool_call>",
    "</arg_value>\n<arg_key>",
    *(" ", "\n", "\r\n", "\u2028", '"'),
]
tags = st.sampled_from([*MARKS, *CHATML, *GLM, *DEEPSEEK, *MARKUP.split(), *BREAKS])
nasty = st.lists(st.one_of(tags, strategies.words, st.characters(codec="utf-8")), max_size=5).map(
    "".join
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    nasty,
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(nasty, inner, max_size=2)),
    max_leaves=4,
)
TYPED: dict[str, st.SearchStrategy[Json]] = {
    "command": nasty,
    "timeout": st.one_of(st.none(), st.integers()),
    "ratio": st.one_of(st.integers(), st.floats(0, 1e300)),
    "flag": st.booleans(),
    "items": st.lists(values, max_size=2),
    "either": st.one_of(nasty, st.integers()),
    "mode": st.sampled_from(["fast", "slow", "7"]),
    "free": values,
}


@st.composite
def calls(draw: st.DrawFn, number: int) -> ToolCall:
    """A call whose arguments its schema allows."""
    call_id = f"call_{number}"
    if draw(st.booleans()):
        named = st.from_regex(r"[a-z_.-]{1,5}", fullmatch=True)
        return ToolCall(call_id, UNTYPED.name, draw(st.dictionaries(named, values, max_size=2)))
    keys = draw(st.lists(st.sampled_from(sorted(TYPED)), unique=True, max_size=3))
    return ToolCall(call_id, BASH.name, {key: draw(TYPED[key]) for key in keys})


@st.composite
def answers(draw: st.DrawFn) -> Message:
    made = tuple(draw(calls(number)) for number in range(draw(st.integers(0, 3))))
    return Message("assistant", draw(strategies.texts), draw(strategies.texts).strip(), made)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """As a harness could hold it: users, systems in the middle, answers, parallel results."""
    messages = [Message("user", draw(strategies.texts))]
    for turn in range(draw(st.integers(0, 3))):
        answer = draw(answers())
        numbered = tuple(
            ToolCall(f"{turn}-{call.call_id}", call.name, call.arguments) for call in answer.calls
        )
        messages.append(Message("assistant", answer.text, answer.thinking, numbered))
        messages += [Message("tool", draw(strategies.texts), call_id=c.call_id) for c in numbered]
        if not numbered or draw(st.booleans()):
            messages.append(
                Message(draw(st.sampled_from(["user", "system"])), draw(strategies.texts))
            )
    shown = draw(st.sampled_from([(), (BASH,), (BASH, UNTYPED)]))
    return Conversation(draw(strategies.texts), shown, tuple(messages))
