"""Fewer facts that say as much: facts that agree are merged, if the merged text is faithful to all of them.

A plan says which facts stay, which become one and which leave the knowledge tier; nothing is deleted by it, and
the facts that were merged remain candidates of every search. `FidelityChecker` is the gate that a merged text or a
summary passes before it takes anything's place. Pure computation: who calls it, and what is stored, is not said here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loom.blas import one_thread
from loom.errors import InvalidInput, WrongDimension
from loom.models.embedders import Matrix, Vector
from loom.text.duplicates import Protected, may_merge, normal_form, protected
from loom.text.statements import statements
from loom.text.words import terms
from loom.types import Fact

__all__ = [
    "EMBEDDING_WEIGHT",
    "KEYWORD_THRESHOLD",
    "KEYWORD_WEIGHT",
    "Compression",
    "Fidelity",
    "FidelityChecker",
    "L4Compressor",
    "Merge",
]

EMBEDDING_WEIGHT = 0.6
KEYWORD_WEIGHT = 0.4

KEYWORD_THRESHOLD = 0.7
"""The least share of the keywords that a text must keep where no vectors can be compared.

Higher than the threshold of the composite, of which a text that is merely about the same thing earns 0.5 by its
vector alone. Over the clusters of tests/memory/test_compression.py, a merge that keeps one member and drops the
others retains 0.22 to 0.67 of the keywords, and one that uses all of them retains all.
"""

# A merged fact is still something that a prompt can hold. What is longer by itself is never merged.
_MOST_CHARS = 2_000
# So many of the most similar facts are looked at as company for one: enough to fill a merged text several times.
_MOST_NEIGHBOURS = 128
# One block of the cosine matrix: 64 MB of float32, whatever the number of facts.
_BLOCK_CELLS = 1 << 24
# Products of float32 rows differ in the last bits with their place in the matrix.
_NOISE = 1e-6


# --- fidelity ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How faithful a text is to those that it stands for, all from 0 (not at all) to 1.

    `method` is `composite`, or `keywords` where there were no vectors to compare; then `embedding_similarity` is
    None and the score is the keyword retention. `lost_keywords` are in the order of the originals.
    """

    score: float
    embedding_similarity: float | None
    keyword_retention: float
    passed: bool
    method: str
    lost_keywords: tuple[str, ...] = ()

    def as_metadata(self) -> dict[str, Any]:
        """The keys that a merged fact carries."""
        return {
            "fidelity_embedding_similarity": self.embedding_similarity,
            "fidelity_keyword_retention": self.keyword_retention,
            "fidelity_composite_score": self.score,
            "fidelity_passed": self.passed,
            "fidelity_lost_keywords": [*self.lost_keywords],
        }


class FidelityChecker:
    """Decides whether a text may stand for others: by its vector, and by the keywords it keeps."""

    def __init__(self, threshold: float = 0.5, keyword_threshold: float = KEYWORD_THRESHOLD) -> None:
        self.threshold = _share("threshold", threshold)
        self.keyword_threshold = _share("keyword_threshold", keyword_threshold)

    def check(
        self,
        merged: str,
        originals: Sequence[str],
        merged_embedding: npt.ArrayLike | None = None,
        embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None,
    ) -> Fidelity:
        """Compare a text with its originals.

        The score is 0.6 x the mean cosine to the embeddings + 0.4 x the share of the originals' keywords that occur
        in the text. The embeddings may be those of a sample, and some may be missing; without any, or without that
        of the merged text, keywords decide alone and by their own threshold.
        """
        if isinstance(originals, str):
            raise InvalidInput("the originals are a list of texts, not one text")
        retention, lost = _retention(merged, originals)
        similarity = _mean_cosine(merged_embedding, embeddings)
        if similarity is None:
            return Fidelity(retention, None, retention, retention >= self.keyword_threshold, "keywords", lost)
        score = EMBEDDING_WEIGHT * similarity + KEYWORD_WEIGHT * retention
        return Fidelity(score, similarity, retention, score >= self.threshold, "composite", lost)

    @staticmethod
    def _extract_keywords(text: str) -> set[str]:
        """What a text is about, in both languages and without a segmenter. Linear in its length.

        Phrases of capitalised words and these words (not those that merely begin sentences), snake_case, dotted
        paths, CONSTANTS, and the pieces of Chinese between stop words.
        """
        return set(_keywords(text))


def _share(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{name} is {value}; it must be from 0 to 1")
    return value


def _mean_cosine(
    merged: npt.ArrayLike | None, embeddings: Sequence[npt.ArrayLike | None] | Matrix | None
) -> float | None:
    target = None if merged is None else _unit(merged)
    if target is None or embeddings is None:
        return None
    units = [unit for unit in map(_unit, embeddings) if unit is not None]
    if any(len(unit) != len(target) for unit in units):
        raise WrongDimension("the embeddings of a text and its originals differ in length: they come from two models")
    if not units:
        return None
    cosines = (float(np.dot(unit.astype(np.float64), target)) for unit in units)
    return math.fsum(min(1.0, max(-1.0, cosine)) for cosine in cosines) / len(units)


def _unit(vector: npt.ArrayLike | None) -> Vector | None:
    """The vector at length 1; None for one without a direction, which is as good as no vector."""
    if vector is None:
        return None
    try:
        values = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("an embedding is a flat list of numbers") from None
    if values.ndim != 1:
        raise InvalidInput(f"an embedding is a flat list of numbers, not of shape {values.shape}")
    largest = float(np.max(np.abs(values), initial=0.0))
    if not math.isfinite(largest) or largest == 0.0:
        return None
    values = values / largest  # so that squares neither overflow nor vanish
    unit: Vector = (values / np.linalg.norm(values)).astype(np.float32)
    return unit


# --- keywords ------------------------------------------------------------------------------------------------

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"[^\W\d{_HAN}]"
_WORD = rf"{_LETTER}(?:{_LETTER}|\d)*+"
_NAME = re.compile(rf"{_WORD}(?:\.{_WORD})*+|[{_HAN}]++")
_IS_HAN = re.compile(f"[{_HAN}]")
# What begins a sentence and names nothing.
_STOP_WORD_LIST = """
a about after all also although always an and another any are as at be because been before being both but by can
could did do does during each either every few first for from had has have he hello hence her here hers hi his how
however i if in instead into is it its last let many may maybe me might more most much must my neither next no nor
not now of often on once one only or other our out over perhaps please several she should since so some sometimes
soon still such than that the their them then there therefore these they this those though thus to too under unless
until up use used uses using very was we were what when where whether which while who whom whose why will with
without would yes yet you your
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
# Words that hold a stop character and are no stop words.
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


def _keywords(text: str) -> dict[str, None]:
    """The keywords in the order of the text, each once."""
    found: dict[str, None] = {}
    phrase: list[str] = []
    phrase_end = -1
    for match in _NAME.finditer(text):
        token = match.group()
        capitalised = False
        if _IS_HAN.match(token):
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
    return found


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


# A keyword is looked for in the text by runs of so many words or Chinese characters, a longer one by all of its runs:
# every keyword is then found or missed in time linear in both texts.
_RUN = 8
_UNIT = re.compile(rf"{_WORD}|[{_HAN}]|\d++|[^\w\s.]")

_Run = tuple[str, ...]


def _retention(merged: str, originals: Sequence[str]) -> tuple[float, tuple[str, ...]]:
    """The share of the originals' keywords that occur in the text, whatever their case; those that do not."""
    keywords: dict[str, None] = {}
    for original in originals:
        keywords.update(_keywords(original))
    if not keywords:
        return 1.0, ()
    wanted = {keyword: _runs(_UNIT.findall(keyword.casefold())) for keyword in keywords}
    sought = {run for runs in wanted.values() for run in runs}
    units = _UNIT.findall(merged.casefold())
    present: set[_Run] = set()
    for size in sorted({len(run) for run in sought}):
        present.update(sought.intersection(zip(*(units[place:] for place in range(size)), strict=False)))
    lost = tuple(keyword for keyword, runs in wanted.items() if not present.issuperset(runs))
    return 1.0 - len(lost) / len(keywords), lost


def _runs(units: Sequence[str]) -> list[_Run]:
    if len(units) <= _RUN:
        return [tuple(units)]
    return [tuple(units[place : place + _RUN]) for place in range(len(units) - _RUN + 1)]


# --- compression ---------------------------------------------------------------------------------------------


class Merge(NamedTuple):
    """Facts that become one. `members` are in the order of time; `fact` is what stands for them."""

    fact: Fact
    members: tuple[Fact, ...]
    fidelity: Fidelity

    @property
    def content(self) -> str:
        return self.fact.content


class Compression(NamedTuple):
    """What becomes of facts: each is kept as it is, a member of one merge, or left out of the tier.

    Kept and left-out facts are in the order of importance. `unfaithful` counts the clusters whose merged text did
    not pass; their members are kept or left out like any other fact.
    """

    kept: tuple[Fact, ...]
    merged: tuple[Merge, ...] = ()
    left_out: tuple[Fact, ...] = ()
    unfaithful: int = 0


class L4Compressor:
    """Keeps the knowledge tier near `threshold` facts.

    Facts are merged in clusters of at least `min_cluster_size` in which every two have a cosine of at least
    `similarity_threshold` and differ in nothing that `loom.text.duplicates` protects.
    """

    def __init__(
        self,
        threshold: int = 150,
        similarity_threshold: float = 0.75,
        min_cluster_size: int = 3,
        fidelity_threshold: float = 0.5,
    ) -> None:
        if threshold < 1:
            raise InvalidInput(f"threshold is {threshold}; it is a number of facts of at least 1")
        if min_cluster_size < 2:
            raise InvalidInput(f"min_cluster_size is {min_cluster_size}; merging takes at least 2 facts")
        self.threshold = threshold
        self.similarity_threshold = _share("similarity_threshold", similarity_threshold)
        self.min_cluster_size = min_cluster_size
        self.fidelity_threshold = fidelity_threshold
        self.checker = FidelityChecker(fidelity_threshold)

    def should_compress(self, facts: Sequence[Fact]) -> bool:
        """Whether there are more facts than the threshold."""
        return len(facts) > self.threshold

    def compress(
        self, facts: Sequence[Fact], embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None
    ) -> list[Fact]:
        """The facts that stay in the tier, merged ones among them; all of them, as they are, up to the threshold.

        The facts that this leaves out are still in the store: `plan` names them.
        """
        plan = self.plan(facts, embeddings)
        return [*plan.kept, *(merge.fact for merge in plan.merged)]

    def plan(
        self, facts: Sequence[Fact], embeddings: Sequence[npt.ArrayLike | None] | Matrix | None = None
    ) -> Compression:
        """What to do about too many facts. The same for the same facts in any order.

        `embeddings` has one for each fact, or None where there is none; by default they are the facts' own.
        """
        if len({fact.id for fact in facts}) != len(facts):
            raise InvalidInput("two of the facts have one id; give each fact once")
        if embeddings is not None and len(embeddings) != len(facts):
            raise InvalidInput(f"{len(facts)} facts and {len(embeddings)} embeddings; there must be one for each")
        if not self.should_compress(facts):
            return Compression(tuple(facts))
        known = [fact.embedding for fact in facts] if embeddings is None else embeddings
        units = {fact.id: unit for fact, unit in zip(facts, map(_unit, known), strict=True) if unit is not None}
        if len({len(unit) for unit in units.values()}) > 1:
            raise WrongDimension("the facts' embeddings differ in length: embed all of them with one model")
        merges: list[Merge] = []
        unfaithful = 0
        for cluster in self._clusters(sorted(facts, key=_in_time), units):
            merge = self._merge(cluster, units)
            if merge.fidelity.passed:
                merges.append(merge)
            else:
                unfaithful += 1
        return self._settle(facts, merges, unfaithful)

    def _settle(self, facts: Sequence[Fact], merges: Sequence[Merge], unfaithful: int) -> Compression:
        """The most important ones stay. Where even merged facts must leave, their members do, unmerged."""
        merged = {member.id for merge in merges for member in merge.members}
        by_id = {merge.fact.id: merge for merge in merges}
        single = [fact for fact in facts if fact.id not in merged]
        ranking = sorted([*single, *(merge.fact for merge in merges)], key=_by_importance)
        staying, leaving = ranking[: self.threshold], ranking[self.threshold :]
        left_out = [
            member for fact in leaving for member in (by_id[fact.id].members if fact.id in by_id else (fact,))
        ]
        return Compression(
            tuple(fact for fact in staying if fact.id not in by_id),
            tuple(by_id[fact.id] for fact in staying if fact.id in by_id),
            tuple(sorted(left_out, key=_by_importance)),
            unfaithful,
        )

    # -- who goes together -----------------------------------------------------------------------------

    def _clusters(self, facts: Sequence[Fact], units: Mapping[str, Vector]) -> Iterator[list[Fact]]:
        """Facts that may become one, in the order of time."""
        groups: dict[Any, list[_Candidate]] = {}
        seen: dict[tuple[Any, str, bytes], _Candidate] = {}
        for fact in facts:
            unit = units.get(fact.id)
            if unit is None or fact.superseded_at is not None or len(fact.content) > _MOST_CHARS:
                continue
            same = (_subject(fact), fact.content, unit.tobytes())
            if same in seen:  # the same again: it goes wherever the first one goes
                seen[same].facts.append(fact)
                continue
            candidate = seen[same] = _Candidate([fact], protected(fact.content), unit)
            groups.setdefault((same[0], candidate.protected.key), []).append(candidate)
        for group in groups.values():
            if sum(len(candidate.facts) for candidate in group) >= self.min_cluster_size:
                for cluster in _cluster(group, self.similarity_threshold, self.min_cluster_size):
                    yield sorted((fact for candidate in cluster for fact in candidate.facts), key=_in_time)

    def _merge(self, members: Sequence[Fact], units: Mapping[str, Vector]) -> Merge:
        vectors = [units[member.id] for member in members]
        centroid = _unit(np.sum(np.asarray(vectors, dtype=np.float64), axis=0))
        content = _union([member.content for member in reversed(members)])
        fidelity = self.checker.check(content, [member.content for member in members], centroid, vectors)
        ids = [member.id for member in members]
        named = blake2b("\0".join(sorted(ids)).encode("utf-8", "surrogatepass"), digest_size=13)
        shared = dict(members[0].metadata)
        for member in members[1:]:
            shared = {key: value for key, value in shared.items() if member.metadata.get(key) == value}
        fact = replace(
            members[-1],
            content=content,
            id=f"fact_{named.hexdigest()}",
            tags=_joined(member.tags for member in members),
            sources=_joined(member.sources for member in members),
            # The merged fact matters as much as the one of its members that matters most: else merging would drive
            # knowledge out. It is as sure as they are on average: saying a thing often does not make it surer.
            importance=max(map(_importance, members)),
            confidence=min(1.0, math.fsum(member.confidence for member in members) / len(members)),
            access_count=sum(member.access_count for member in members),
            metadata={**shared, **fidelity.as_metadata(), "merged_from": ids},
            embedding=None if centroid is None else centroid.tolist(),
        )
        return Merge(fact, tuple(members), fidelity)


class _Candidate(NamedTuple):
    """Facts with the very same text and vector, and what is known of them."""

    facts: list[Fact]
    protected: Protected
    unit: Vector


def _in_time(fact: Fact) -> tuple[float, str]:
    return (fact.created_at.timestamp(), fact.id)


def _importance(fact: Fact) -> float:
    return fact.confidence if fact.importance is None else fact.importance


def _by_importance(fact: Fact) -> tuple[bool, float, float, float, str]:
    """What holds before what does not, then importance, confidence, the newest, the id."""
    newest = -fact.created_at.timestamp()
    return (fact.superseded_at is not None, -_importance(fact), -fact.confidence, newest, fact.id)


def _subject(fact: Fact) -> tuple[str, str, str]:
    """What must be the same in facts that are merged, beside their words.

    A fact that another may supersede by its key must not disappear into one about something else.
    """
    return (str(fact.fact_type), repr(fact.metadata.get("key")), repr(fact.metadata.get("value")))


def _joined(lists: Iterable[Sequence[str]]) -> list[str]:
    return [*dict.fromkeys(one for several in lists for one in several)]


def _cluster(group: Sequence[_Candidate], threshold: float, least: int) -> Iterator[list[_Candidate]]:
    """Clusters that hold pairwise. Candidates that are connected at all are proposed, the best connected first."""
    units: Matrix = np.stack([candidate.unit for candidate in group])
    kinds: dict[tuple[str, ...], int] = {}
    names = np.array([kinds.setdefault(candidate.protected.names, len(kinds)) for candidate in group])
    near = [*_neighbours(units, names, threshold)]
    weights = np.array([len(candidate.facts) for candidate in group])
    degrees = [int(weights[neighbours].sum()) for neighbours in near]
    taken = np.zeros(len(group), dtype=np.bool_)
    for component in _components(near):
        if weights[component].sum() < least:
            continue
        for seed in sorted(component.tolist(), key=lambda place: (-degrees[place], place)):
            if taken[seed]:
                continue
            company = _company(seed, near[seed][~taken[near[seed]]].tolist(), group, units, names, threshold)
            if weights[company].sum() >= least:
                taken[company] = True
                yield [group[place] for place in company]


def _company(
    seed: int,
    neighbours: Sequence[int],
    group: Sequence[_Candidate],
    units: Matrix,
    names: npt.NDArray[np.int64],
    threshold: float,
) -> list[int]:
    """The seed and those of its neighbours, the nearest first, that agree with it and with each other."""

    def agree(one: int, other: int) -> bool:
        return bool(names[one] == names[other]) or may_merge(group[one].protected, group[other].protected)

    willing = [seed, *(place for place in neighbours if agree(seed, place))]
    with one_thread():
        close = units[willing] @ units[willing].T >= threshold - _NOISE
    company = [seed]
    chars = len(group[seed].facts[0].content)
    fits = close[0]
    for index, place in enumerate(willing[1:], 1):
        size = len(group[place].facts[0].content) + 2
        if fits[index] and chars + size <= _MOST_CHARS and all(agree(place, other) for other in company[1:]):
            company.append(place)
            chars += size
            fits = fits & close[index]
    return company


def _neighbours(units: Matrix, names: npt.NDArray[np.int64], threshold: float) -> Iterator[npt.NDArray[np.intp]]:
    """For each row those that are similar to it, the most similar first; where many are, those with its names."""
    step = max(1, _BLOCK_CELLS // len(units))
    for start in range(0, len(units), step):
        with one_thread():
            cosines = units[start : start + step] @ units.T
        for offset, row in enumerate(cosines):
            row[start + offset] = -2.0
            similar = np.flatnonzero(row >= threshold - _NOISE)
            if len(similar) > _MOST_NEIGHBOURS:
                liking = row[similar] + 4.0 * (names[similar] == names[start + offset])
                least = np.partition(liking, -_MOST_NEIGHBOURS)[-_MOST_NEIGHBOURS]
                similar = similar[liking >= least][:_MOST_NEIGHBOURS]
            yield similar[np.lexsort((similar, -row[similar]))]


def _components(near: Sequence[npt.NDArray[np.intp]]) -> list[npt.NDArray[np.intp]]:
    """Union-find over neighbours: the rows in connected sets, by their first row."""
    parent = np.arange(len(near))
    for place, neighbours in enumerate(near):
        roots = parent[np.append(neighbours, place)]
        while (parent[roots] != roots).any():
            roots = parent[roots]
        parent[roots] = roots.min()
        parent[place] = roots.min()
    while (parent[parent] != parent).any():
        parent = parent[parent]
    order = np.argsort(parent, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(parent[order])) + 1)


# --- one text from many --------------------------------------------------------------------------------------

_SENTENCE_ENDS = ".!?。！？…;；:："


class _Said(NamedTuple):
    """A sentence that is already in the merged text."""

    terms: list[str]
    protected: Protected


def _union(texts: Sequence[str]) -> str:
    """Everything that the texts say, each thing once and in the words of the first text that says it.

    A sentence is left out only if one that is there has the same normal form, or has all of its words in the same
    order and differs in nothing protected.
    """
    parts: list[str] = []
    known: set[str] = set()
    said: list[_Said] = []
    for text in texts:
        if (whole := normal_form(text)) in known:
            continue
        known.add(whole)
        sentences = [statement.text for statement in statements(text)] or [text]
        fresh: list[str] = []
        for sentence in sentences:
            form = normal_form(sentence)
            one = _Said(terms(sentence), protected(sentence))
            if (form in known and form != whole) or any(_says(other, one) for other in said):
                continue
            known.add(form)
            said.append(one)
            fresh.append(sentence)
        if fresh:
            parts.append(text.strip() if len(fresh) == len(sentences) else _join(fresh))
    return _join(parts) or texts[0]


# A sentence with one of these says less than the same sentence without it.
_HEDGES = frozenset(
    term
    for term in terms(
        "if unless when may might could should would maybe perhaps probably 如果 假如 除非 可能 也许 或许 应该 大概"
    )
    if len(term) > 1
)


def _says(other: _Said, one: _Said) -> bool:
    """Whether a sentence has all words of another, in its order, and nothing that takes something back."""
    if not one.terms or len(one.terms) > len(other.terms):
        return False
    rest = iter(other.terms)
    if not all(term in rest for term in one.terms):
        return False
    return _HEDGES.intersection(other.terms) <= {*one.terms} and may_merge(other.protected, one.protected)


def _join(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        if text:
            chinese = bool(_IS_HAN.match(text[-1])) or text[-1] in "。！？；："
            ended = text[-1] in _SENTENCE_ENDS
            text += ("" if chinese else " ") if ended else "\n" if "\n" in text else "；" if chinese else "; "
        text += part
    return text
