"""Properties of every text: bounds on the counts, and the places where counts add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.text.tokens import AnthropicCounter, EstimateCounter, TiktokenCounter, TokenCounter

EXACT = (TiktokenCounter("cl100k_base"), TiktokenCounter("o200k_base"))
COUNTERS: tuple[TokenCounter, ...] = (*EXACT, EstimateCounter(), AnthropicCounter())
LONGEST_TOKEN_BYTES = 128
LONG = "lamp" * 16_384

# Arbitrary characters alone rarely form words, so ordinary words, signs and white space are mixed in.
# fmt: off
snippets = st.sampled_from([
    "the", " lamp", "HTTPServer", "don't", "'LL", "1887", "的", "服务器", "，", "。", "。\n", "さくら",
    "한국어", "😀", "👩\u200d💻", "e\u0301", " ", "  ", "\n", "\r\n", "\n\n  ", "\t", "\0", "==", "://",
    "\u3000", "\u0085", "<|endoftext|>", "def f(x):\n    return x\n", "a" * 70, " " * 90, "ſ", "\u200d",
    "\ufdfa", "\U0010ffff",
])
# fmt: on
any_text = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(snippets, st.text(max_size=3)), max_size=40).map("".join),
)


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
@given(text=any_text)
def test_a_count_lies_between_nothing_and_its_upper_bound(counter: TokenCounter, text: str) -> None:
    tokens = counter.count(text)
    assert tokens <= counter.upper_bound(text)
    assert (tokens == 0) == (text == "")
    assert tokens <= counter.safe_count(text) <= counter.upper_bound(text)


@given(text=any_text)
def test_the_bound_of_every_counter_covers_both_exact_counts(text: str) -> None:
    most = max(counter.count(text) for counter in EXACT)
    for counter in COUNTERS:
        assert counter.upper_bound(text) >= most
    for estimate in COUNTERS[len(EXACT) :]:
        assert estimate.safe_count(text) >= most


@pytest.mark.parametrize("counter", EXACT, ids=lambda counter: counter.name)
@given(text=any_text)
def test_an_exact_count_is_the_number_of_ids_and_no_token_is_longer_than_the_longest(
    counter: TiktokenCounter, text: str
) -> None:
    assert counter.count(text) == len(counter.encode(text))
    assert counter.count(text) * LONGEST_TOKEN_BYTES >= len(text.encode())


@pytest.mark.parametrize("counter", EXACT, ids=lambda counter: counter.name)
@given(
    before=any_text,
    last=st.sampled_from("azAZ09的树一龥"),
    first=st.sampled_from(" \t\r\n,.;:!?、。，；：！？"),
    after=any_text,
)
def test_exact_counts_add_up_where_a_word_ends(
    counter: TiktokenCounter, before: str, last: str, first: str, after: str
) -> None:
    left, right = before + last, first + after
    assert counter.count(left + right) == counter.count(left) + counter.count(right)


@pytest.mark.parametrize("counter", EXACT, ids=lambda counter: counter.name)
@settings(max_examples=50)
@given(text=any_text)
def test_cutting_a_long_text_where_it_may_be_cut_changes_no_count(counter: TiktokenCounter, text: str) -> None:
    """A text is counted in pieces of about 64 K characters, so the first cut is somewhere in the one given."""
    long = LONG + text + " and more"
    assert counter.count(long) == len(counter.encode(long))


@given(left=any_text, right=any_text)
def test_an_estimate_of_a_whole_is_at_most_the_sum_of_its_parts(left: str, right: str) -> None:
    estimate = EstimateCounter()
    assert estimate.count(left + right) <= estimate.count(left) + estimate.count(right)


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda counter: counter.name)
@given(role=any_text, name=any_text, text=any_text)
def test_the_safe_count_of_a_message_is_never_below_its_count(
    counter: TokenCounter, role: str, name: str, text: str
) -> None:
    messages = [{"role": role, "name": name, "content": [{"type": "text", "text": text}]}]
    assert counter.count_messages(messages) <= counter.safe_count_messages(messages)
