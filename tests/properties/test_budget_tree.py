"""Random trees that grow, spend and end: all nodes together never spend more than the root was given."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import BudgetExceeded, Closed
from loom.fractal import BudgetTracker, RecursiveBudget

amounts = st.integers(0, 60)
steps = st.tuples(
    st.sampled_from(["child", "share", "tokens", "reserve", "settle", "tools", "close", "wait"]),
    st.integers(0, 99),
    amounts,
)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        RecursiveBudget,
        max_depth=st.integers(0, 4),
        max_children=st.integers(0, 4),
        token_budget=st.integers(0, 300),
        time_budget=st.integers(50, 3000),
        tool_budget=st.integers(0, 40),
    ),
    st.lists(steps, max_size=60),
)
def test_no_node_and_no_tree_ever_spends_more_than_it_has(
    budget: RecursiveBudget, story: list[tuple[str, int, int]]
) -> None:
    seconds = 0.0
    root = BudgetTracker(budget, clock=lambda: seconds)
    nodes = [root]
    acknowledged = {"tokens": 0, "tools": 0}
    reserved: list[tuple[BudgetTracker, int]] = []
    for what, chosen, amount in story:
        node = nodes[chosen % len(nodes)]
        with suppress(BudgetExceeded, Closed):
            if what == "child":
                nodes.append(node.create_child(f"node {len(nodes)}"))
            elif what == "share":
                nodes.append(
                    node.create_child(
                        f"node {len(nodes)}", token_budget=amount, tool_budget=amount // 8, time_budget=amount * 9.0
                    )
                )
            elif what == "tokens":
                node.record_tokens(amount)
                acknowledged["tokens"] += amount
            elif what == "reserve":
                amount = node.reserve_tokens(amount // 2, amount)
                reserved.append((node, amount))
                acknowledged["tokens"] += amount
            elif what == "settle" and reserved:
                node, held = reserved.pop(chosen % len(reserved))
                before = node.spent.tokens
                node.settle_tokens(held, amount)
                change = node.spent.tokens - before
                assert change == amount - held or 0 <= change < amount - held
                acknowledged["tokens"] += change
            elif what == "tools":
                node.record_tool_call(amount // 8)
                acknowledged["tools"] += amount // 8
            elif what == "close" and node is not root:
                node.close()
            elif what == "wait":
                seconds += amount
        check(root, nodes, acknowledged, seconds)
    for node in reversed(nodes[1:]):
        node.close()
    for node, held in reserved:
        node.settle_tokens(held, held // 2)
        acknowledged["tokens"] -= held - held // 2
    left = root.get_remaining_budget()
    assert left.token_budget == budget.token_budget - acknowledged["tokens"]  # nothing is kept back for ever
    assert left.tool_budget == budget.tool_budget - acknowledged["tools"]


def check(root: BudgetTracker, nodes: list[BudgetTracker], acknowledged: dict[str, int], seconds: float) -> None:
    assert root.total_spent.tokens == acknowledged["tokens"] <= root.budget.token_budget
    assert root.total_spent.tool_calls == acknowledged["tools"] <= root.budget.tool_budget
    assert sorted(node.node_id for node in root.walk()) == sorted(node.node_id for node in nodes)
    for node in nodes:
        used, left = node.total_spent, node.get_remaining_budget()
        assert used.tokens <= node.budget.token_budget
        assert used.tool_calls <= node.budget.tool_budget
        assert min(left.token_budget, left.tool_budget) >= 0
        assert node.depth <= root.budget.max_depth
        assert len(node.children) <= root.budget.max_children
        assert seconds + left.time_budget <= max(seconds, root.budget.time_budget)
        open_children = [child for child in node.children if not child.closed]
        held = sum(child.budget.token_budget for child in open_children)
        assert held + left.token_budget <= node.budget.token_budget - node.spent.tokens
