"""Anthropic Messages, as Claude Code and the official SDK speak it.

Invariant: what goes out as blocks comes back as the same canonical message.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.anthropic_offers import ANTHROPIC
from opengyre.proxy.dialects.base import (
    arguments_text,
    convert,
    join_texts,
    no_choice,
    no_part,
    positive,
    seal,
    split_system,
    sse,
    told,
    unseal,
)
from opengyre.proxy.dialects.offers import examine
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from opengyre.proxy.refusals import Kind, Refusal, bad

BILLING = "x-anthropic-billing-header"
"""Opens the system block in which Claude Code tells its version; it differs by conversation."""
SIGNATURE = "opengyre"
"""Clients want a signature on thinking; ours proves nothing. Where thinking goes out without its
text, it holds the text instead, so that nothing is lost on the way back."""
ERRORS = {
    Kind.BAD_REQUEST: "invalid_request_error",
    Kind.UNAUTHENTICATED: "authentication_error",
    Kind.NOT_FOUND: "not_found_error",
    Kind.WRONG_METHOD: "invalid_request_error",
    Kind.CONFLICT: "conflict_error",
    Kind.TOO_LARGE: "request_too_large",
    Kind.RATE_LIMITED: "rate_limit_error",
    Kind.FAILED: "api_error",
    Kind.OVERLOADED: "overloaded_error",
}
OVERLOADED = 529
"""This API's own status for it."""
EPOCH = "1970-01-01T00:00:00Z"
"""The policy's birthday: the clients want one."""


class Block(Struct):
    """A content block; which fields it has depends on its type."""

    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    tool_use_id: str = ""
    content: str | list["Block"] | None = None
    is_error: bool | None = None


class WireMessage(Struct):
    role: str
    content: str | list[Block]


class WireTool(Struct):
    name: str
    type: str | None = None
    description: str = ""
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(Struct):
    type: str


class ThinkingConfig(Struct):
    display: str | None = None


class Edit(Struct):
    type: str


class ContextManagement(Struct):
    edits: list[Edit] | None = None


class Request(Struct):
    model: str
    messages: list[WireMessage]
    system: str | list[Block] | None = None
    tools: list[WireTool] | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    context_management: ContextManagement | None = None


class AnthropicDialect:
    """POST /v1/messages."""

    name = "anthropic"
    tool_prefix = "toolu"
    request_id_header = "request-id"
    ignored = frozenset({"stream"})

    def parse(self, body: dict[str, Json]) -> Asked:
        not_applied = examine(body, ANTHROPIC)
        request = convert(body, Request)
        tools = request.tools or []
        managed = request.context_management
        allowed = _calls_allowed(request.tool_choice)
        return Asked(
            conversation=_conversation(request, show_tools=allowed),
            model=request.model,
            stream=bool(request.stream),
            max_tokens=positive(request.max_tokens, "max_tokens"),
            server_tools=tuple(tool.name for tool in tools if tool.input_schema is None),
            not_applied=(*not_applied, *_inner_not_applied(request)),
            calls_allowed=allowed,
            thinking_shown=not request.thinking or request.thinking.display != "omitted",
            echo={} if managed is None else {"context_management": _no_edits(managed)},
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        return {
            **_envelope(asked, answer.call_id),
            "content": list(_blocks(asked, answer)),
            "stop_reason": _stop_reason(asked, answer),
            "usage": _usage(answer.prompt_tokens, answer.output_tokens, answer.thinking_tokens),
        }

    def opening(self, asked: Asked, job: Job) -> bytes:
        message = {**_envelope(asked, job.call_id), "usage": _usage(job.prompt_tokens, 0, 0)}
        return _event("message_start", {"message": message})

    def ping(self) -> bytes:
        return _event("ping", {})

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        for index, block in enumerate(_blocks(asked, answer)):
            empty, deltas = _parts(block)
            yield _event("content_block_start", {"index": index, "content_block": empty})
            for delta in deltas:
                yield _event("content_block_delta", {"index": index, "delta": delta})
            yield _event("content_block_stop", {"index": index})
        ending: Json = {"stop_reason": _stop_reason(asked, answer), "stop_sequence": None}
        usage = _usage(answer.prompt_tokens, answer.output_tokens, answer.thinking_tokens)
        yield _event("message_delta", {"delta": ending, "usage": usage, **asked.echo})
        yield _event("message_stop", {})

    def counted(self, tokens: int) -> dict[str, Json]:
        return {"input_tokens": tokens}

    def models(self, names: Sequence[str]) -> dict[str, Json]:
        data: Json = [self.model(name) for name in names]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}

    def model(self, name: str) -> dict[str, Json]:
        return {"type": "model", "id": name, "display_name": name, "created_at": EPOCH}

    def status(self, refusal: Refusal) -> int:
        return OVERLOADED if refusal.kind is Kind.OVERLOADED else refusal.kind.value

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Json]:
        return {
            "type": "error",
            "error": {"type": ERRORS[refusal.kind], "message": refusal.message},
            "request_id": request_id,
        }


def _conversation(request: Request, *, show_tools: bool) -> Conversation:
    if not request.messages:
        raise bad("wanted at least one message", "messages")
    if request.messages[-1].role == "assistant":
        last = f"messages[{len(request.messages) - 1}]"
        raise bad("wanted the last message from the user; the policy's words are its own", last)
    told_so_far = [
        part
        for index, message in enumerate(request.messages)
        for part in _messages(message, f"messages[{index}]")
    ]
    system, messages = split_system(told_so_far, _system(request.system))
    tools = tuple(
        Tool(tool.name, tool.description, tool.input_schema)
        for tool in request.tools or []
        if show_tools and tool.input_schema is not None
    )
    return Conversation(system, tools, messages)


def _calls_allowed(choice: ToolChoice | None) -> bool:
    if choice is None or choice.type == "auto":
        return True
    if choice.type == "none":
        return False
    raise no_choice("tool_choice.type", choice.type)


def _inner_not_applied(request: Request) -> Iterator[str]:
    if any(_failed(message.content) for message in request.messages):
        yield "messages.is_error"
    for index, tool in enumerate(request.tools or []):
        if tool.input_schema is None:
            yield f"tools[{index}]"
        elif tool.strict:
            yield f"tools[{index}].strict"


def _failed(content: str | list[Block]) -> bool:
    return not isinstance(content, str) and any(block.is_error for block in content)


def _no_edits(managed: ContextManagement) -> Json:
    """What was done of the context edits that were allowed to us: nothing."""
    for index, edit in enumerate(managed.edits or []):
        if edit.type.startswith("compact"):
            place = f"context_management.edits[{index}]"
            raise bad("not served: no compaction is made here", place)
    return {"applied_edits": []}


def _system(system: str | list[Block] | None) -> str:
    if isinstance(system, list):
        for index, block in enumerate(system):
            if block.type != "text":
                raise no_part(block.type, f"system[{index}]")
        texts = [block.text for block in system]
    else:
        texts = [system or ""]
    return join_texts([text for text in texts if not text.startswith(BILLING)])


def _messages(message: WireMessage, place: str) -> Iterator[Message]:
    """One canonical message for each tool result, and one for what stands between them."""
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [Block("text", blocks)]
    if message.role == "assistant":
        yield _assistant(blocks, place)
        return
    if message.role not in {"user", "system"}:
        found = f"found {message.role!r}"
        raise bad(f"wanted user, assistant or system; {found}", f"{place}.role")
    texts: list[str] = []
    for index, block in enumerate(blocks):
        match block.type:
            case "text":
                texts.append(block.text)
            case "tool_result":
                yield from _plain(message.role, texts)
                texts = []
                yield Message(
                    "tool", _result(block, f"{place}.content[{index}]"), call_id=block.tool_use_id
                )
            case kind:
                raise no_part(kind, f"{place}.content[{index}]")
    yield from _plain(message.role, texts, alone=len(blocks) == len(texts))


def _plain(role: str, texts: list[str], *, alone: bool = False) -> Iterator[Message]:
    """Texts as a message; none for no text, unless the message holds nothing else."""
    text = join_texts(texts)
    if text or alone:
        yield Message("system" if role == "system" else "user", text)


def _assistant(blocks: list[Block], place: str) -> Message:
    known = {"text", "thinking", "redacted_thinking", "tool_use"}
    for index, block in enumerate(blocks):
        if block.type not in known:
            raise no_part(block.type, f"{place}.content[{index}]")
    return Message(
        "assistant",
        join_texts([block.text for block in blocks if block.type == "text"]),
        join_texts([_thought(block, place) for block in blocks if block.type == "thinking"]),
        tuple(
            ToolCall(block.id, block.name, block.input)
            for block in blocks
            if block.type == "tool_use"
        ),
    )


def _thought(block: Block, place: str) -> str:
    return block.thinking or unseal(block.signature, f"{place}.content.signature")


def _result(block: Block, place: str) -> str:
    content = block.content or ""
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type != "text":
            raise no_part(part.type, f"{place}.content[{index}]")
    return join_texts([part.text for part in content])


def _event(name: str, fields: dict[str, Json]) -> bytes:
    return sse({"type": name, **fields}, name)


def _envelope(asked: Asked, call_id: str) -> dict[str, Json]:
    return {
        "id": f"msg_{call_id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        **asked.echo,
    }


def _usage(prompt: int, output: int, thinking: int) -> dict[str, Json]:
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thinking},
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _blocks(asked: Asked, answer: Answer) -> Iterator[dict[str, Json]]:
    message = told(asked, answer)
    if message.thinking:
        shown, signature = message.thinking, SIGNATURE
        if not asked.thinking_shown:
            shown, signature = "", seal(message.thinking)
        yield {"type": "thinking", "thinking": shown, "signature": signature}
    if message.text:
        yield {"type": "text", "text": message.text}
    for call in message.calls:
        yield {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}


def _parts(block: dict[str, Json]) -> tuple[dict[str, Json], list[dict[str, Json]]]:
    """(the block as it starts, the deltas that fill it)."""
    if block["type"] == "thinking":
        return {**block, "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    arguments = arguments_text(block["input"])
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]


def _stop_reason(asked: Asked, answer: Answer) -> str:
    if answer.finish is FinishReason.LENGTH:
        return "max_tokens"
    return "tool_use" if told(asked, answer).calls else "end_turn"
