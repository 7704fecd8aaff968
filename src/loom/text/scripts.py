r"""Character ranges of scripts, for use inside the brackets of a regular expression, and tests by them.

All modules take the definition of a Chinese character from here. `HAN` covers every block of ideographs and three
characters that are used like one: the repetition mark 々, the closing mark 〆 and the zero 〇.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HAN", "HANGUL", "HAN_BASIC", "KANA", "UNSPACED", "han_characters", "has_han", "is_chinese", "is_han"]

HAN_BASIC: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Ideographs of the basic plane: extension A, the unified block, and the compatibility forms.

The symbols between them (U+4DC0 to U+4DFF, the hexagrams) are not ideographs.
"""

HAN: Final = f"\u3005-\u3007{HAN_BASIC}\U00020000-\U0003ffff"
"""Every Chinese character, the planes of rare ones included."""

KANA: Final = "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
"""Hiragana and katakana with their iteration and length marks, without punctuation."""

HANGUL: Final = "\u1100-\u11ff\uac00-\ud7a3"
"""Hangul syllables and the letters they are composed of."""

UNSPACED: Final = (
    f"\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3\u3105-\u312f\u31a0-\u31bf{KANA}{HANGUL}{HAN}"
)
"""Scripts written without spaces between words: Thai, Lao, Burmese, Khmer, bopomofo, kana and Han.

Hangul is among them because its particles are attached to the nouns.
"""

_HAN_CHARACTER = re.compile(f"[{HAN}]")
_LATIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_']*")


def is_han(text: str) -> bool:
    """Whether the text begins with a Chinese character."""
    return _HAN_CHARACTER.match(text) is not None


def has_han(text: str) -> bool:
    """Whether the text holds a Chinese character."""
    return _HAN_CHARACTER.search(text) is not None


def han_characters(text: str) -> list[str]:
    """Return the Chinese characters of a text, in order."""
    return _HAN_CHARACTER.findall(text)


def is_chinese(text: str) -> bool:
    """Whether a text is mainly Chinese: it has more Chinese characters than Latin words."""
    return not text.isascii() and len(_HAN_CHARACTER.findall(text)) > len(_LATIN_WORD.findall(text))
