"""Token counters, under the name that the design documents give them. They live in `loom.text.tokens`."""

from __future__ import annotations

from loom.text.tokens import AnthropicCounter, EstimateCounter, TiktokenCounter, TokenCounter, default_counter

__all__ = ["AnthropicCounter", "EstimateCounter", "TiktokenCounter", "TokenCounter", "default_counter"]
