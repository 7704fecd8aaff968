"""A person edits, an agent continues after a restart, and two edits at once become a conflict that both can see."""

from __future__ import annotations

import tempfile
from pathlib import Path

from loom.notebook import Notebook


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Notebook(folder, agent="writer") as notebook:
            notebook.learn("Ana wants short chapters.")
            notebook.plan(["read the notes", "write chapter one", "check the links"])
            machine = notebook.machine(do=lambda item, variables: print(f"agent: {item}"))
            report = machine.step()
            print("next:", report.process.items[report.process.pointer - 1].text)

        knowledge = Path(folder, ".notes", "writer", "agent_knowledge.md")
        knowledge.write_text(knowledge.read_text() + "- Tables have captions.\n")

        # Another process: it reads the edit and goes on with the second step.
        with Notebook(folder, agent="writer") as notebook:
            print("read from the file:", ", ".join(notebook.sync().read))
            notebook.machine(do=lambda item, variables: print(f"agent: {item}")).run()

            knowledge.write_text("# Agent Knowledge\n\n- Ana wants long chapters.\n")
            notebook.memory.update(f"page:{notebook.knowledge_page.path}", "# Agent Knowledge\n\n- No chapters.\n")
            print("conflicts:", ", ".join(notebook.sync().conflicts))
            print(knowledge.read_text())


if __name__ == "__main__":
    main()
