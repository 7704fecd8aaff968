"""Fact compression and its fidelity check, under the name that the design documents give them.

They live in `loom.knowledge.fact_merging` and `loom.knowledge.fidelity`.
"""

from __future__ import annotations

from loom.knowledge.fact_merging import L4Compressor
from loom.knowledge.fidelity import FidelityChecker, FidelityResult

__all__ = ["FidelityChecker", "FidelityResult", "L4Compressor"]
