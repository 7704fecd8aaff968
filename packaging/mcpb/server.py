"""The server of the bundle: the command `loom mcp`, with the store that the user chose in LOOM_STORE."""

import sys

from loom.cli import main

if __name__ == "__main__":
    sys.exit(main(["mcp"]))
