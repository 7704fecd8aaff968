"""Exports of ChatGPT: `conversations.json`, or several numbered files like it, in the archive or unpacked.

A conversation is a tree in which every edit and every new answer starts a branch. Only the branch that the user sees
is read: from `current_node` up to the root. Hidden nodes are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

from loom.errors import InvalidInput
from loom.importers.conversations import conversations_in
from loom.importers.messages import (
    HistoryMessage,
    Read,
    SourceFile,
    branch_to,
    digest_id,
    moment_of,
    native_id,
    text_field,
)

__all__ = ["NAME", "is_conversation", "read"]

NAME: Final = "chatgpt"

_WITHOUT_WORDS = (
    "thoughts",
    "reasoning_recap",
    "user_editable_context",
    "model_editable_context",
    "system_error",
    "app_pairing_content",
)


def is_conversation(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a conversation of an export."""
    return isinstance(found.get("mapping"), Mapping)


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return conversations_in(file, opened, _messages)


def _messages(found: Mapping[str, Any], position: str) -> Iterator[HistoryMessage]:
    nodes = found.get("mapping")
    if not isinstance(nodes, Mapping):
        raise InvalidInput("a conversation has no mapping")
    parents = {name: node.get("parent") for name, node in nodes.items() if isinstance(node, Mapping)}
    conversation = text_field(found, "conversation_id", "id")
    told = {"conversation": text_field(found, "title")}
    began = moment_of(found.get("create_time"))
    for name in branch_to(_leaf(found, nodes, parents), parents):
        message = nodes[name].get("message")
        if not isinstance(message, Mapping) or _is_hidden(message):
            continue
        said = _said(message)
        if said is None:
            continue
        details = message.get("metadata")
        model = text_field(details, "model_slug") if isinstance(details, Mapping) else None
        metadata = {**told, "model": model if said["role"] == "assistant" else None}
        yield HistoryMessage(
            native_id(NAME, text_field(message, "id") or name) or digest_id(NAME, conversation, name),
            said,
            f"{position}, node {name[:60]}",
            conversation,
            moment_of(message.get("create_time")) or began,
            {key: value for key, value in metadata.items() if value is not None},
        )


def _leaf(found: Mapping[str, Any], nodes: Mapping[str, Any], parents: Mapping[str, Any]) -> str | None:
    """Return the leaf of the visible branch: `current_node`, else the newest node without a child."""
    current = found.get("current_node")
    if isinstance(current, str) and current in parents:
        return current
    inner = {parent for parent in parents.values() if isinstance(parent, str)}
    leaves = [name for name in parents if name not in inner]
    return max(leaves, key=lambda name: _time_of(nodes[name]), default=None)


def _time_of(node: Mapping[str, Any]) -> float:
    message = node.get("message")
    moment = moment_of(message.get("create_time")) if isinstance(message, Mapping) else None
    return moment.timestamp() if moment else 0.0


def _is_hidden(message: Mapping[str, Any]) -> bool:
    metadata = message.get("metadata")
    hidden = isinstance(metadata, Mapping) and metadata.get("is_visually_hidden_from_conversation") is True
    return hidden or message.get("weight") == 0


def _said(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a message to the common form. Returns None if it has no words."""
    author, content = message.get("author"), message.get("content")
    role = author.get("role") if isinstance(author, Mapping) else None
    if not isinstance(role, str) or not isinstance(content, Mapping):
        raise InvalidInput("a message has no author or no content")
    if content.get("content_type") in _WITHOUT_WORDS:
        return None
    text = _text(content)
    if not text.strip():
        return None
    recipient = message.get("recipient")
    if role == "assistant" and isinstance(recipient, str) and recipient not in ("all", ""):
        call = {"id": "", "type": "function", "function": {"name": recipient, "arguments": text}}
        return {"role": role, "content": None, "tool_calls": [call]}
    name = text_field(author, "name") if isinstance(author, Mapping) else None
    return {"role": role, "content": text, **({"name": name} if name else {})}


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(text for text in map(_part, parts) if text)
    told = [text_field(content, name) for name in ("title", "url", "text", "result")]
    return "\n".join(text for text in told if text)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidInput("a part of a message is neither a text nor an object")
    if text := text_field(part, "text"):
        return text
    kind = str(part.get("content_type", ""))
    return f"[{kind.split('_')[0]}]" if kind.isidentifier() and kind.isascii() else ""
