"""Two MCP servers, a shell and a Python process on one store at once, and the death of any of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import loom
from tests.mcp_server.sessions import LOOM, RawServer, environment

WRITES = 12

PYTHON = """
import sys, loom
with loom.open(sys.argv[1], embedder="none") as memory:
    for number in range(int(sys.argv[2])):
        memory.remember(f"python note {number}", id=f"python-{number}", session_id="python")
        print(f"python-{number}", flush=True)
"""


def shell(store: Path, number: int) -> str:
    words = ["remember", f"shell note {number}", "--id", f"shell-{number}", "--store", str(store)]
    subprocess.run([sys.executable, *LOOM, *words], env=environment(), capture_output=True, check=True)
    return f"shell-{number}"


def test_servers_shells_and_programs_share_one_store_and_lose_nothing(tmp_path: Path) -> None:
    store = tmp_path / "memory.loom"
    acknowledged: list[str] = []

    def by_server(server: RawServer) -> None:
        for number in range(WRITES):
            told = server.call("remember", {"text": f"server note {number} of {server.process.pid}"})
            acknowledged.append(told["result"]["structuredContent"]["memories"][0]["id"])

    def by_shell() -> None:
        acknowledged.extend(shell(store, number) for number in range(3))

    def by_python() -> None:
        done = subprocess.run(
            [sys.executable, "-c", PYTHON, str(store), str(WRITES)],
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        acknowledged.extend(done.stdout.split())

    with RawServer(store) as first, RawServer(store) as second:
        first.begin()
        second.begin("2025-11-25")
        works: list[Callable[[], None]] = [
            lambda: by_server(first),
            lambda: by_server(second),
            by_shell,
            by_python,
        ]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
        seen = second.call("recall", {"question": "shell note 2", "limit": 50})["result"]["content"][0]["text"]
        assert "shell-2" in seen
        assert first.close()[0] == 0
        assert second.close()[0] == 0
    assert len(acknowledged) == 3 * WRITES + 3
    with loom.open(store, embedder="none") as memory:
        assert all(memory.get(id) is not None for id in acknowledged)
        assert memory.check().ok


@pytest.mark.parametrize("kills", range(2))
def test_a_killed_server_loses_nothing_that_it_acknowledged(tmp_path: Path, kills: int) -> None:
    store = tmp_path / "memory.loom"
    acknowledged: list[str] = []
    with RawServer(store) as other:
        other.begin()
        for round_ in range(2 + kills):
            with RawServer(store) as server:
                server.begin()
                for number in range(5):
                    told = server.call("remember", {"text": f"note {round_}-{number}"})
                    acknowledged.append(told["result"]["structuredContent"]["memories"][0]["id"])
                server.send(
                    b'{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"remember",'
                    b'"arguments":{"text":"perhaps"}}}'
                )
                server.process.kill()
                server.process.wait()
            told = other.call("remember", {"text": f"survivor {round_}"})
            acknowledged.append(told["result"]["structuredContent"]["memories"][0]["id"])
        child = subprocess.Popen(
            [sys.executable, "-c", PYTHON, str(store), "1000000"],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        acknowledged.extend(child.stdout.readline().strip() for _ in range(20))
        child.kill()
        child.communicate()
        acknowledged.append(shell(store, round_))
    with loom.open(store, embedder="none") as memory:
        assert all(memory.get(id) is not None for id in acknowledged)
        assert memory.check().ok
