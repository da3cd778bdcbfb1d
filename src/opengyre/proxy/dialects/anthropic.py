"""Anthropic Messages, as Claude Code and the official SDK speak it.

Invariant: what goes out as blocks comes back as the same canonical message.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.base import arguments_text, convert, join_texts, no_images, sse
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from opengyre.proxy.refusals import Kind, Refusal, bad

BILLING = "x-anthropic-billing-header"
"""Opens the system block in which Claude Code tells its version; it differs by conversation."""
SIGNATURE = "opengyre"
"""Clients want a signature on thinking; ours proves nothing, since we find thinking by its call."""
ERRORS = {
    Kind.BAD_REQUEST: "invalid_request_error",
    Kind.UNAUTHENTICATED: "authentication_error",
    Kind.NOT_FOUND: "not_found_error",
    Kind.TOO_LARGE: "request_too_large",
    Kind.FAILED: "api_error",
}


class Text(Struct, tag="text"):
    text: str


class Thinking(Struct, tag="thinking"):
    thinking: str


class RedactedThinking(Struct, tag="redacted_thinking"):
    pass


class Image(Struct, tag="image"):
    pass


class Document(Struct, tag="document"):
    pass


class ToolUse(Struct, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ToolResult(Struct, tag="tool_result"):
    tool_use_id: str
    content: str | list[Text | Image | Document] | None = None


Block = Text | Thinking | RedactedThinking | Image | Document | ToolUse | ToolResult


class WireMessage(Struct):
    role: str
    content: str | list[Block]


class WireTool(Struct):
    name: str
    type: str | None = None
    description: str = ""
    input_schema: dict[str, Any] | None = None


class Format(Struct):
    type: str = ""


class OutputConfig(Struct):
    format: Format | None = None


class Request(Struct):
    model: str
    messages: list[WireMessage]
    system: str | list[Text] = ""
    tools: list[WireTool] = field(default_factory=list)
    max_tokens: int | None = None
    stream: bool = False
    stop_sequences: list[str] | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None


class AnthropicDialect:
    """POST /v1/messages."""

    name = "anthropic"
    tool_prefix = "toolu"
    ignored = frozenset({"stream"})

    def parse(self, body: dict[str, Json]) -> Asked:
        request = convert(body, Request)
        if request.stop_sequences:
            raise bad("stop_sequences are not served; leave them out")
        messages = [part for message in request.messages for part in _messages(message)]
        tools = tuple(
            Tool(tool.name, tool.description, tool.input_schema)
            for tool in request.tools
            if tool.input_schema is not None
        )
        return Asked(
            conversation=Conversation(_system(request.system), tools, tuple(messages)),
            model=request.model,
            stream=request.stream,
            max_tokens=request.max_tokens,
            server_tools=tuple(tool.name for tool in request.tools if tool.input_schema is None),
            output_format=_output_format(request),
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        return {
            **_envelope(asked, answer.call_id),
            "content": list(_blocks(answer.message)),
            "stop_reason": _stop_reason(answer),
            "usage": _usage(answer.prompt_tokens, answer.output_tokens),
        }

    def opening(self, asked: Asked, job: Job) -> bytes:
        message = {**_envelope(asked, job.call_id), "usage": _usage(job.prompt_tokens, 0)}
        return _event("message_start", {"message": message})

    def ping(self) -> bytes:
        return _event("ping", {})

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        for index, block in enumerate(_blocks(answer.message)):
            empty, deltas = _parts(block)
            yield _event("content_block_start", {"index": index, "content_block": empty})
            for delta in deltas:
                yield _event("content_block_delta", {"index": index, "delta": delta})
            yield _event("content_block_stop", {"index": index})
        ending: Json = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        usage = _usage(answer.prompt_tokens, answer.output_tokens)
        yield _event("message_delta", {"delta": ending, "usage": usage})
        yield _event("message_stop", {})

    def error(self, refusal: Refusal) -> dict[str, Json]:
        return {
            "type": "error",
            "error": {"type": ERRORS[refusal.kind], "message": refusal.message},
        }


def _system(system: str | list[Text]) -> str:
    texts = [system] if isinstance(system, str) else [block.text for block in system]
    return join_texts([text for text in texts if not text.startswith(BILLING)])


def _messages(message: WireMessage) -> Iterator[Message]:
    """One canonical message for each tool result, and one for what stands between them."""
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [Text(blocks)]
    if any(isinstance(block, Image | Document) for block in blocks):
        raise no_images()
    if message.role == "assistant":
        yield _assistant(blocks)
        return
    if message.role not in {"user", "system"}:
        raise bad(f"wanted role user, assistant or system; found {message.role!r}")
    texts: list[str] = []
    for block in blocks:
        match block:
            case Text():
                texts.append(block.text)
            case ToolResult():
                yield from _plain(message.role, texts)
                texts = []
                yield Message("tool", _result(block), call_id=block.tool_use_id)
            case _:
                raise bad(f"wanted text or tool_result from the user; found {type(block).__name__}")
    yield from _plain(message.role, texts, alone=len(blocks) == len(texts))


def _plain(role: str, texts: list[str], *, alone: bool = False) -> Iterator[Message]:
    """Texts as a message; none for no text, unless the message holds nothing else."""
    text = join_texts(texts)
    if text or alone:
        yield Message("system" if role == "system" else "user", text)


def _assistant(blocks: list[Block]) -> Message:
    if any(isinstance(block, ToolResult) for block in blocks):
        raise bad("wanted text, thinking or tool_use from the assistant; found tool_result")
    return Message(
        "assistant",
        join_texts([block.text for block in blocks if isinstance(block, Text)]),
        join_texts([block.thinking for block in blocks if isinstance(block, Thinking)]),
        tuple(
            ToolCall(block.id, block.name, block.input)
            for block in blocks
            if isinstance(block, ToolUse)
        ),
    )


def _result(block: ToolResult) -> str:
    content = block.content or ""
    if isinstance(content, str):
        return content
    if any(not isinstance(part, Text) for part in content):
        raise no_images()
    return join_texts([part.text for part in content if isinstance(part, Text)])


def _output_format(request: Request) -> str | None:
    format_ = request.output_config.format if request.output_config else None
    format_ = format_ or request.output_format
    return format_.type if format_ else None


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
    }


def _usage(prompt: int, output: int) -> dict[str, Json]:
    return {
        "input_tokens": prompt,
        "output_tokens": output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _blocks(message: Message) -> Iterator[dict[str, Json]]:
    if message.thinking:
        yield {"type": "thinking", "thinking": message.thinking, "signature": SIGNATURE}
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


def _stop_reason(answer: Answer) -> str:
    if answer.finish is FinishReason.LENGTH:
        return "max_tokens"
    return "tool_use" if answer.message.calls else "end_turn"
