"""A scripted model behind a unix socket: one tool call, then a closing text, in three dialects."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Body = dict[str, Any]


@dataclass
class Scripted:
    """Runs these shell commands one a turn, then says DONE."""

    commands: list[str]
    requests: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def next_command(self) -> str | None:
        turn = len(self.requests) - 1
        return self.commands[turn] if turn < len(self.commands) else None

    async def note(self, request: web.Request) -> Body:
        body: Body = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path)
        return body

    async def messages(self, request: web.Request) -> web.StreamResponse:
        body = await self.note(request)
        command, turn = self.next_command(), len(self.requests)
        if command is None:
            block: Body = {"type": "text", "text": ""}
            delta: Body = {"type": "text_delta", "text": "DONE"}
        else:
            block = {"type": "tool_use", "id": f"toolu_{turn:04}", "name": "Bash", "input": {}}
            words = json.dumps({"command": command})
            delta = {"type": "input_json_delta", "partial_json": words}
        stop = "end_turn" if command is None else "tool_use"
        usage = {"input_tokens": 10, "output_tokens": 5}
        message = {
            "id": f"msg_{turn:04}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        ended = {"stop_reason": stop, "stop_sequence": None}
        return await _stream(
            request,
            [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": ended, "usage": usage},
                {"type": "message_stop"},
            ],
        )

    async def responses(self, request: web.Request) -> web.StreamResponse:
        await self.note(request)
        command, turn = self.next_command(), len(self.requests)
        if command is None:
            text = {"type": "output_text", "text": "DONE", "annotations": []}
            item: Body = {"type": "message", "role": "assistant", "content": [text]}
        else:
            item = self._codex_call(command, turn)
        item |= {"id": f"item_{turn}", "status": "completed"}
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        }
        response: Body = {"id": f"resp_{turn}", "object": "response", "output": []}
        whole = response | {"status": "completed", "output": [item], "usage": usage}
        return await _stream(
            request,
            [
                {"type": "response.created", "response": response | {"status": "in_progress"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": whole},
            ],
        )

    def _codex_call(self, command: str, turn: int) -> Body:
        names = [tool.get("name") for tool in self.requests[-1]["tools"]]
        name = "exec_command" if "exec_command" in names else "shell"
        script = {"cmd": command}
        words = json.dumps(script if name == "exec_command" else {"command": ["sh", "-c", command]})
        return {
            "type": "function_call",
            "call_id": f"call_{turn}",
            "name": name,
            "arguments": words,
        }

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await self.note(request)
        command, turn = self.next_command(), len(self.requests)
        if command is None:
            command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        message = {"role": "assistant", "content": "next", "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return web.json_response(
            {
                "id": f"chat_{turn}",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [choice],
                "usage": usage,
            }
        )


@asynccontextmanager
async def serving(scripted: Scripted, socket: Path) -> AsyncIterator[None]:
    """The scripted model on a unix socket for the length of the block."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/run/{execution}/v1/messages", scripted.messages)
    app.router.add_post("/run/{execution}/v1/responses", scripted.responses)
    app.router.add_post("/run/{execution}/v1/chat/completions", scripted.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(socket)).start()
        yield
    finally:
        await runner.cleanup()


async def _stream(request: web.Request, events: list[Body]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        await response.write(text.encode())
    await response.write_eof()
    return response
