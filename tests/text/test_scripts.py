"""Which characters are Chinese: one definition, and the modules that deliberately use another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import loom
from loom.text.scripts import HAN, UNSPACED, han_characters, has_han, is_chinese, is_han

SOURCE = Path(loom.__file__).parent
# Their own ranges are explained beside them: where to cut a text for a tokenizer, vectors that keep their
# name, and scripts that have no use for joiners.
OTHER_RANGES = {"text/tokens.py", "models/embedders.py", "context/rendering.py"}


@pytest.mark.parametrize("character", ["一", "龥", "鿿", "㐀", "䶿", "豈", "𠀀", "〇", "々", "〆"])
def test_every_block_of_ideographs_is_chinese(character: str) -> None:
    assert is_han(character)
    assert re.fullmatch(f"[{UNSPACED}]", character)


@pytest.mark.parametrize("character", ["a", "1", "。", "，", "あ", "ア", "한", "\u4dc0", "🙂", ""])
def test_punctuation_kana_hangul_and_hexagrams_are_not(character: str) -> None:
    assert not is_han(character)
    assert not has_han(character)


def test_the_characters_of_a_text_come_in_its_order() -> None:
    assert han_characters("在3〇6房 a𠀀") == ["在", "〇", "房", "𠀀"]
    assert has_han("room 六")


@pytest.mark.parametrize(
    ("text", "chinese"),
    [("我们用 PostgreSQL", True), ("use 中文 in this sentence", False), ("plain English", False), ("", False)],
)
def test_a_text_is_chinese_with_more_characters_than_latin_words(text: str, chinese: bool) -> None:
    assert is_chinese(text) is chinese


def test_no_other_module_defines_a_range_of_its_own() -> None:
    own = re.compile(r"\\u(?:3400|4e00|9fff|9fa5)|[㐀一]-[龥鿿]", re.IGNORECASE)
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"text/scripts.py"} | OTHER_RANGES
    assert "\u4e00-\u9fff" in HAN
