"""The server of a memory over HTTP on loopback, for the conformance suite, which takes an address and no command."""

from __future__ import annotations

import socket
import sys
import threading
import time

import uvicorn

import loom
from loom.mcp.memory_server import MemoryHolder, make_server


def main() -> None:
    holder = MemoryHolder(lambda: loom.open(sys.argv[1], embedder="none"))
    config = uvicorn.Config(make_server(holder).streamable_http_app(), log_level="error")
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    print(listening.getsockname()[1], flush=True)
    sys.stdin.read()
    server.should_exit = True
    thread.join()
    holder.close()


if __name__ == "__main__":
    main()
