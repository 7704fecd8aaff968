"""Numbers in words: the English number words, and Chinese numerals as digits.

All modules use these tables; each decides for itself what counts as a number in a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from loom.errors import InvalidInput

__all__ = ["CHINESE_NUMERALS", "NUMBER_WORDS", "ORDINAL_WORDS", "chinese_digits", "chinese_number", "scale_of"]

_UNITS: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {word: value for value, word in enumerate(_UNITS.split(), 1)}
    | {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
)
"""One to nineteen and the tens, in the order of their values."""

_ORDINALS: Final = "first second third fourth fifth sixth seventh eighth ninth tenth"
ORDINAL_WORDS: Final[Mapping[str, int]] = MappingProxyType(
    {word: value for value, word in enumerate(_ORDINALS.split(), 1)}
)

CHINESE_NUMERALS: Final = "〇零一二两三四五六七八九十百千万亿"
"""The characters of a simplified numeral, for use inside the brackets of a regular expression."""

_DIGITS: Final = (
    {numeral: value for value, numeral in enumerate("零一二三四五六七八九")}
    | {numeral: value for value, numeral in enumerate("壹贰叁肆伍陆柒捌玖", 1)}
    | {"〇": 0, "两": 2, "兩": 2, "貳": 2, "參": 3, "陸": 6}
)
_SCALES: Final = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_MYRIADS: Final = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_IN_NUMERALS: Final = frozenset((*_DIGITS, *_SCALES, *_MYRIADS, "廿"))
_LONGEST: Final = 64


def chinese_digits(numeral: str) -> str:
    """Convert a Chinese numeral to digits. A numeral without scales, such as 二〇二四, is read digit by digit.

    Raises `InvalidInput` for any other text, and for more than 64 characters.
    """
    if len(numeral) > _LONGEST or not _IN_NUMERALS.issuperset(numeral):
        raise InvalidInput(f"a numeral must have only Chinese number characters, at most {_LONGEST} of them")
    if all(character in _DIGITS for character in numeral):
        return "".join(str(_DIGITS[character]) for character in numeral)
    total = section = digit = 0
    for character in numeral.replace("廿", "二十"):
        if character in _DIGITS:
            digit = _DIGITS[character]
        elif character in _SCALES:
            section += (digit or 1) * _SCALES[character]
            digit = 0
        else:
            total = (total + section + digit or 1) * _MYRIADS[character]
            section = digit = 0
    return str(total + section + digit)


def chinese_number(numeral: str) -> int:
    """Return the value of a numeral in digits or Chinese characters. Raises `InvalidInput` like `chinese_digits`."""
    return int(numeral) if numeral.isdecimal() and len(numeral) <= _LONGEST else int(chinese_digits(numeral) or 0)


def scale_of(characters: str) -> int:
    """Return the factor of the scale characters after a number: 10,000 for 万, 10,000,000 for 千万."""
    factor = 1
    for character in characters[:_LONGEST]:
        factor *= _SCALES.get(character, 1) * _MYRIADS.get(character, 1)
    return factor
