"""OpenAI Responses, as Codex and the official SDK speak it.

Invariant: every stream ends with response.completed or response.incomplete, and the numbers of its
events have no gap.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.base import convert, join_texts, positive, split_system, sse
from opengyre.proxy.dialects.offers import examine
from opengyre.proxy.dialects.openai import FREE_TEXT, FreeFormat, OpenAIDialect, calls_allowed
from opengyre.proxy.dialects.responses_items import Item, item_events, output_items, read_items
from opengyre.proxy.dialects.responses_offers import RESPONSES
from opengyre.proxy.messages import Conversation, Json, Tool
from opengyre.proxy.refusals import bad

SERVED = frozenset({"function", "custom", "namespace"})
"""Types of tools that the client runs by itself; all others belong to the vendor's servers."""
SEALED_THINKING = "reasoning.encrypted_content"
"""What include says for it."""
ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "text",
    "tool_choice",
    "tools",
    "user",
)
"""Parameters that a response repeats."""
DEFAULTS: dict[str, Json] = {
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
"""What a response says of parameters that were not given, or that the run decides."""


class WireTool(Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: FreeFormat = field(default_factory=FreeFormat)
    tools: list["WireTool"] = field(default_factory=list)


class Request(Struct):
    input: str | list[Item]
    model: str = ""
    instructions: str | None = None
    tools: list[WireTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    include: list[str] | None = None


class Named(Struct):
    """A tool as the policy sees it, and as the client named it."""

    tool: Tool
    free_text: bool
    names: tuple[str, str] | None = None
    """(namespace, name) where it has a namespace."""


class ResponsesDialect(OpenAIDialect):
    """POST /v1/responses."""

    name = "responses"
    ignored = frozenset({"stream", "client_metadata"})

    def parse(self, body: dict[str, Json]) -> Asked:
        not_applied = examine(body, RESPONSES)
        request = convert(body, Request)
        _check_include(request.include or [])
        system, messages = split_system(read_items(request.input), request.instructions or "")
        if not (system or messages):
            raise bad("wanted at least one item", "input")
        tools = request.tools or []
        named = list(_tools(tools))
        allowed = calls_allowed(request.tool_choice)
        shown = tuple(each.tool for each in named) if allowed else ()
        return Asked(
            conversation=Conversation(system, shown, messages),
            model=request.model,
            stream=bool(request.stream),
            max_tokens=positive(request.max_output_tokens, "max_output_tokens"),
            server_tools=tuple(tool.name or tool.type for tool in tools if tool.type not in SERVED),
            not_applied=(*not_applied, *_tools_not_applied(tools, "tools")),
            calls_allowed=allowed,
            sealed_thinking=SEALED_THINKING in (request.include or []),
            echo={**DEFAULTS, **{key: body[key] for key in ECHOED if body.get(key) is not None}},
            custom_tools=frozenset(each.tool.name for each in named if each.free_text),
            namespaces={each.tool.name: each.names for each in named if each.names},
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        return _response(asked, answer.call_id, answer)

    def opening(self, asked: Asked, job: Job) -> bytes:
        response = _response(asked, job.call_id, None)
        return _event("response.created", 0, {"response": response}) + _event(
            "response.in_progress", 1, {"response": response}
        )

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        number = 2
        for index, item in enumerate(output_items(asked, answer)):
            for name, fields in item_events(item, index):
                yield _event(name, number, fields)
                number += 1
        response = _response(asked, answer.call_id, answer)
        yield _event(f"response.{response['status']}", number, {"response": response})


def _check_include(include: Sequence[str]) -> None:
    for index, name in enumerate(include):
        if "logprobs" in name:
            raise bad("not served: probabilities are recorded, not told", f"include[{index}]")


def _tools(tools: Sequence[WireTool], namespace: WireTool | None = None) -> Iterator[Named]:
    """Each tool that the client runs by itself."""
    for tool in tools:
        free = tool.type == "custom"
        if tool.type == "namespace" and namespace is None:
            yield from _tools(tool.tools, tool)
        elif tool.type in SERVED:
            name = f"{namespace.name}.{tool.name}" if namespace else tool.name
            schema = FREE_TEXT if free else tool.parameters or {}
            names = (namespace.name, tool.name) if namespace else None
            about = (namespace.description if namespace else None, tool.description)
            described = join_texts([text for text in about if text])
            yield Named(Tool(name, described, schema), free, names)


def _tools_not_applied(tools: Sequence[WireTool], place: str) -> Iterator[str]:
    for index, tool in enumerate(tools):
        here = f"{place}[{index}]"
        if tool.type not in SERVED:
            yield here
        elif tool.strict:
            yield f"{here}.strict"
        elif tool.type == "custom" and tool.format.type != "text":
            yield f"{here}.format"
        yield from _tools_not_applied(tool.tools, f"{here}.tools")


def _response(asked: Asked, call_id: str, answer: Answer | None) -> dict[str, Json]:
    cut = answer is not None and answer.finish is FinishReason.LENGTH
    status = "in_progress" if answer is None else "incomplete" if cut else "completed"
    output: Json = [] if answer is None else [*output_items(asked, answer)]
    return {
        "id": f"resp_{call_id}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": asked.model,
        "output": output,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        **asked.echo,
        "usage": None if answer is None else _usage(answer),
    }


def _usage(answer: Answer) -> dict[str, Json]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
    }


def _event(name: str, number: int, fields: dict[str, Json]) -> bytes:
    return sse({"type": name, "sequence_number": number, **fields}, name)
