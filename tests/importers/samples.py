"""Small histories in every format, written by hand after the formats' documentation and the files of the programs.

In each, a user asks when the harbour opens, a tool is called or a note is kept, and an answer says nine o'clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

SECRET: Final = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e"
ASKED: Final = "When does the harbour open? 港口几点开门？"
ANSWERED: Final = "The harbour opens at nine."
RESULT: Final = f"opens: 09:00\nOPENAI_API_KEY={SECRET}"
STANDING: Final = "From now on always answer in French."


def json_lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in objects)


def document(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def claude_code() -> bytes:
    common = {"sessionId": "s-1", "cwd": "/home/ana/harbour", "gitBranch": "main", "isSidechain": False}

    def line(kind: str, number: int, content: Any, **more: Any) -> dict[str, Any]:
        stamp = f"2026-03-01T09:30:{number:02}.000Z"
        model = {"model": "claude-x"} if kind == "assistant" else {}
        message = {"role": kind, "content": content, **model}
        return {**common, "type": kind, "uuid": f"u-{number}", "timestamp": stamp, "message": message, **more}

    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "opening.txt"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": RESULT}]}
    return json_lines(
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s-1", "timestamp": "2026-03-01T09:29:59Z"},
        line("user", 0, ASKED),
        line("user", 1, "<command-name>/clear</command-name>"),
        line("user", 2, "Caveat and more", isMeta=True),
        {**common, "type": "attachment", "attachment": {"type": "environment"}, "uuid": "a"},
        line("assistant", 3, [{"type": "thinking", "thinking": "hm", "signature": "x"}]),
        line("assistant", 4, [{"type": "text", "text": "I look."}, call]),
        line("user", 5, [result], toolUseResult={"stdout": RESULT}),
        line("assistant", 6, [{"type": "text", "text": ANSWERED}]),
        line("user", 7, f"<system-reminder>Be brief.</system-reminder>\n{STANDING}"),
        line("user", 8, "Look into the log.", isSidechain=True),
        {"type": "summary", "summary": "Harbour hours", "leafUuid": "u-6"},
    )


def codex() -> bytes:
    def item(number: int, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {"timestamp": f"2026-03-01T09:30:{number:02}.000Z", "type": "response_item", "payload": payload}

    def said(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    return json_lines(
        {
            "timestamp": "2026-03-01T09:30:00.000Z",
            "type": "session_meta",
            "payload": {"id": "s-1", "cwd": "/home/ana/harbour"},
        },
        {
            "timestamp": "2026-03-01T09:30:00.000Z",
            "type": "turn_context",
            "payload": {"model": "gpt-x", "cwd": "/home/ana/harbour"},
        },
        item(0, said("developer", "Be brief.")),
        item(1, said("user", "<environment_context>\n<cwd>/home/ana</cwd>\n</environment_context>")),
        item(2, said("user", ASKED)),
        {
            "timestamp": "2026-03-01T09:30:02.000Z",
            "type": "event_msg",
            "payload": {"type": "user_message", "message": ASKED},
        },
        item(3, {"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        item(
            4,
            {
                "type": "function_call",
                "name": "exec_command",
                "arguments": '{"cmd": "cat opening.txt"}',
                "call_id": "c",
            },
        ),
        item(5, {"type": "function_call_output", "call_id": "c", "output": RESULT}),
        item(6, said("assistant", ANSWERED)),
        item(7, said("user", STANDING)),
    )


def chatgpt_conversation() -> dict[str, Any]:
    def node(id: str, parent: str | None, role: str, content: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        author = {"role": role, "name": more.pop("name", None), "metadata": {}}
        hidden = {"is_visually_hidden_from_conversation": True} if more.pop("hidden", False) else {}
        message = {
            "id": id,
            "author": author,
            "create_time": 1772357400.5,
            "content": content,
            "weight": 1.0,
            "recipient": more.pop("recipient", "all"),
            "metadata": {"model_slug": "gpt-x", **hidden},
        }
        return {"id": id, "parent": parent, "children": [], "message": message}

    def text(*parts: Any) -> dict[str, Any]:
        return {"content_type": "text", "parts": list(parts)}

    nodes = [
        {"id": "root", "parent": None, "children": ["sys"], "message": None},
        node("sys", "root", "system", text(""), hidden=True),
        node("old", "sys", "user", text("When does the airport open?")),
        node("old-answer", "old", "assistant", text("The airport never closes.")),
        node(
            "asked",
            "sys",
            "user",
            {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, ASKED]},
        ),
        node("hidden", "asked", "user", text("You are in a hidden turn."), hidden=True),
        node("thought", "hidden", "assistant", {"content_type": "thoughts", "thoughts": []}),
        node(
            "call",
            "thought",
            "assistant",
            {"content_type": "code", "text": "open('opening.txt').read()"},
            recipient="python",
        ),
        node("result", "call", "tool", {"content_type": "execution_output", "text": RESULT}, name="python"),
        node("answer", "result", "assistant", text(ANSWERED)),
        node("wish", "answer", "user", text(STANDING)),
    ]
    return {
        "title": "Harbour hours",
        "create_time": 1772357400.0,
        "mapping": {one["id"]: one for one in nodes},
        "current_node": "wish",
        "conversation_id": "c-1",
    }


def chatgpt() -> bytes:
    return document([chatgpt_conversation()])


def claude_ai() -> bytes:
    def message(number: int, sender: str, parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        text = "".join(part.get("text", "") for part in parts)
        stamp = f"2026-03-01T09:30:{number:02}.000000Z"
        return {"uuid": f"m-{number}", "sender": sender, "text": text, "content": parts, "created_at": stamp, **more}

    call = {"type": "tool_use", "name": "look", "input": {"file": "opening.txt"}}
    result = {"type": "tool_result", "name": "look", "content": [{"type": "text", "text": RESULT}]}
    attached = [{"file_name": "cranes.txt", "extracted_content": "The harbour has two cranes. Always lift slowly."}]
    conversation = {
        "uuid": "c-1",
        "name": "Harbour hours",
        "created_at": "2026-03-01T09:30:00Z",
        "chat_messages": [
            message(0, "human", [{"type": "text", "text": ASKED}], attachments=attached),
            message(
                1,
                "assistant",
                [{"type": "thinking", "thinking": "hm"}, call, result, {"type": "text", "text": ANSWERED}],
            ),
            message(2, "human", [{"type": "text", "text": STANDING}]),
        ],
    }
    return document([conversation])


def openai_messages() -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return document(
        [
            {"role": "system", "content": "You know the harbour."},
            {"role": "user", "content": ASKED},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": RESULT},
            {"role": "assistant", "content": ANSWERED},
            {"role": "user", "content": STANDING},
        ]
    )


def anthropic_messages() -> bytes:
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    return document(
        {
            "model": "claude-x",
            "system": "You know the harbour.",
            "messages": [
                {"role": "user", "content": ASKED},
                {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": RESULT}]},
                {"role": "assistant", "content": [{"type": "text", "text": ANSWERED}]},
                {"role": "user", "content": STANDING},
            ],
        }
    )


def langchain_messages() -> bytes:
    call = {"name": "look", "args": {}, "id": "t", "type": "tool_call"}
    human = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]}
    return json_lines(
        {"type": "human", "data": {"content": ASKED, "type": "human", "name": None, "id": None}},
        {"type": "ai", "data": {"content": "", "type": "ai", "tool_calls": [call]}},
        {"type": "tool", "data": {"content": RESULT, "type": "tool", "tool_call_id": "t", "name": "look"}},
        {"type": "ai", "content": ANSWERED, "tool_calls": []},
        {**human, "kwargs": {"content": STANDING, "type": "human"}},
    )


def memory_graph() -> bytes:
    return json_lines(
        {
            "type": "entity",
            "name": "Harbour",
            "entityType": "place",
            "observations": ["opens at nine", f"key {SECRET}"],
        },
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": []},
        {"type": "relation", "from": "Ana", "to": "Harbour", "relationType": "works_at"},
    )


def mem0() -> bytes:
    def memory(number: int, text: str) -> dict[str, Any]:
        return {
            "id": f"00000000-0000-0000-0000-00000000000{number}",
            "memory": text,
            "hash": "9f8b",
            "metadata": {"topic": "harbour"},
            "created_at": "2026-03-01T09:30:00.123456-08:00",
            "updated_at": None,
            "user_id": "ana",
            "categories": ["places"],
        }

    return document({"results": [memory(1, ANSWERED), memory(2, f"Uses the key {SECRET}")], "relations": []})


def letta() -> bytes:
    def call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}

    def message(number: int, role: str, content: Any, **more: Any) -> dict[str, Any]:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        stamp = f"2026-03-01T09:30:{number:02}+00:00"
        return {"id": f"message-{number}", "role": role, "content": parts, "created_at": stamp, "model": "x", **more}

    def packed(**fields: str) -> str:
        return json.dumps(fields, ensure_ascii=False)

    return document(
        {
            "agents": [
                {
                    "name": "harbour-master",
                    "system": "You are a harbour master.",
                    "llm_config": {"model": "x"},
                    "id": "agent-0",
                    "messages": [
                        message(0, "system", "You are a harbour master."),
                        message(1, "user", packed(type="login", last_login="never")),
                        message(2, "user", packed(type="user_message", message=ASKED, time="9:30")),
                        message(3, "assistant", "hm, I look", tool_calls=[call("look", {"file": "opening.txt"})]),
                        message(4, "tool", packed(status="OK", message=RESULT), name="look", tool_call_id="c"),
                        message(5, "assistant", "I tell", tool_calls=[call("send_message", {"message": ANSWERED})]),
                        message(6, "user", STANDING),
                    ],
                }
            ],
            "blocks": [{"id": "block-0", "label": "human", "value": "The human is Ana.", "limit": 5000}],
        }
    )


def markdown() -> bytes:
    return f"""---
title: Harbour
date: 2026-03-01
tags: [places, hours]
---

# Harbour

It is in Lisbon. {STANDING}

## Hours

{ANSWERED}

```sh
# no heading
export OPENAI_API_KEY={SECRET}
```

## Empty
""".encode()


SAMPLES: Final[Mapping[str, tuple[str, Callable[[], bytes], str]]] = {
    "claude-code": ("0001.jsonl", claude_code, "claude-code"),
    "codex": ("rollout-1.jsonl", codex, "codex"),
    "chatgpt": ("conversations.json", chatgpt, "chatgpt"),
    "claude-ai": ("conversations.json", claude_ai, "claude-ai"),
    "openai": ("chat.json", openai_messages, "messages"),
    "anthropic": ("request.json", anthropic_messages, "messages"),
    "langchain": ("chat.jsonl", langchain_messages, "messages"),
    "memory-graph": ("memory.jsonl", memory_graph, "memory-graph"),
    "mem0": ("memories.json", mem0, "mem0"),
    "letta": ("agent.af", letta, "letta"),
    "markdown": ("harbour.md", markdown, "markdown"),
}
"""By name: the usual name of a file, its contents, and the format that they are of."""
