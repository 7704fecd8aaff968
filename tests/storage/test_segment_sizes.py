"""Which segments are merged: few are left, whatever the store holds, and a record is rewritten a few times only."""

from __future__ import annotations

import pytest

from loom.storage.sqlite.projections import choose_merge, largest_segment


@pytest.mark.parametrize("at_rest", [True, False])
@pytest.mark.parametrize("chunk", [2_000, 16_384])
def test_there_are_few_segments_however_many_records(chunk: int, at_rest: bool) -> None:
    sizes: list[tuple[str, int]] = []
    written = total = 0
    most = 0
    for number in range(12_000_000 // chunk):
        sizes.append((f"{number}", chunk))
        total += chunk
        while chosen := choose_merge(sizes, largest_segment(total, at_rest)):
            assert len(chosen) > 1
            first = [name for name, _ in sizes].index(chosen[0])
            assert [name for name, _ in sizes[first : first + len(chosen)]] == chosen, "only neighbours are merged"
            together = sum(count for _, count in sizes[first : first + len(chosen)])
            assert together <= largest_segment(total, at_rest)
            sizes[first : first + len(chosen)] = [(chosen[0], together)]
            written += together
        most = max(most, len(sizes))
    assert sum(count for _, count in sizes) == total
    assert most <= (26 if at_rest else 90)
    assert written <= 16 * total


def test_a_small_store_keeps_segments_that_are_rewritten_in_a_second() -> None:
    assert [largest_segment(total, at_rest=True) for total in (0, 1_000_000, 4_000_000)] == [
        131_072,
        131_072,
        500_000,
    ]
    assert largest_segment(0, at_rest=False) == 32_768
