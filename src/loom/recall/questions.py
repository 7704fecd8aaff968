"""Reading a question by rules: names, times, quoted phrases, kind, role and order.

`understand` is a pure function of the question and the time. It does not read the store. The search decides whether
"Mark" is a speaker or a verb, by the records that have the mark of that speaker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from loom.index.analysis import IS_QUESTION, ONLY_ASKS, speaker_mark
from loom.index.text_index import SILENT
from loom.text.dates import relative_words
from loom.text.entities import AMOUNT, SOMEBODY, SOMEWHERE
from loom.text.frames import outside_frame, parts_of, wants_many
from loom.text.thesaurus import Concept, concepts
from loom.text.time_terms import NAMES_A_TIME, asked_times
from loom.text.words import query_terms, simplified, simplified_in_place, terms

__all__ = ["ANSWERS", "SEVERAL_PLACES", "TITLES", "Question", "understand"]

# The part of a question that is read, and the number of terms that are searched.
_MOST_CHARS = 4_000
_MOST_TERMS = 64


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the search uses it. `words` and `times` map terms and marks to weights.

    `speakers` maps the terms that may be a speaker's name to the marks of that speaker. `role` is the role that the
    question refers to by "I" or "you": "user", "assistant" or empty. `times` is empty if no time is named. `phrases`
    are the parts in quotation marks. `wants_time` is set for "when". `answers` has the marks of persons, places and
    amounts, for "who", "where" and "how many". `order` is "latest", "first" or empty. `concepts` are the words that
    have synonyms. `wants_many` is set for lists, orders of events, summaries and counts. `parts` has the terms of
    each thing if the question names several.
    """

    text: str
    words: Mapping[str, float]
    speakers: Mapping[str, str]
    role: str
    times: Mapping[str, float]
    phrases: tuple[str, ...]
    wants_time: bool
    order: str
    concepts: tuple[Concept, ...] = ()
    answers: tuple[str, ...] = ()
    wants_many: bool = False
    parts: tuple[tuple[str, ...], ...] = ()

    def without_names(self, names: Collection[str]) -> str:
        """Return the text without the words of these terms, or the whole text if no other term is left."""
        if not names or all(term in names for term in self.words):
            return self.text
        spaced = _WORD.sub(lambda word: " " if _is_named(word[1], names) else word[0], self.text)
        if not spaced.isascii():
            plain = simplified_in_place(spaced)
            found = (match for name in names if not name.isascii() for match in re.finditer(name, plain))
            hidden = {place for match in found for place in range(*match.span())}
            spaced = "".join(" " if place in hidden else sign for place, sign in enumerate(spaced))
        return " ".join(spaced.split())

    def subject(self, speakers: Collection[str]) -> frozenset[str]:
        """Return the terms of the speaker who is named first, and of those joined to this one by "and".

        "What did Ana say about Ben?" is answered by Ana.
        """
        named = _mentions(self.text, speakers)
        if not named:
            return frozenset(speakers)
        found: set[str] = set()
        end = named[0][0]
        for start, last, term in named:
            if start > end and not _JOINED.fullmatch(self.text, end, start):
                break
            found.add(term)
            end = max(end, last)
        return frozenset(found)

    @property
    def synonyms(self) -> dict[str, float]:
        """The terms of synonyms with their weights for nominating."""
        found: dict[str, float] = {}
        for concept in self.concepts:
            for other in concept.others:
                weight = _SYNONYM_WEIGHT * other.weight / len(other.terms)
                for term in other.terms:
                    if weight > found.get(term, 0.0):
                        found[term] = weight
        return found

    @property
    def marks(self) -> dict[str, float]:
        """The marks that a signal needs, with their weights for nominating."""
        of_time = [NAMES_A_TIME] if self.wants_time else []
        silent = [*self.speakers.values(), *self.answers, IS_QUESTION, ONLY_ASKS, *of_time]
        return dict.fromkeys(silent, SILENT) | {mark: _TIME_WEIGHT * share for mark, share in self.times.items()}


_TIME_WEIGHT = 0.3
_SYNONYM_WEIGHT = 0.5
_RELATIVE_WEIGHT = 0.2

_WORD = re.compile(r"([A-Za-z\u00c0-\u024f]+(?:-[A-Za-z\u00c0-\u024f]+)*)(?:['’]s\b)?")
_CAPITALISED = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")
_QUOTED = re.compile(
    "\"([^\"]{2,200})\"|“([^”]{2,200})”|「([^」]{2,200})」|『([^』]{2,200})』|《([^》]{2,200})》|'([^']{2,200})'(?!\\w)"
)
# The weight of the frame's words in a question, relative to those of its topic.
_FRAME_WEIGHT = 0.2
# The weight of words that relate the things in a question, or name an act of telling. Answers rarely contain them: in
# conversations of people, "both" occurs in a quarter of the wrong hits, and in one of a hundred of the right ones.
# For Chinese, `query_terms` has such words.
_LIGHT_WEIGHT = 0.3
_LIGHT_WORDS = """
both either each other another together some any all every various different several certain specific particular
mention describe refer consider discuss say tell explain according happen receive pursue involve include indicate
participate
"""
# The text between names that are joined.
_JOINED = re.compile(r"(?:['’]s)?[\s,、]*(?:\b(?:and|or)\b|&|和|与|跟|及|或)?[\s,、]*", re.IGNORECASE)
_ABOUT_USER = re.compile(r"\b(?:i|my|me|mine|we|us|our|ours|the user)\b|我|咱|用户", re.IGNORECASE)
# "Can you show me" is a request, "did you show me" a question about the past.
_ABOUT_ASSISTANT = re.compile(
    r"(?<!can )(?<!could )(?<!would )(?<!will )\byou(?:'ve| have| had)?(?: \w+ly)? "
    r"(?:suggest|recommend|advis|propos|explain|describ|g[ai]ve|t[eo]ld|tell|sa(?:y|id)|mention|wr[io]te?|show|provid|list"
    r"|outlin|generat|creat|point|warn|remind|f[io](?:nd|und))\w*"
    r"|\byour (?:suggestion|recommendation|advice|explanation|answer|proposal|response)s?\b|\bthe assistant\b"
    "|你(?:当时|之前|上次|那次|后来|给我|给的|给过)*(?:建议|推荐|说过|讲过|提醒|解释|列|写|算|查|估|教|分析|指出|认为|告诉)|助手",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"\b(?:when|what (?:year|date|day|month|time)|which (?:year|date|day|month)|how long (?:ago|since))\b"
    "|什么时候|何时|哪一?[天年月]|几[月号点]|多久以?前|哪个?[月周]|什么时间|什么日期",
    re.IGNORECASE,
)
# Titles and teams: the mark of a person is that of any name, so it serves for them as well.
TITLES = (
    r"|\b(?:what|which|whose) (?:[a-z-]+ )?(?:books?|movies?|films?|shows?|series|songs?|albums?|bands?|artists?"
    r"|musicians?|singers?|actors?|authors?|games?|teams?|brands?|compan(?:y|ies)|schools?|universit(?:y|ies)"
    r"|restaurants?)\b"
)
SEVERAL_PLACES = r"|\b(?:which|what) (?:cities|countries|(?:state|town|place|side|room|folder|location|street)s)\b"
ANSWERS = {
    SOMEBODY: re.compile(
        r"\bwho(?:m|se)?\b|\bwhich (?:person|colleague|friend|teacher|doctor|customer|developer|engineer)\b"
        + TITLES
        + "|谁|哪一?位|什么人|何人|哪个(?:人|同事|朋友|老师|医生|同学)",
        re.IGNORECASE,
    ),
    SOMEWHERE: re.compile(
        r"\bwhere\b|\b(?:which|what) (?:city|country|state|town|place|side|room|folder|location|street)\b"
        + SEVERAL_PLACES
        + "|哪里|哪儿|何处|什么地方|哪一?边|在哪|去哪|哪座|哪国|哪条路|哪个(?:城市|地方|国家|区|省|医院|学校|房间)",
        re.IGNORECASE,
    ),
    AMOUNT: re.compile(
        r"\bhow (?:many|much|often|old|long|far|big|large|tall|fast|high|heavy)\b"
        r"|\bwhat (?:price|percentage|number|size|amount|age|port|version)\b"
        "|多少|几|多[久大长高远重贵快]|哪一?年|价格",
        re.IGNORECASE,
    ),
}
_LATEST = re.compile(
    r"\b(?:currently|current|latest|newest|now|nowadays|these days|at the moment|most recent(?:ly)?|still)\b"
    "|目前|现在|最新|如今|当前|最近一次|眼下|至今",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"\b(?:first|originally|initially|earliest|at first)\b|最早|最初|第一次|起初|一开始|首次", re.IGNORECASE
)


def understand(text: str, now: datetime) -> Question:
    """Analyse a question. `now` is the time at which it is asked, to which "yesterday" refers."""
    text = text[:_MOST_CHARS]
    words = query_terms(text)
    times = asked_times(text, now)
    if times:  # "last week" means another week in a memory, so the days of the week count instead
        relative = set(terms(relative_words(text, now)))
        words = {term: weight * (_RELATIVE_WEIGHT if term in relative else 1.0) for term, weight in words.items()}
    topic = outside_frame(text)
    if topic != text:
        kept = query_terms(topic)
        words = {term: weight if term in kept else weight * _FRAME_WEIGHT for term, weight in words.items()}
    if not _light_terms().isdisjoint(words):
        words = {
            term: min(weight, _LIGHT_WEIGHT) if term in _light_terms() else weight for term, weight in words.items()
        }
    if len(words) > _MOST_TERMS:
        words = dict(sorted(words.items(), key=lambda item: -item[1])[:_MOST_TERMS])
    plain = text if text.isascii() else simplified(text)
    return Question(
        text=text,
        words=words,
        speakers={name: speaker_mark(name) for name in _names(text, words)},
        role="assistant" if _ABOUT_ASSISTANT.search(plain) else "user" if _ABOUT_USER.search(plain) else "",
        times=times,
        phrases=tuple(
            phrase for match in _QUOTED.finditer(text) if (phrase := next(filter(None, match.groups())).strip())
        ),
        wants_time=_WHEN.search(plain) is not None,
        concepts=tuple([one for one in concepts(_QUOTED.sub(" ", text)) if not words.keys().isdisjoint(one.terms)]),
        answers=tuple(mark for mark, asking in ANSWERS.items() if asking.search(plain)),
        wants_many=wants_many(plain),
        parts=_parts(topic, words),
        order="latest" if _LATEST.search(plain) else "first" if _FIRST.search(plain) else "",
    )


@cache
def _light_terms() -> frozenset[str]:
    return frozenset(terms(_LIGHT_WORDS))


def _parts(topic: str, words: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Return the terms of each part that has a whole word of its own."""
    found = [tuple([term for term in query_terms(part) if term in words]) for part in parts_of(topic)]
    kept = tuple([part for part in found if any(len(term) > 1 and words[term] >= 1.0 for term in part)])
    return kept if len(kept) > 1 else ()


def _is_named(word: str, names: Collection[str]) -> bool:
    found = terms(word)
    return bool(found) and all(term in names for term in found)


def _mentions(text: str, names: Collection[str]) -> list[tuple[int, int, str]]:
    """Return the occurrences of terms of names in a text, in order: the start, the end and the term."""
    found = [(*word.span(), term) for word in _CAPITALISED.finditer(text) for term in terms(word[0]) if term in names]
    if not text.isascii():
        plain = simplified_in_place(text)
        found = [one for one in found if one[2].isascii()]
        unspaced = [name for name in names if not name.isascii()]
        found += [(*match.span(), name) for name in unspaced for match in re.finditer(re.escape(name), plain)]
    return sorted(found)


def _names(text: str, words: Mapping[str, float]) -> list[str]:
    """Return the terms that may be names: capitalised ones, unspaced scripts, or all if none is capitalised."""
    capitals = [word for word in _CAPITALISED.findall(text) if word[:1].isupper()]
    if not capitals:
        return [term for term in words if len(term) > 1]
    capital_terms = {term for word in capitals for term in terms(word)}
    return [term for term in words if len(term) > 1 and (term in capital_terms or not term.isascii())]
