"""Remember, recall, correct, forget: the everyday verbs in one file.

Run it with: python examples/quickstart.py
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import loom


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, loom.open(Path(folder) / "agent.loom") as memory:
        memory.remember("We chose the authorization-code flow, it is the safest.", role="user", name="Ana")
        memory.remember(
            "The release is on Friday.", id="release-day", role="user", created_at=datetime(2026, 3, 2, tzinfo=UTC)
        )
        # A whole exchange at once: one transaction, all or nothing.
        memory.remember(
            [
                {"role": "user", "content": "Which port does the staging server use?"},
                {"role": "assistant", "content": "Staging listens on port 8443."},
            ],
            session_id="ops",
        )

        print("Which flow did we choose?")
        for hit in memory.recall("Which flow did we choose?", limit=1):
            print(f"  {hit.content}  [{hit.why}; {hit.tokens} tokens]")

        memory.update("release-day", "The release has moved to Monday.")
        print("When is the release?")
        print("  now:       ", memory.recall("When is the release?", limit=1)[0].content)
        then = memory.recall("When is the release?", limit=1, as_of=datetime(2026, 3, 3, tzinfo=UTC))
        print("  on 3 March:", then[0].content)

        print("What do we know about staging, in the session 'ops'?")
        for hit in memory.recall("staging port", session_id="ops"):
            print(f"  {hit.role}: {hit.content}")

        receipt = memory.forget("release-day")
        print(f"forgotten: {receipt.records} records; left: {memory.get('release-day')}")


if __name__ == "__main__":
    main()
