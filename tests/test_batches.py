"""Batches keep every item in its order, and end where they are full."""

from __future__ import annotations

from loom.batches import batches


def test_batches_keep_every_item_and_bound_what_is_done_at_once() -> None:
    texts = [["w"] * (1 + place % 24) for place in range(200)]
    groups = [*batches(iter(texts), len, full_at=256)]
    assert [text for group in groups for text in group] == texts
    assert all(256 <= sum(map(len, group)) < 256 + 24 for group in groups[:-1])


def test_a_batch_ends_with_its_last_item_or_with_the_one_that_fills_it() -> None:
    assert [*batches([1, 1, 1, 5, 1], lambda size: size, most_items=2, full_at=5)] == [[1, 1], [1, 5], [1]]
    assert [*batches([9, 9], lambda size: size, full_at=5)] == [[9], [9]]
    assert [*batches([], len, most_items=1)] == []
