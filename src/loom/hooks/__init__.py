"""Hooks for the plugins of coding agents: they store the conversation and add relevant memories to a prompt.

`answering` answers one event of Claude Code or Codex and makes the text for its prompt, `following` brings a
transcript into the memory, `projects` finds the memory of a project, and `reports` keeps a log without content.
docs/plugins.md describes it.
"""

from __future__ import annotations

__all__: list[str] = []
