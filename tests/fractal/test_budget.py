"""Budgets over a tree. Requirement 100; traps: a tool budget never checked, a budget that every child gets whole."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from loom.errors import BudgetExceeded, Closed, InvalidInput, OverBudget
from loom.fractal import BudgetTracker, BudgetViolation, RecursiveBudget
from loom.fractal.budget import BudgetKind, BudgetUsage


class Clock:
    """A monotonic clock that a test advances; every reading advances it by `tick`."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.tick = 0.0

    def __call__(self) -> float:
        self.seconds += self.tick
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tracker(clock: Clock | None = None, **budget: Any) -> BudgetTracker:
    return BudgetTracker(RecursiveBudget(**budget), clock=clock or Clock())


def refusal(work: Any) -> BudgetViolation:
    with pytest.raises(BudgetExceeded) as raised:
        work()
    violation = raised.value.violation
    assert isinstance(violation, BudgetViolation)
    return violation


def test_a_budget_has_the_limits_of_the_design() -> None:
    budget = RecursiveBudget()
    assert (budget.max_depth, budget.max_children, budget.token_budget) == (5, 10, 100_000)
    assert (budget.time_budget, budget.tool_budget) == (300.0, 50)
    assert BudgetTracker().get_remaining_budget().token_budget == 100_000


@pytest.mark.parametrize(
    "limits",
    [
        {"max_depth": -1},
        {"max_children": 1.5},
        {"token_budget": True},
        {"time_budget": float("nan")},
        {"tool_budget": "9"},
    ],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(limits))):
        RecursiveBudget(**limits)


def test_a_reservation_is_replaced_by_what_was_used_and_never_exceeds_the_budget() -> None:
    root = tracker(token_budget=100)
    assert root.reserve_tokens(10, 70) == 70
    assert root.get_remaining_budget().token_budget == 30
    violation = refusal(lambda: root.reserve_tokens(31, 90))
    assert (violation.kind, violation.asked, violation.available) == (BudgetKind.TOKENS, 31, 30)
    assert root.reserve_tokens(10, 90) == 30  # what is left
    root.settle_tokens(70, 20)
    assert (root.spent.tokens, root.get_remaining_budget().token_budget) == (50, 50)
    root.settle_tokens(30, 1000)  # more than was reserved, as far as there is any left
    assert (root.spent.tokens, root.get_remaining_budget().token_budget) == (100, 0)
    with pytest.raises(InvalidInput, match="settle them once"):
        root.settle_tokens(101, 0)


def test_a_reservation_is_settled_after_the_deadline_and_after_the_account_was_closed(clock: Clock) -> None:
    root = tracker(clock, token_budget=100, time_budget=5)
    middle = root.create_child("middle", token_budget=80)
    leaf = middle.create_child("leaf", token_budget=60)
    reserved = leaf.reserve_tokens(1, 50)
    root_left = [root.get_remaining_budget().token_budget]
    middle.close()
    root_left.append(root.get_remaining_budget().token_budget)
    clock.seconds += 10
    with pytest.raises(Closed):
        leaf.reserve_tokens(1, 1)
    assert refusal(lambda: root.reserve_tokens(1, 1)).kind is BudgetKind.TIME
    leaf.settle_tokens(reserved, 30)
    root_left.append(root.get_remaining_budget().token_budget)
    assert root_left == [20, 50, 70]
    assert (leaf.spent.tokens, middle.total_spent.tokens, root.total_spent.tokens) == (30, 30, 30)


def test_what_a_closed_account_used_beyond_its_reservation_is_charged_as_far_as_those_above_have_it() -> None:
    root = tracker(token_budget=100)
    child = root.create_child("child", token_budget=60)
    reserved = child.reserve_tokens(10, 10)
    child.close()
    root.record_tokens(85)
    child.settle_tokens(reserved, 60)
    assert (child.spent.tokens, root.total_spent.tokens) == (15, 100)
    assert root.get_remaining_budget().token_budget == 0


def test_tokens_and_tool_calls_are_booked_up_to_the_budget_and_not_beyond() -> None:
    root = tracker(token_budget=100, tool_budget=2)
    root.record_tokens(60)
    root.record_tool_call()
    assert root.check_tokens(40) is None
    violation = refusal(lambda: root.record_tokens(41))
    assert (violation.kind, violation.asked, violation.available, violation.limit) == (BudgetKind.TOKENS, 41, 40, 100)
    assert root.check_tokens(41) == violation
    assert root.spent.tokens == 60  # nothing of what was refused
    root.record_tokens(40)
    root.record_tool_call()
    violation = refusal(root.record_tool_call)
    assert (violation.kind, violation.available) == (BudgetKind.TOOLS, 0)
    assert root.check_tool_calls() == violation
    assert (root.spent.tokens, root.spent.tool_calls) == (100, 2)


def test_a_refusal_says_what_was_asked_what_there_is_and_what_to_do() -> None:
    root = tracker(token_budget=10)
    with pytest.raises(OverBudget) as raised:
        root.record_tokens(11)
    assert str(raised.value) == (
        "node 'root' asked for 11 tokens and has 10 left of 10; ask for less, or close children that are done: "
        "their unused part returns"
    )
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.violation == raised.value.violation  # type: ignore[attr-defined]


@pytest.mark.parametrize("amount", [-1, 1.5, True, "2", None])
def test_an_amount_that_is_none_is_refused(amount: Any) -> None:
    root = tracker()
    for work in (root.record_tokens, root.record_tool_call, root.check_tokens, root.check_tool_calls):
        with pytest.raises(InvalidInput):
            work(amount)


def test_what_a_child_is_given_its_parent_no_longer_has() -> None:
    root = tracker(token_budget=100, tool_budget=10)
    child = root.create_child("child", token_budget=70, tool_budget=6)
    left = root.get_remaining_budget()
    assert (left.token_budget, left.tool_budget, left.max_children) == (30, 4, 9)
    assert refusal(lambda: root.record_tokens(31)).available == 30
    assert refusal(lambda: child.record_tokens(71)).available == 70
    assert refusal(lambda: root.create_child("other", token_budget=31)).kind is BudgetKind.TOKENS
    assert refusal(lambda: root.create_child("other", tool_budget=5)).kind is BudgetKind.TOOLS
    assert len(root.children) == 1
    child.record_tokens(70)
    root.record_tokens(30)
    assert root.total_spent.tokens == 100


def test_what_a_child_did_not_use_comes_back_when_it_is_closed() -> None:
    root = tracker(token_budget=100, tool_budget=10)
    with root.create_child("child", token_budget=80, tool_budget=8) as child:
        child.record_tokens(10)
        child.record_tool_call(3)
        grandchild = child.create_child("grandchild", token_budget=50, tool_budget=5)
        grandchild.record_tokens(20)
        assert child.get_remaining_budget().token_budget == 20
    left = root.get_remaining_budget()
    assert (left.token_budget, left.tool_budget) == (70, 7)
    assert child.closed
    assert grandchild.closed
    for ended in (child, grandchild):
        with pytest.raises(Closed):
            ended.record_tokens(1)
        with pytest.raises(Closed):
            ended.create_child("late")
    child.close()
    assert root.get_remaining_budget() == left
    assert (root.total_spent.tokens, root.total_spent.tool_calls, root.total_spent.children) == (30, 3, 2)


def test_a_share_that_is_not_given_is_an_equal_part() -> None:
    """Trap: budgets that every child gets whole."""
    root = tracker(token_budget=1200, tool_budget=12, max_children=3)
    shares = [root.create_child(f"child {number}").budget for number in range(3)]
    assert [(share.token_budget, share.tool_budget) for share in shares] == [(300, 3)] * 3
    assert root.get_remaining_budget().token_budget == 300


def test_a_child_without_a_word_to_say_is_not_made() -> None:
    root = tracker(token_budget=1, tool_budget=0)
    child = root.create_child("child")
    assert (child.budget.token_budget, child.budget.tool_budget) == (1, 0)
    assert refusal(lambda: root.create_child("another")).kind is BudgetKind.TOKENS


def test_depth_is_counted_down_and_enforced() -> None:
    node = tracker(max_depth=3, token_budget=10_000)
    for depth in range(1, 4):
        node = node.create_child(f"level {depth}")
        assert (node.depth, node.budget.max_depth) == (depth, 3 - depth)
    violation = node.check_can_create_child()
    assert violation is not None
    assert violation.kind is BudgetKind.DEPTH
    assert refusal(lambda: node.create_child("too deep")) == violation
    assert node.children == ()


def test_children_are_counted_for_ever_and_enforced() -> None:
    root = tracker(max_children=2)
    root.create_child("one").close()
    assert root.check_can_create_child() is None
    second = root.create_child("two", max_children=50)
    assert second.budget.max_children == 2  # no more than its parent's
    assert refusal(lambda: root.create_child("three")).kind is BudgetKind.CHILDREN


def test_time_is_everybodys_and_nobodys_ends_after_their_parents(clock: Clock) -> None:
    root = tracker(clock, time_budget=10.0)
    quick = root.create_child("quick", time_budget=3.0)
    slow = root.create_child("slow", time_budget=99.0)
    clock.seconds += 4
    assert refusal(lambda: quick.record_tokens(1)).kind is BudgetKind.TIME
    slow.record_tokens(1)
    late = slow.create_child("late", time_budget=99.0)
    assert late.get_remaining_budget().time_budget == slow.get_remaining_budget().time_budget == 6.0
    clock.seconds += 6
    for node in (root, slow, late):
        violation = node.check_can_create_child()
        assert violation is not None
        assert violation.kind is BudgetKind.TIME
        assert refusal(lambda one=node: one.record_tool_call(0)).kind is BudgetKind.TIME
        assert node.get_remaining_budget().time_budget == 0.0
    assert slow.total_spent == BudgetUsage(tokens=1, tool_calls=0, children=1, time_s=10.0)
    slow.close()
    clock.seconds += 100
    assert slow.spent.time_s == 10.0


def test_no_time_is_won_by_making_a_child_while_the_clock_goes_on(clock: Clock) -> None:
    root = tracker(clock, time_budget=10.0)
    clock.tick = 0.5
    child = root.create_child("child")
    clock.tick = 0.0
    clock.seconds = 1010.0
    assert root.check_time() is not None
    assert child.check_time() is not None


def test_the_clock_is_monotonic_by_default() -> None:
    """Trap: a wall clock that is set back gives time away."""
    import inspect
    import time

    assert inspect.signature(BudgetTracker).parameters["clock"].default is time.monotonic


def test_there_may_be_no_limit_of_time(clock: Clock) -> None:
    root = tracker(clock, time_budget=float("inf"))
    clock.seconds += 1e12
    root.create_child("child").record_tokens(1)


def test_many_threads_spend_exactly_what_there_is() -> None:
    root = tracker(token_budget=1000, max_children=8)
    children = [root.create_child(f"child {number}", token_budget=60) for number in range(8)]
    refused = []

    def spend(node: BudgetTracker) -> None:
        for _ in range(200):
            try:
                node.record_tokens(1)
            except BudgetExceeded:
                refused.append(node.node_id)

    threads = [threading.Thread(target=spend, args=(node,)) for node in [*children, root, root, root]]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert root.total_spent.tokens == 8 * 60 + (1000 - 8 * 60)
    assert len(refused) == 11 * 200 - 1000


def test_a_tree_may_be_deeper_than_the_interpreter_recurses() -> None:
    root = node = tracker(max_depth=3000, token_budget=10_000)
    for level in range(3000):
        node = node.create_child(f"level {level}", token_budget=10_000 - level)
    node.record_tokens(5)
    assert (node.depth, root.total_spent.tokens) == (3000, 5)
    root.children[0].close()
    assert root.get_remaining_budget().token_budget == 9_995


def test_the_tree_can_be_walked_parents_first() -> None:
    root = tracker()
    one, _ = root.create_child("one"), root.create_child("two")
    one.create_child("below")
    assert [(node.node_id, node.depth) for node in root.walk()] == [("root", 0), ("one", 1), ("below", 2), ("two", 1)]
    assert one.parent is root
    assert "tokens left" in repr(root)
