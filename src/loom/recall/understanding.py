"""Whether an embedder understands the texts of a store: records that share rare words lie nearer to each other.

Vectors that do not follow the texts, such as those of an embedder for another language, nominate at random. One
question is not enough to detect this. The whole store is, from about a hundred records on.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from loom.index.vector_index import VectorIndex
from loom.storage.contract import Filter
from loom.storage.search_view import SearchView
from loom.text.words import terms

__all__ = ["understood"]

# The sample: four stretches of the log with up to this many records each, found among this many vectors, since
# derived facts have vectors too. Only the beginning of each text counts. Texts of more tokens than this are not read.
_STRETCHES, _RECORDS, _VECTORS = 4, 64, 128
_MOST_CHARS, _MOST_TOKENS = 600, 2_000
# A term in at most this many records of the sample is rare.
_RARE = 3
# With fewer pairs of records that share a rare term, there is no verdict.
_FEWEST_PAIRS = 96
# The least distance of the mean similarity of these pairs from that of all pairs, in standard deviations of all
# pairs. In the stores of `benchmarks.recall` it is 0.5 to 1.7 for the offline embedder, at most 0.12 for random
# vectors, and at most 0.16 for Chinese texts with an embedder that reads their ASCII characters alone.
_NEARER = 0.2

_FEWEST_VECTORS = 48

_KEPT = "understood"
_SAID = Filter(derived=False)
_OTHER_LETTER = re.compile(r"[^\W\d_\u0000-\u024f]")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")

_Verdicts = dict[bool | None, bool | None]


def understood(view: SearchView, question: str) -> bool:
    """Return whether the vectors of a store follow its texts. Judges the texts in the script of the question.

    If the store has too few texts in that script, all texts are judged; if it has too few texts, the result is True.
    The same records always give the same result.
    """
    vectors = view.vectors
    if vectors is None or len(vectors) < _FEWEST_VECTORS:
        return True
    count = _rounded(len(vectors))
    known: tuple[int, _Verdicts] | None = view.kept.get(_KEPT)
    if known is None or known[0] != count:
        known = view.kept[_KEPT] = count, _verdicts(view, count)
    verdicts = known[1]
    verdict = verdicts[_is_latin(question)]
    return (verdicts[None] if verdict is None else verdict) is not False


def _rounded(count: int) -> int:
    """Round down to 2, 3, 4, 6, 8, 12, ..., so that the sample is taken again as a store grows by a half."""
    half = 1 << max(0, count.bit_length() - 2)
    return half * (count // half)


def _is_latin(text: str) -> bool:
    return text.isascii() or len(_OTHER_LETTER.findall(text)) <= len(_LATIN_WORD.findall(text))


def _verdicts(view: SearchView, count: int) -> _Verdicts:
    """Judge the texts in Latin letters, the other texts, and all texts. None stands for too few texts."""
    texts = _sample(view, count)
    having, vectors = _vectors_of(view).vectors(np.array(sorted(texts), dtype=np.int64))
    held = [texts[seq] for seq in having.tolist()]
    words = [tuple(dict.fromkeys(terms(text))) for text in held]
    matrix = vectors.astype(np.float64)
    latin = np.array([_is_latin(text) for text in held], dtype=np.bool_)
    found: _Verdicts = {None: _is_nearer(words, matrix)}
    for script in (True, False):
        of = np.flatnonzero(latin == script)
        found[script] = found[None] if len(of) == len(held) else _is_nearer([words[at] for at in of], matrix[of])
    return found


def _sample(view: SearchView, count: int) -> dict[int, str]:
    """Read texts from stretches of the log that lie evenly among the first `count` vectors, each text once."""
    vectors = _vectors_of(view)
    bounds = [count * place // _STRETCHES for place in range(_STRETCHES + 1)]
    stretches = [vectors.keys_between(start, min(start + _VECTORS, stop)) for start, stop in pairwise(bounds)]
    said = view.doc_values(np.concatenate(stretches).tolist(), _SAID)
    read = {seq for seq, one in said.items() if one.tokens <= _MOST_TOKENS}
    chosen = {seq for stretch in stretches for seq in [seq for seq in stretch.tolist() if seq in read][:_RECORDS]}
    first = {record.content[:_MOST_CHARS]: seq for seq, record in reversed(view.records(sorted(chosen)).items())}
    return {seq: text for text, seq in first.items()}


def _vectors_of(view: SearchView) -> VectorIndex:
    assert view.vectors is not None
    return view.vectors


def _is_nearer(texts: Sequence[Sequence[str]], vectors: npt.NDArray[np.float64]) -> bool | None:
    """Return whether texts that share a rare term are nearer to each other than others; None for too few pairs.

    Each text is given by its terms, without repetition.
    """
    held: dict[str, list[int]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for place, text in enumerate(texts):
        for term in text:
            counts[term] += 1
            if counts[term] <= _RARE:
                held[term].append(place)
    pairs = {pair for term, places in held.items() if counts[term] <= _RARE for pair in combinations(places, 2)}
    if len(pairs) < _FEWEST_PAIRS:
        return None
    cosines = vectors @ vectors.T
    lengths = np.sqrt(cosines.diagonal()) + 1e-12
    cosines /= np.outer(lengths, lengths)
    every = cosines[np.triu_indices(len(texts), 1)]
    deviation = float(every.std())
    rows, columns = np.array(sorted(pairs)).T
    return deviation > 1e-6 and float(cosines[rows, columns].mean() - every.mean()) >= _NEARER * deviation
