"""Shared Hypothesis strategies: tools, arguments, conversations as a harness could hold them."""

from hypothesis import strategies as st

from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall

words = st.sampled_from(
    ["cat", "main.py", "return x + 1", "\n", "  ", "é", "🙂", "{", '"', "42", "\t"]
)
texts = st.lists(words, max_size=6).map("".join)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-999, 999), st.sampled_from([0.5, 1.0, 1e3, -2.25]), texts
)
json_values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)
arguments: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
    st.sampled_from(["command", "timeout", "path"]), json_values, max_size=3
)
tools = st.sampled_from(["Bash", "Read"]).map(
    lambda name: Tool(name, f"{name} something", {"properties": {"command": {}, "timeout": {}}})
)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    messages = [Message("user", draw(texts))]
    for turn in range(draw(st.integers(0, 4))):
        calls = tuple(
            ToolCall(f"call_{turn}_{number}", "Bash", draw(arguments))
            for number in range(draw(st.integers(0, 2)))
        )
        messages.append(Message("assistant", draw(texts), draw(texts).strip("\n"), calls))
        messages += [Message("tool", draw(texts), call_id=call.call_id) for call in calls]
        if not calls or draw(st.booleans()):
            messages.append(Message(draw(st.sampled_from(["user", "system"])), draw(texts)))
    return Conversation(draw(texts), tuple(draw(st.lists(tools, max_size=2))), tuple(messages))
