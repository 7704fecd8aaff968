"""The caller's own vector store beside a memory: filled from the log and queried at each recall.

The memory file remains the truth. Its vectors are copied to the caller's store, and forgotten ones are deleted there.
The results of that store are looked up, filtered and scored here like every other candidate.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np

from loom.checks import checked_object
from loom.errors import Closed, ForgetPending
from loom.index.vector_index import VectorIndex
from loom.memory.vector_store import VectorStoreProvider
from loom.storage.contract import Store, Vector
from loom.storage.search_view import Keys, Scores

__all__ = ["VectorMirror"]

log = logging.getLogger("loom.memory")

_PAGE = 1000


class VectorMirror:
    """Keeps a vector store in step with a memory, and queries it for the nearest records.

    A vector has the id of its record, with `namespace`, `record` (its sequence number), `node` and `session_id` as
    metadata. A store that outlives the process has a `name`, under which the memory file records its progress. A
    store without a name is filled from the beginning of the log.
    """

    def __init__(self, store: Store, vectors: VectorStoreProvider) -> None:
        checked_object(vectors, "vector_store", "add", "search", "delete", "delete_by_metadata", "clear")
        self._store = store
        self.vectors = vectors
        name = getattr(vectors, "name", None)
        self._name = f"vectors:{name}" if isinstance(name, str) and name else None
        self._since = 0 if self._name is None else store.progress(self._name).done
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Copy the vectors that any process made since the last call, and delete forgotten ones."""
        with self._lock:
            start = self._since
            while page := self._store.changes(self._since, _PAGE):
                self._add([one.record for one in page if one.kind == "vector"])
                for one in page:
                    if one.kind == "forget":
                        self.vectors.delete_by_metadata(self._place(one.record))
                self._since = page[-1].seq
            if self._name is not None and self._since > start and not self._store.read_only:
                with self._store.transaction() as transaction:
                    transaction.advance(self._name, self._since)

    def _add(self, numbers: list[int]) -> None:
        vectors = self._store.vectors(numbers) if numbers else {}
        records = self._store.records(list(vectors)) if vectors else {}
        for number in sorted(records):
            record = records[number]
            if record.superseded_at is None:
                metadata = {**self._place(number), "node": record.node, "session_id": record.session_id}
                self.vectors.add(record.id, vectors[number], metadata)

    def _place(self, number: int) -> dict[str, Any]:
        return {"namespace": self._store.namespace, "record": number}

    def forgotten(self) -> None:
        """Delete the vectors of records that were just forgotten. Raises `ForgetPending` if the vector store fails
        to."""
        try:
            self.follow()
        except Closed:
            raise
        except Exception as error:  # the caller's store may raise anything
            raise ForgetPending(
                f"forgotten, but the vector store could not delete its copies ({type(error).__name__}); they are "
                "deleted at the next recall or forget() that reaches it",
                (type(self.vectors).__name__,),
            ) from error

    def nearest(self, index: VectorIndex, vector: Vector, count: int, among: Keys | None) -> tuple[Keys, Scores]:
        """The records nearest to a vector, by the caller's store, or by our own index if that store fails.

        If a few records are given, our own index is used, because it is exact.
        """
        if among is not None:
            return index.search(vector, count, among)
        try:
            hits = self.vectors.search(vector, count, {"namespace": self._store.namespace})
            return (
                np.array([int(hit.metadata["record"]) for hit in hits], dtype=np.int64),
                np.array([hit.score for hit in hits], dtype=np.float64),
            )
        except Exception as error:  # the answer lacks only this signal
            log.warning("the vector store failed (%s); our own index answers", type(error).__name__)
            return index.search(vector, count, None)
