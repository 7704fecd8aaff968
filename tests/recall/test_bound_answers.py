"""The ranks of the turns of standing instructions among the hits of a question that meets them."""

from __future__ import annotations

import loom


def remember(memory: loom.Memory, replying: str) -> None:
    for number in range(6):
        memory.remember(f"The login form of page {number} needs code.", name="Ana", role="user", session_id="s")
        memory.remember("Here it is.", name="Ben", role=replying, session_id="s")
    memory.remember("Always show types when I ask for code.", id="rule", name="Ana", role="user", session_id="s")
    memory.remember("Noted.", name="Ben", role=replying, session_id="s")
    memory.flush()


def test_an_instruction_to_an_assistant_follows_the_first_answers_of_a_request() -> None:
    with loom.open(embedder="none") as memory:
        remember(memory, "assistant")
        hits = [hit.id for hit in memory.recall("Write code for the login form", limit=6)]
        assert "rule" in hits[:4]


def test_what_people_ask_of_each_other_binds_no_answer() -> None:
    with loom.open(embedder="none") as memory:
        remember(memory, "user")
        hits = memory.recall("Write code for the login form", limit=20)
        assert all("instruction" not in hit.signals for hit in hits)
