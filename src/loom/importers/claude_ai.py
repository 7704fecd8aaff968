"""Exports of Claude.ai: `conversations.json`, in the archive or unpacked."""

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
    objects_in,
    split_results,
    text_field,
)

__all__ = ["NAME", "is_conversation", "read"]

NAME: Final = "claude-ai"

_ROLES = {"human": "user", "assistant": "assistant"}


def is_conversation(found: Mapping[str, Any]) -> bool:
    """Return whether an object is a conversation of an export."""
    return isinstance(found.get("chat_messages"), list)


def read(file: SourceFile, opened: BinaryIO) -> Read:
    return conversations_in(file, opened, _messages)


def _messages(found: Mapping[str, Any], position: str) -> Iterator[HistoryMessage]:
    if not isinstance(found.get("chat_messages"), list):
        raise InvalidInput("a conversation has no chat_messages")
    conversation = text_field(found, "uuid")
    metadata = {"conversation": title} if (title := text_field(found, "name")) else {}
    began = moment_of(found.get("created_at"))
    for number, message in enumerate(_on_branch(found), 1):
        role = _ROLES.get(str(message.get("sender")))
        if role is None:
            raise InvalidInput(f"message {number:,} has no known sender")
        place = f"{position}, message {number:,}"
        own = native_id(NAME, message.get("uuid")) or digest_id(NAME, conversation, number)
        moment = moment_of(message.get("created_at")) or began
        for part, said in enumerate(_said(message, role)):
            yield HistoryMessage(f"{own}:{part}" if part else own, said, place, conversation, moment, metadata)
        for part, attached in enumerate(objects_in(message.get("attachments"))):
            text, name = text_field(attached, "extracted_content"), text_field(attached, "file_name")
            if text:
                # The content of an attached file is not in the user's own words.
                yield HistoryMessage(
                    f"{own}:file-{part}",
                    {"role": None, "content": text, **({"name": name} if name else {})},
                    place,
                    conversation,
                    moment,
                    metadata,
                    trust="unknown",
                    kind="context",
                )


def _on_branch(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages of the visible branch if the export names it, otherwise all messages in order."""
    messages = objects_in(found["chat_messages"])
    by_id = {one["uuid"]: one for one in messages if isinstance(one.get("uuid"), str)}
    leaf = found.get("current_leaf_message_uuid")
    if not isinstance(leaf, str) or leaf not in by_id:
        return messages
    return [by_id[id] for id in branch_to(leaf, {id: one.get("parent_message_uuid") for id, one in by_id.items()})]


def _said(message: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    parts = objects_in(message.get("content"))
    if not any(isinstance(part.get("text"), str) or part.get("type") == "tool_use" for part in parts):
        text = text_field(message, "text")
        return [{"role": role, "content": text}] if text else []
    plain = [_part(part) for part in parts]
    return [one for one in split_results({"role": role, "content": plain}) if one["content"] not in ("", [])]


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part without citations, times and flags."""
    if part.get("type") == "text":
        return {"type": "text", "text": part.get("text") if isinstance(part.get("text"), str) else ""}
    kept = ("type", "id", "name", "input", "content", "tool_use_id", "thinking")
    return {name: part[name] for name in kept if name in part}
