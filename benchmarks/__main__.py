"""Every benchmark in a quick form, in about five minutes: `python -m benchmarks [NAME ...]`.

Each runs in a process of its own, so that none inherits another's memory, threads or caches. The figures of
docs/performance.md come from the long forms, which README.md lists.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

__all__ = ["QUICK", "main"]

QUICK = {
    "shell": ("--rounds", "3"),
    "starting": ("--records", "5000", "20000", "--runs", "20", "--questions", "5"),
    "writing": ("--rounds", "20"),
    "postgres": ("--rounds", "8", "--records", "5000", "--questions", "40", "--cold", "5000"),
    "forgetting": ("--records", "1000", "--forgets", "9", "--processes", "8"),
    "growing": ("--records", "20000", "--window", "2000"),
    "tiers": ("--records", "15000", "--window", "3000"),
    "working_tier": (),
    "traces": ("--only", "sets", "import", "--shares", "0.25"),
    "latencies": ("--records", "5000", "--rounds", "200", "--questions", "50"),
    "fractal": ("--rounds", "30"),
    "recalling": ("--records", "20000", "--questions", "100", "--rounds", "3"),
    "recall": ("--embedder", "none"),
    "reranking": ("--embedder", "none", "--questions", "5"),
    "instructions": ("--parts", "1", "--embedder", "none"),
    "text_search": ("--records", "20000", "--queries", "100"),
    "vector_recall": ("--records", "20000", "--queries", "100", "--data", "clustered"),
    "context": ("prefix", "cost", "--turns", "160", "--memories", "1500", "--records", "20000", "--embedder", "none"),
    "embedders": ("--cost-only",),
    "archive": ("--tokens", "30000", "--questions", "50"),
    "archive_tier": (),
    "snapshots": ("--records", "5000", "--dimensions", "32"),
    "importing": ("--messages", "5000", "--memory-mb", "64"),
    "rooms": (),
    "extraction": (),
    "summaries": (),
}
"""The arguments of the quick form of each benchmark, in the order in which they run."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(QUICK)}; all by default")
    chosen = parser.parse_args(arguments).names or list(QUICK)
    unknown = sorted(set(chosen) - QUICK.keys())
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(QUICK)}")
    failed: list[str] = []
    for name in chosen:
        command = [sys.executable, "-m", f"benchmarks.{name}", *QUICK[name]]
        print(f"\n=== {' '.join(['python', *command[1:]])}", flush=True)
        started = time.monotonic()
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
        print(f"    ({time.monotonic() - started:.0f} s)", flush=True)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
