"""The reranker, under the name that the design documents give it. It lives in `loom.recall.reranking`."""

from __future__ import annotations

from loom.recall.reranking import MemoryReranker, RerankSignal

__all__ = ["MemoryReranker", "RerankSignal"]
