"""The division of a prompt's tokens: reserves, shares by source, and the windows of well-known models.

Everything here is arithmetic. `loom.context.fitting` fills the shares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from loom.context.truncation import TruncationStrategy
from loom.errors import InvalidInput, OverBudget
from loom.text.tokens import TokenCounter

__all__ = [
    "FOCUS_HARD_LIMIT",
    "FOCUS_LOWER_BOUND",
    "MODEL_PRESETS",
    "BudgetAllocation",
    "BudgetConfig",
    "ContextBudgeter",
    "FocusAllocation",
    "ModelPreset",
    "check_focus_hard_limit",
    "model_preset",
    "reallocate_focus_space",
]

FOCUS_HARD_LIMIT = 8192
"""The most tokens of a prompt if the caller names no other window."""

FOCUS_LOWER_BOUND = 1024
"""The smallest window that has room for a system message."""


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """Shares of the room beside the system message and the question, and reserves in tokens.

    `instructions_ratio` is for the user's standing instructions. The rest of the four ratios is for all other
    sources. A share is a guarantee, not a limit: other sources get its unused part. `system_reserve` is kept free if
    the system message is shorter. `functions_reserve` and `output_reserve` are subtracted from a model's window, for
    tool definitions and the answer. None means a share of the window, at most 1,024 and 4,096 tokens.
    """

    l1_ratio: float = 0.30
    l2_ratio: float = 0.25
    l3_l4_ratio: float = 0.20
    instructions_ratio: float = 0.06
    system_reserve: int = 0
    functions_reserve: int | None = None
    output_reserve: int | None = None

    def __post_init__(self) -> None:
        ratios = (self.l1_ratio, self.l2_ratio, self.l3_l4_ratio, self.instructions_ratio)
        if min(ratios) < 0 or sum(ratios) > 1.0 + 1e-9:
            raise InvalidInput(f"the ratios of a budget must be at least 0 and sum to at most 1, not {ratios}")
        for name in ("system_reserve", "functions_reserve", "output_reserve"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise InvalidInput(f"{name} is {value!r}; it must be a whole number of tokens, 0 or more")

    @property
    def ratios(self) -> Mapping[str, float]:
        """The shares by name; `other` is the rest."""
        given = {
            "l1": self.l1_ratio,
            "l2": self.l2_ratio,
            "l3_l4": self.l3_l4_ratio,
            "instructions": self.instructions_ratio,
        }
        return {**given, "other": max(0.0, 1.0 - sum(given.values()))}


@dataclass(frozen=True, slots=True)
class BudgetAllocation:
    """The tokens of one build: the hard limit of the messages, the fixed parts, and the share of each source in the
    rest."""

    limit: int
    fixed: int
    room: int
    shares: Mapping[str, int]


class ContextBudgeter:
    """Plans the budget of a prompt for a window, by a config. Pure except for counting tokens."""

    def __init__(
        self, token_counter: TokenCounter, model_context_window: int, config: BudgetConfig | None = None
    ) -> None:
        if isinstance(model_context_window, bool) or not isinstance(model_context_window, int):
            raise InvalidInput(f"a window must be a whole number of tokens, not {model_context_window!r}")
        if model_context_window < 1:
            raise InvalidInput(f"a window of {model_context_window} tokens has no room; it must have at least 1")
        self.counter = token_counter
        self.window = model_context_window
        self.config = config or BudgetConfig()

    @property
    def limit(self) -> int:
        """The most tokens that the messages may have: the window without the reserves for tools and the answer."""
        config = self.config
        functions = min(1024, self.window // 8) if config.functions_reserve is None else config.functions_reserve
        output = min(4096, self.window // 8) if config.output_reserve is None else config.output_reserve
        if functions + output >= self.window:
            raise OverBudget(
                f"{functions:,} tokens for tools and {output:,} for the answer leave no room in a window of "
                f"{self.window:,}; lower the reserves or use a larger window"
            )
        return self.window - functions - output

    def allocate(self, fixed: int, limit: int | None = None, *, system: int | None = None) -> BudgetAllocation:
        """Divide the tokens that the fixed parts (system, question, framing) leave. `system` is the size of the
        system message. Raises `OverBudget` if the fixed parts do not fit."""
        most = self.limit if limit is None else limit
        if not check_focus_hard_limit(0, fixed, most):
            raise OverBudget(
                f"the system message and the question alone take {fixed:,} tokens and the budget is {most:,}; "
                f"give at least {fixed:,}, or shorten them",
                tokens=fixed,
                budget=most,
            )
        growing = 0 if system is None else max(0, self.config.system_reserve - system)
        room = max(0, most - fixed - growing)
        return BudgetAllocation(
            most, fixed, room, {name: int(room * ratio + 1e-6) for name, ratio in self.config.ratios.items()}
        )


# --- the focus window ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FocusAllocation:
    """The parts of the focus window: system and functions are reserved, the conversation has the rest."""

    system: int
    functions: int
    conversation: int
    truncation_strategy: TruncationStrategy


def reallocate_focus_space(
    hard_limit: int = FOCUS_HARD_LIMIT, system: int = 1024, functions: int = 1024
) -> FocusAllocation:
    """Divide a focus window. If the conversation has little room, its oldest turns are cut instead of the least
    relevant ones."""
    if hard_limit < FOCUS_LOWER_BOUND:
        raise InvalidInput(f"a focus window has at least {FOCUS_LOWER_BOUND:,} tokens, not {hard_limit:,}")
    conversation = hard_limit - system - functions
    if min(system, functions) < 0 or conversation < 0:
        raise InvalidInput(
            f"{system:,} for system and {functions:,} for functions do not fit in {hard_limit:,} tokens"
        )
    chosen = TruncationStrategy.IMPORTANCE_BASED if conversation >= 1024 else TruncationStrategy.TAIL_CUTOFF
    return FocusAllocation(system, functions, conversation, chosen)


def check_focus_hard_limit(current: int, incoming: int, hard_limit: int = FOCUS_HARD_LIMIT) -> bool:
    """Whether this many more tokens fit into the focus window."""
    return current + incoming <= hard_limit


# --- models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelPreset:
    """A model's window, its longest answer, and the counter nearest to its own."""

    context_window: int
    max_output: int
    counter: str


# As published by the providers. The longest known prefix of a model's name counts.
MODEL_PRESETS: Mapping[str, ModelPreset] = MappingProxyType(
    {
        "gpt-3.5-turbo": ModelPreset(16_385, 4_096, "cl100k_base"),
        "gpt-4": ModelPreset(8_192, 8_192, "cl100k_base"),
        "gpt-4-32k": ModelPreset(32_768, 32_768, "cl100k_base"),
        "gpt-4-turbo": ModelPreset(128_000, 4_096, "cl100k_base"),
        "gpt-4o": ModelPreset(128_000, 16_384, "o200k_base"),
        "gpt-4.1": ModelPreset(1_047_576, 32_768, "o200k_base"),
        "gpt-5": ModelPreset(400_000, 128_000, "o200k_base"),
        "o1": ModelPreset(200_000, 100_000, "o200k_base"),
        "o3": ModelPreset(200_000, 100_000, "o200k_base"),
        "o4-mini": ModelPreset(200_000, 100_000, "o200k_base"),
        "claude-3": ModelPreset(200_000, 4_096, "anthropic-estimate"),
        "claude-3-5": ModelPreset(200_000, 8_192, "anthropic-estimate"),
        "claude-3-7": ModelPreset(200_000, 64_000, "anthropic-estimate"),
        "claude": ModelPreset(200_000, 32_000, "anthropic-estimate"),
        "gemini-1.5-flash": ModelPreset(1_048_576, 8_192, "estimate"),
        "gemini-2.0-flash": ModelPreset(1_048_576, 8_192, "estimate"),
        "gemini-2.5": ModelPreset(1_048_576, 65_536, "estimate"),
        "deepseek": ModelPreset(65_536, 8_192, "estimate"),
        "focus": ModelPreset(FOCUS_HARD_LIMIT, 1_024, "cl100k_base"),
    }
)
"""Windows by the prefix of a model's name; `focus` is the window of 8,192 tokens."""


def model_preset(model: str) -> ModelPreset:
    """The preset of a model, by the longest known prefix of its name. The name of a provider before it is ignored."""
    name = re.sub(r"^(?:ft:|.*/)", "", model.strip().lower())
    found = max((known for known in MODEL_PRESETS if name.startswith(known)), key=len, default=None)
    if found is None:
        raise InvalidInput(
            f"the window of model {model!r} is not known; pass model_context_window yourself "
            f"(known are {', '.join(MODEL_PRESETS)})"
        )
    return MODEL_PRESETS[found]
