"""Fact compression and its fidelity check, under the name that the design documents give them.

They live in `loom.knowledge.fact_merging`.
"""

from __future__ import annotations

from loom.knowledge.fact_merging import Fidelity, FidelityChecker, L4Compressor

__all__ = ["Fidelity", "FidelityChecker", "L4Compressor"]
