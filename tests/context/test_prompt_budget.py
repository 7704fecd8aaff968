"""Budgets of prompts: shares, reserves, the focus window, and the windows of models."""

from __future__ import annotations

from typing import Any

import pytest

from loom.context import (
    BudgetConfig,
    ContextBudgeter,
    ContextOrchestrator,
    TruncationStrategy,
    check_focus_hard_limit,
    model_preset,
    reallocate_focus_space,
)
from loom.errors import InvalidInput, OverBudget
from loom.text.tokens import TiktokenCounter


def budgeter(window: int = 10_000, **given: Any) -> ContextBudgeter:
    return ContextBudgeter(TiktokenCounter(), window, BudgetConfig(**given))


def test_shares_are_of_what_is_left_beside_the_fixed_parts() -> None:
    plan = budgeter(functions_reserve=0, output_reserve=0).allocate(2_000)
    assert (plan.limit, plan.fixed, plan.room) == (10_000, 2_000, 8_000)
    assert plan.shares == {"l1": 2_400, "l2": 2_000, "l3_l4": 1_600, "instructions": 480, "other": 1_520}


def test_room_is_kept_for_a_system_message_that_is_shorter_yet() -> None:
    kept = budgeter(functions_reserve=0, output_reserve=0, system_reserve=1_000)
    assert kept.allocate(500, system=400).room == 10_000 - 500 - 600
    assert kept.allocate(2_000, system=1_500).room == 8_000
    assert kept.allocate(9_900, system=100).room == 0


def test_tools_and_the_answer_are_taken_off_the_window() -> None:
    assert budgeter(functions_reserve=500, output_reserve=1_500).limit == 8_000
    assert budgeter(128_000).limit == 128_000 - 1_024 - 4_096
    assert budgeter(800).limit == 600  # a small window keeps a quarter free
    with pytest.raises(OverBudget, match="leave no room"):
        _ = budgeter(1_000, functions_reserve=500, output_reserve=500).limit


def test_fixed_parts_that_do_not_fit_are_refused_with_what_they_need() -> None:
    with pytest.raises(OverBudget, match="give at least 12,000"):
        budgeter().allocate(12_000)


@pytest.mark.parametrize(
    "given",
    [{"l1_ratio": -0.1}, {"l1_ratio": 0.9, "l2_ratio": 0.2}, {"output_reserve": -1}, {"system_reserve": 1.5}],
)
def test_a_config_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        BudgetConfig(**given)


@pytest.mark.parametrize("window", [0, -5, True, "large"])
def test_a_window_is_a_whole_number_of_tokens(window: Any) -> None:
    with pytest.raises(InvalidInput):
        ContextBudgeter(TiktokenCounter(), window)


def test_the_focus_window_is_one_six_and_one_thousand_under_8192() -> None:
    space = reallocate_focus_space()
    assert (space.system, space.conversation, space.functions) == (1024, 6144, 1024)
    assert space.truncation_strategy is TruncationStrategy.IMPORTANCE_BASED
    assert reallocate_focus_space(2048, 1024, 512).truncation_strategy is TruncationStrategy.TAIL_CUTOFF
    with pytest.raises(InvalidInput, match="at least 1,024"):
        reallocate_focus_space(1000)
    with pytest.raises(InvalidInput, match="do not fit"):
        reallocate_focus_space(2048, 2000, 1000)


def test_the_hard_limit_takes_what_fits_exactly_and_nothing_more() -> None:
    assert check_focus_hard_limit(8_000, 192)
    assert not check_focus_hard_limit(8_000, 193)


@pytest.mark.parametrize(
    ("model", "window", "counter"),
    [
        ("gpt-4", 8_192, "cl100k_base"),
        ("gpt-4o-mini", 128_000, "o200k_base"),
        ("openai/gpt-4.1-nano", 1_047_576, "o200k_base"),
        ("claude-3-5-sonnet-latest", 200_000, "anthropic-estimate"),
        ("google/gemini-2.0-flash-001", 1_048_576, "estimate"),
        ("focus", 8_192, "cl100k_base"),
    ],
)
def test_a_model_is_known_by_the_beginning_of_its_name(model: str, window: int, counter: str) -> None:
    preset = model_preset(model)
    assert (preset.context_window, preset.counter) == (window, counter)


@pytest.mark.parametrize(
    ("limit", "chosen", "other"),
    [
        (2000, TruncationStrategy.IMPORTANCE_BASED, TruncationStrategy.TAIL_CUTOFF),
        (900, TruncationStrategy.TAIL_CUTOFF, TruncationStrategy.IMPORTANCE_BASED),
    ],
)
def test_a_conversation_is_cut_by_the_strategy_of_the_space_beside_the_system_message(
    limit: int, chosen: TruncationStrategy, other: TruncationStrategy
) -> None:
    """Requirements 39, 40: with room to choose from, the most important turns stay; else the newest."""
    rich = "We decided: the harbour code is {}, because valve {} leaked, and Ana must tell the pilot of boat {}!"
    said: list[dict[str, str]] = [{"role": "system", "content": "You help."}]
    for at in range(60):
        words = rich.format(at, at + 1, at + 2) if at % 5 == 0 else "la " * 60
        said.append({"role": ("user", "assistant")[at % 2], "content": words})
    orchestrator = ContextOrchestrator(TiktokenCounter(), [])
    fitted = orchestrator.fit_to_token_limit(said, limit)
    assert fitted == orchestrator.fit_to_token_limit(said, limit, chosen)
    assert fitted != orchestrator.fit_to_token_limit(said, limit, other)


def test_a_prompt_whose_fixed_parts_are_over_the_hard_limit_is_refused() -> None:
    with pytest.raises(OverBudget, match="the system message and the question alone take"):
        ContextOrchestrator(TiktokenCounter(), []).build("x " * 2000, budget=500)
