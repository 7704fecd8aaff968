"""Trust in an embedder: vectors that do not follow the texts of a store are left out of its recalls."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom.everyday import Memory
from loom.text.words import terms

SYLLABLES = ["ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu"]
Floats = npt.NDArray[np.float32]
HAN = "山水风云雨雪花鸟鱼虫草木金石土火日月星辰江河湖海春夏秋冬东西南北"


class Embedder:
    """An embedder of 64 dimensions by a function that gives the words that it knows of a text."""

    dimensions = 64

    def __init__(self, name: str, words: Callable[[str], Sequence[str]]) -> None:
        self.name = name
        self._words = words

    def embed(self, text: str) -> Floats:
        vector = np.sum([np.full(64, 1e-3), *map(_direction, self._words(text))], axis=0)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)

    def embed_batch(self, texts: Sequence[str]) -> Floats:
        return np.array([self.embed(text) for text in texts])


def _direction(word: str) -> npt.NDArray[np.float64]:
    return np.random.default_rng(list(hashlib.sha256(word.encode()).digest())).standard_normal(64)


def own_words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[^\x00-\x7f]", text.lower())


FOLLOWS = Embedder("follows", own_words)
RANDOM = Embedder("random", lambda text: [text])
LATIN = Embedder("latin", lambda text: re.findall(r"[a-z]+", text.lower()))


def notes(count: int, *, chinese: bool = False) -> list[str]:
    """Texts of four words, of which two next to each other share a word that no other has."""
    chance = random.Random(7)

    def word() -> str:
        return "".join(chance.choices(HAN, k=2) if chinese else chance.choices(SYLLABLES, k=3))

    shared = [word() for _ in range(count // 2 + 1)]
    return [("" if chinese else " ").join([shared[at // 2], word(), word(), word()]) for at in range(count)]


def filled(texts: Sequence[str], embedder: Embedder | str, path: Path | None = None) -> Memory:
    memory = loom.open(path, embedder=embedder, derive=False)
    memory.remember([{"content": text, "id": f"note-{at}"} for at, text in enumerate(texts)])
    assert memory.flush().complete
    return memory


def by_meaning(memory: Memory, question: str) -> bool:
    """Whether the meaning of any hit counts."""
    return any("meaning" in hit.signals for hit in memory.recall(question))


def test_vectors_that_do_not_follow_the_texts_are_left_out() -> None:
    texts = notes(300)
    with filled(texts, FOLLOWS) as follows, filled(texts, RANDOM) as strange, filled(texts, "none") as plain:
        for text in texts[::30]:
            question = f"What of {text.split()[0]}?"
            assert by_meaning(follows, question)
            assert not by_meaning(strange, question)
            found, wanted = strange.recall(question), plain.recall(question)
            assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in wanted]


def test_a_small_store_tells_nothing_about_its_embedder() -> None:
    with filled(notes(40), RANDOM) as memory:
        assert by_meaning(memory, "What of bacedi?")


def test_an_embedder_is_judged_by_the_texts_in_the_script_of_the_question() -> None:
    texts = [*notes(240), *notes(240, chinese=True)]
    with filled(texts, LATIN) as memory:
        assert by_meaning(memory, f"What of {texts[0].split()[0]}?")
        assert not by_meaning(memory, f"{texts[300][:2]}是什么？")
    with filled(texts, FOLLOWS) as memory:
        assert by_meaning(memory, f"{texts[300][:2]}是什么？")


def test_a_question_in_a_script_that_the_store_hardly_has_is_judged_by_all_texts() -> None:
    with filled(notes(240, chinese=True), LATIN) as memory:
        assert not by_meaning(memory, "Anything about mountains?")
    with filled(notes(240, chinese=True), FOLLOWS) as memory:
        assert by_meaning(memory, "Anything about mountains?")


@pytest.fixture
def analysed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of samples, as they are analysed."""
    read: list[str] = []

    def noting(text: str) -> list[str]:
        read.append(text)
        return terms(text)

    monkeypatch.setattr("loom.recall.understanding.terms", noting)
    return read


def test_the_texts_are_read_once_and_again_when_the_store_has_grown_or_forgotten(
    tmp_path: Path, analysed: list[str]
) -> None:
    texts = notes(400)
    with filled(texts[:200], FOLLOWS, tmp_path / "notes.loom") as memory:
        for text in texts[:8]:
            memory.recall(text)
        assert len(analysed) == 192
        memory.remember("One more.")
        memory.flush()
        memory.recall(texts[0])
        assert len(analysed) == 192
        memory.remember(texts[200:])
        memory.flush()
        memory.recall(texts[0])
        assert len(analysed) == 192 + 256
        memory.forget("note-3")
        memory.recall(texts[0])
        assert len(analysed) > 192 + 256
        assert texts[3] not in analysed[192 + 256 :]
        with loom.open(tmp_path / "notes.loom", embedder=FOLLOWS, derive=False) as other:
            assert [hit.id for hit in other.recall(texts[0])] == [hit.id for hit in memory.recall(texts[0])]


def test_the_sample_of_a_large_store_is_bounded(analysed: list[str]) -> None:
    with filled(notes(2_000), FOLLOWS) as memory:
        assert by_meaning(memory, "What of bacedi?")
    assert len(analysed) == 256
