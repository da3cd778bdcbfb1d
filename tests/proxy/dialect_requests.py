"""One conversation as each dialect's clients would send it."""

import json
from typing import Any

from opengyre.proxy.messages import Conversation, Message


def anthropic_body(conversation: Conversation) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for message in conversation.messages:
        if message.role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message.call_id,
                "content": [{"type": "text", "text": message.text}],
            }
            if messages and isinstance(messages[-1]["content"], list) and _results(messages[-1]):
                messages[-1]["content"].append(result)
            else:
                messages.append({"role": "user", "content": [result]})
        elif message.role == "assistant":
            messages.append({"role": "assistant", "content": _blocks(message)})
        else:
            messages.append({"role": message.role, "content": message.text})
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in conversation.tools
    ]
    return {
        "model": "m",
        "max_tokens": 9,
        "system": conversation.system,
        "tools": tools,
        "messages": messages,
    }


def _results(message: dict[str, Any]) -> bool:
    return all(block["type"] == "tool_result" for block in message["content"])


def _blocks(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.thinking:
        blocks.append({"type": "thinking", "thinking": message.thinking, "signature": "s"})
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    blocks += [
        {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        for call in message.calls
    ]
    return blocks


def chat_body(conversation: Conversation) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if conversation.system:
        messages.append({"role": "system", "content": conversation.system})
    for message in conversation.messages:
        told: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.role == "system":
            told["role"] = "developer"
        if message.call_id:
            told["tool_call_id"] = message.call_id
        if message.thinking:
            told["reasoning_content"] = message.thinking
        if message.calls:
            told["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in message.calls
            ]
        messages.append(told)
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in conversation.tools
    ]
    return {"model": "m", "messages": messages, "tools": tools}


def responses_body(conversation: Conversation) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for message in conversation.messages:
        if message.role == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message.call_id,
                    "output": message.text,
                }
            )
        elif message.role == "assistant":
            items += _answer_items(message)
        else:
            role = "developer" if message.role == "system" else message.role
            part = {"type": "input_text", "text": message.text}
            items.append({"type": "message", "role": role, "content": [part]})
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": False,
        }
        for tool in conversation.tools
    ]
    return {"model": "m", "instructions": conversation.system, "input": items, "tools": tools}


def _answer_items(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.thinking:
        summary = [{"type": "summary_text", "text": message.thinking}]
        items.append({"type": "reasoning", "id": "rs", "summary": summary})
    if message.text or not message.calls:
        part = {"type": "output_text", "text": message.text, "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [part]})
    items += [
        {
            "type": "function_call",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in message.calls
    ]
    return items
