"""What the plugins of coding agents call: hooks that keep a conversation and put fitting memories into a prompt.

`answering` answers one event of Claude Code or Codex, `following` brings a transcript into the memory, `quoting`
makes the text for a prompt, `projects` says where the memory of a project is, and `reports` keeps a log without
content. docs/plugins.md describes it.
"""

from __future__ import annotations

__all__: list[str] = []
