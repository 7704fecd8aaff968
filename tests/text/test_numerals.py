"""Numbers in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import InvalidInput
from loom.text.numerals import NUMBER_WORDS, ORDINAL_WORDS, chinese_digits, chinese_number, scale_of


@pytest.mark.parametrize(
    ("numeral", "digits"),
    [
        ("十", "10"), ("十二", "12"), ("二十", "20"), ("廿三", "23"), ("三十一", "31"), ("两百五十", "250"),
        ("一万二千", "12000"), ("三亿", "300000000"), ("壹佰", "100"), ("二〇二四", "2024"), ("〇五", "05"),
    ],
)  # fmt: skip
def test_a_chinese_numeral_is_read_by_its_scales_or_digit_by_digit(numeral: str, digits: str) -> None:
    assert chinese_digits(numeral) == digits
    assert chinese_number(numeral) == int(digits)


@given(st.integers(0, 99))
def test_digits_and_characters_are_the_same_number(number: int) -> None:
    tens, ones = divmod(number, 10)
    written = f"{'零一二三四五六七八九'[tens]}十" if tens else ""
    written += "零一二三四五六七八九"[ones] if ones or not tens else ""
    assert chinese_number(written) == chinese_number(str(number)) == number


def test_scales_multiply() -> None:
    assert scale_of("万") == 10_000
    assert scale_of("千万") == 10_000_000


def test_the_words_come_in_the_order_of_their_values() -> None:
    assert [*NUMBER_WORDS.values()] == sorted(NUMBER_WORDS.values())
    assert NUMBER_WORDS["nineteen"] == 19
    assert ORDINAL_WORDS["tenth"] == 10


@pytest.mark.parametrize("text", ["十x", "二*", "亿" * 65, "7" * 5000])
def test_what_is_no_numeral_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        chinese_number(text)
