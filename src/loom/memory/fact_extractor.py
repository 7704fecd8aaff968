"""The fact extractor, under the name that the design documents give it. It lives in `loom.knowledge.extraction`."""

from __future__ import annotations

from loom.knowledge.extraction import FactExtractor
from loom.knowledge.facts import ExtractedFact

__all__ = ["ExtractedFact", "FactExtractor"]
