"""The fidelity check: whether a summary or a merged fact may replace the texts from which it was made.

It compares vectors and the keywords that the text keeps, in English and Chinese. Pure functions, no model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loom.checks import checked_number
from loom.errors import InvalidInput, WrongDimension
from loom.models.embedders import Matrix, Vector
from loom.text.scripts import HAN, is_han
from loom.text.words import word_set

__all__ = [
    "EMBEDDING_WEIGHT",
    "KEYWORD_THRESHOLD",
    "KEYWORD_WEIGHT",
    "FidelityChecker",
    "FidelityResult",
    "keywords",
    "unit_vector",
]

EMBEDDING_WEIGHT = 0.6
KEYWORD_WEIGHT = 0.4

KEYWORD_THRESHOLD = 0.7
"""The least share of the keywords that a text must keep if no vectors can be compared.

It is higher than the threshold of the composite score, of which a text that is merely about the same thing gets 0.5
by its vector alone. Over the clusters of tests/knowledge/test_fact_merging.py, a merge that keeps one member and
drops the others retains 0.22 to 0.67 of the keywords, and one that uses all of them retains all.
"""


@dataclass(frozen=True, slots=True)
class FidelityResult:
    """The fidelity of a text to its originals; all shares from 0 (none) to 1.

    `method` is `composite`, or `keywords` if there were no vectors to compare; then `embedding_similarity` is None
    and the score is the keyword retention. `lost_keywords` are in the order of the originals.
    """

    score: float
    embedding_similarity: float | None
    keyword_retention: float
    passed: bool
    method: str
    lost_keywords: tuple[str, ...] = ()

    def as_metadata(self) -> dict[str, Any]:
        """The metadata of a merged fact."""
        return {
            "fidelity_embedding_similarity": self.embedding_similarity,
            "fidelity_keyword_retention": self.keyword_retention,
            "fidelity_composite_score": self.score,
            "fidelity_passed": self.passed,
            "fidelity_lost_keywords": [*self.lost_keywords],
        }


class FidelityChecker:
    """Decides whether a text may replace others, by its vector and by the keywords that it keeps."""

    def __init__(self, threshold: float = 0.5, keyword_threshold: float = KEYWORD_THRESHOLD) -> None:
        self.threshold = checked_number(threshold, "threshold", 0, 1)
        self.keyword_threshold = checked_number(keyword_threshold, "keyword_threshold", 0, 1)

    def check(
        self,
        merged: str,
        originals: Sequence[str],
        merged_embedding: npt.ArrayLike | None = None,
        embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None,
        *,
        words: Callable[[str], Iterable[str]] | None = None,
    ) -> FidelityResult:
        """Compare a text with its originals.

        The score is 0.6 x the mean cosine to the embeddings + 0.4 x the share of the originals' keywords that occur
        in the text. The embeddings may be those of a sample, and some may be missing; without any, or without that of
        the merged text, the keywords alone decide, by their own threshold. `words` extracts the keywords of a text;
        the default is `keywords`.
        """
        if isinstance(originals, str):
            raise InvalidInput("the originals must be a list of texts, not one text")
        retention, lost = _retention(merged, originals, keywords if words is None else words)
        similarity = _mean_cosine(merged_embedding, embeddings)
        if similarity is None:
            return FidelityResult(retention, None, retention, retention >= self.keyword_threshold, "keywords", lost)
        score = EMBEDDING_WEIGHT * similarity + KEYWORD_WEIGHT * retention
        return FidelityResult(score, similarity, retention, score >= self.threshold, "composite", lost)

    @staticmethod
    def _extract_keywords(text: str) -> set[str]:
        """`keywords` as a set, under the name of the design document."""
        return set(keywords(text))


def _mean_cosine(
    merged: npt.ArrayLike | None, embeddings: Sequence[npt.ArrayLike | None] | Matrix | None
) -> float | None:
    target = None if merged is None else unit_vector(merged)
    if target is None or embeddings is None:
        return None
    units = [unit for unit in map(unit_vector, embeddings) if unit is not None]
    if any(len(unit) != len(target) for unit in units):
        raise WrongDimension("the embeddings of a text and its originals differ in length: they come from two models")
    if not units:
        return None
    cosines = (float(np.dot(unit.astype(np.float64), target)) for unit in units)
    return math.fsum(min(1.0, max(-1.0, cosine)) for cosine in cosines) / len(units)


def unit_vector(vector: npt.ArrayLike | None) -> Vector | None:
    """The vector scaled to length 1, or None if it has no direction."""
    if vector is None:
        return None
    try:
        values = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("an embedding must be a flat list of numbers") from None
    if values.ndim != 1:
        raise InvalidInput(f"an embedding must be a flat list of numbers, not of shape {values.shape}")
    largest = float(np.max(np.abs(values), initial=0.0))
    if not math.isfinite(largest) or largest == 0.0:
        return None
    values = values / largest  # so that squares neither overflow nor vanish
    unit: Vector = (values / np.linalg.norm(values)).astype(np.float32)
    return unit


# --- keywords ------------------------------------------------------------------------------------------------

_LETTER = rf"[^\W\d{HAN}]"
_WORD = rf"{_LETTER}(?:{_LETTER}|\d)*+"
_NAME = re.compile(rf"{_WORD}(?:\.{_WORD})*+|[{HAN}]++")
# Words that begin sentences with a capital and are not names.
_STOP_WORDS = word_set("""
a about after all also although always an and another any are as at be because been before being both but by can
could did do does during each either every few first for from had has have he hello hence her here hers hi his how
however i if in instead into is it its last let many may maybe me might more most much must my neither next no nor
not now of often on once one only or other our out over perhaps please several she should since so some sometimes
soon still such than that the their them then there therefore these they this those though thus to too under unless
until up use used uses using very was we were what when where whether which while who whom whose why will with
without would yes yet you your
""")
# Words that contain a stop character and are not stop words.
_CHINESE_WORDS = """
目的 的确 了解 和平 和谐 总和 饱和 共和 温和 和解 参与 与会 普及 涉及 及时 及格 存在 现在 在线 在职 内在 所在 潜在
都市 首都 成都 京都 成就 就业 就职 就医 把握 把手 被动 被告 行为 作为 成为 认为 人为 为止 然而 从属 服从 着手 着重
执着 着陆 自我 其他 其它 吉他 他人 并发 并行 合并 并列 并购 以太 难以 是非 于是 或许 以上 以下 以外 以内
"""
_CHINESE_STOP_WORDS = """
使用 采用 通过 进行 需要 可以 能够 应该 已经 因为 所以 但是 如果 并且 以及 或者 而且 然后 我们 你们 他们 她们 它们
这个 那个 这些 那些 一个 一些 没有 不是 就是 还是 什么 怎么 如何 为了 关于 对于 由于 根据 其中 之后 之前 提高 提升
基于 以便 从而 不过 虽然 因此 同时 此外 另外 这样 那样 非常
"""
_CHINESE_STOPS = "的了和与及或是在也都就很把被为而但着吗呢吧啊我你他她它这那并以从們说說與這個為於"
_CHINESE_CUT = re.compile(
    f"({'|'.join(_CHINESE_WORDS.split())})|{'|'.join(_CHINESE_STOP_WORDS.split())}|[{_CHINESE_STOPS}]"
)


def keywords(text: str) -> list[str]:
    """The keywords of a text in English and Chinese, without a segmenter; in order, each once. Linear in its length.

    Phrases of capitalised words and these words (not those that merely begin sentences), snake_case, dotted paths,
    CONSTANTS, and the pieces of Chinese between stop words.
    """
    found: dict[str, None] = {}
    phrase: list[str] = []
    phrase_end = -1
    for match in _NAME.finditer(text):
        token = match.group()
        capitalised = False
        if is_han(token):
            found.update(dict.fromkeys(_chinese_pieces(token)))
        elif "." in token:
            if any(len(part) > 1 for part in token.split(".")):  # not e.g, nor U.S.A
                found[token] = None
        elif "_" in token.strip("_"):
            found[token] = None
        else:
            capitalised = len(token) > 1 and token[0].isupper() and token.casefold() not in _STOP_WORDS
        if not (capitalised and phrase and text[phrase_end : match.start()] == " "):
            _end_phrase(phrase, found)
            phrase = []
        if capitalised:
            phrase.append(token)
            phrase_end = match.end()
    _end_phrase(phrase, found)
    return [*found]


def _end_phrase(phrase: list[str], found: dict[str, None]) -> None:
    if len(phrase) > 1:
        found[" ".join(phrase)] = None
    found.update(dict.fromkeys(phrase))


def _chinese_pieces(run: str) -> Iterator[str]:
    start = 0
    for match in _CHINESE_CUT.finditer(run):
        if match.lastindex is None:
            if match.start() - start > 1:
                yield run[start : match.start()]
            start = match.end()
    if len(run) - start > 1:
        yield run[start:]


# A keyword is searched in the text by runs of at most this many words or Chinese characters, and a longer one by all
# of its runs, so that the search is linear in the length of both texts.
_RUN = 8
_UNIT = re.compile(rf"{_WORD}|[{HAN}]|\d++|[^\w\s.]")

_Run = tuple[str, ...]


def _retention(
    merged: str, originals: Sequence[str], words: Callable[[str], Iterable[str]]
) -> tuple[float, tuple[str, ...]]:
    """The share of the keywords of the originals that occur in the text, ignoring case, and those that do not."""
    wanted_words = dict.fromkeys(keyword for original in originals for keyword in words(original))
    if not wanted_words:
        return 1.0, ()
    if words is not keywords:  # terms, which are compared with terms
        there = {*words(merged)}
        gone = tuple(word for word in wanted_words if word not in there)
        return 1.0 - len(gone) / len(wanted_words), gone
    wanted = {keyword: _runs(_UNIT.findall(keyword.casefold())) for keyword in wanted_words}
    sought = {run for runs in wanted.values() for run in runs}
    units = _UNIT.findall(merged.casefold())
    present: set[_Run] = set()
    for size in sorted({len(run) for run in sought}):
        present.update(sought.intersection(zip(*(units[place:] for place in range(size)), strict=False)))
    lost = tuple(keyword for keyword, runs in wanted.items() if not present.issuperset(runs))
    return 1.0 - len(lost) / len(wanted), lost


def _runs(units: Sequence[str]) -> list[_Run]:
    if len(units) <= _RUN:
        return [tuple(units)]
    return [tuple(units[place : place + _RUN]) for place in range(len(units) - _RUN + 1)]
