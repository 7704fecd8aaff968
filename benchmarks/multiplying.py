"""A large store on a server, made of copies of a small one: a million records in minutes instead of hours.

Each copy has records of its own, with the same texts under other ids, and vectors of its own. The texts are indexed
once: an index file of words is copied with other sequence numbers. Index files of vectors are built from the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from loom.index import vector_segments
from loom.index.segments import open_segment, write_segment
from loom.protocol import new_id
from loom.storage.identity import guard, id_hash
from loom.storage.postgres.namespace_engine import Engine
from loom.storage.sqlite.projections import TEXT
from loom.storage.sqlite.transactions import INSERT_RECORD

__all__ = ["multiply"]

_COLUMNS = INSERT_RECORD[INSERT_RECORD.index("(") : INSERT_RECORD.index(")") + 1]
_SEQ, _ID_HASH, _ID, _CHECKSUM = 0, 2, 4, 24


def multiply(engine: Engine, connection: psycopg.Connection[Any], times: int) -> None:
    """Make `times` as many records of those in an engine's namespace, on a connection of the owner.

    Everything must be indexed, and nothing else may use the namespace.
    """
    own = engine.namespace
    table = {name: engine.dialect.table(name) for name in ("heads", "projections", "records", "segments", "vectors")}

    def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.format(**table).encode(), values)
        return cursor.fetchall() if cursor.description else []

    ((last,),) = run("SELECT seq FROM {heads} WHERE namespace = %s", own)
    span = int(last) - (own << 40)
    rows = run(f"SELECT {_COLUMNS[1:-1]} FROM {{records}} WHERE namespace = %s ORDER BY seq", own)
    vectors = run("SELECT seq, space, record FROM {vectors} WHERE namespace = %s ORDER BY record", own)
    files = run("SELECT kind, file, count FROM {segments} WHERE namespace = %s", own)
    space, dimensions = _space(connection, engine)
    for copy in range(1, times):
        shift = copy * span
        with connection.cursor().copy(f"COPY {table['records']} {_COLUMNS} FROM STDIN".encode()) as into:
            for row in _records(own, rows, copy, shift):
                into.write_row(row)
        made = _vectors(len(vectors), dimensions, copy)
        text = f"COPY {table['vectors']} (seq, namespace, space, record, data) FROM STDIN (FORMAT BINARY)"
        with connection.cursor().copy(text.encode()) as into:
            into.set_types(["int8", "int8", "int8", "int8", "bytea"])
            for (seq, _, record), vector in zip(vectors, made, strict=True):
                into.write_row((seq + shift, own, space, record + shift, vector.tobytes()))
        by_record = {record: at for at, (_, _, record) in enumerate(vectors)}
        for kind, file, count in files:
            name, first, final = _copied(engine, kind, file, shift, made, by_record)
            run("INSERT INTO {segments} VALUES (%s, %s, %s, %s, %s, %s)", own, kind, name, first, final, count)
        print(f"  copy {copy + 1} of {times}", flush=True)
    rest = (times - 1) * span
    run("UPDATE {projections} SET watermark = watermark + %s WHERE namespace = %s AND watermark > 0", rest, own)
    run("UPDATE {heads} SET seq = seq + %s, revision = revision + 1 WHERE namespace = %s", rest, own)
    for name in ("records", "vectors", "segments"):
        connection.execute(f"ANALYZE {table[name]}".encode())


def _space(connection: psycopg.Connection[Any], engine: Engine) -> tuple[int, int]:
    """The number and the dimensions of the only embedding space, if there is one."""
    spaces = engine.dialect.table("spaces")
    found = connection.execute(f"SELECT number, dimensions FROM {spaces}".encode()).fetchone()
    return found or (0, 1)


def _records(own: int, rows: list[tuple[Any, ...]], copy: int, shift: int) -> Iterator[list[Any]]:
    for row in rows:
        new = [*row]
        new[_SEQ] += shift
        new[_ID] = f"{new[_ID]}-{copy}"
        new[_ID_HASH] = id_hash(own, new[_ID])
        new[_CHECKSUM] = guard(tuple(new[:_CHECKSUM]))
        yield new


def _vectors(count: int, dimensions: int, seed: int) -> Any:
    vectors = np.random.default_rng(seed).standard_normal((count, dimensions), dtype=np.float32)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def _copied(
    engine: Engine, kind: str, file: str, shift: int, made: Any, by_record: dict[int, int]
) -> tuple[str, int, int]:
    """Publish a copy of an index file with other sequence numbers. Returns its name and its first and last number."""
    segment = open_segment(engine.index_folder / file)
    keys = segment.arrays["keys"]
    if kind == TEXT:
        arrays = {**segment.arrays, "keys": keys + shift, "doc_values": segment.arrays["doc_values"].copy()}
        arrays["doc_values"][:, 0] += shift
        header = {**segment.header, "first_key": int(keys[0]) + shift, "last_key": int(keys[-1]) + shift}
    else:
        header, arrays = vector_segments.build(keys + shift, made[[by_record[int(key)] for key in keys]])
    name = f"{kind}-{engine.namespace}-{new_id()}.seg"
    write_segment(Path(engine.index_folder, name), {**header, "store": engine.store_id}, arrays)
    engine.publish_file(name)
    return name, int(keys[0]) + shift, int(keys[-1]) + shift
