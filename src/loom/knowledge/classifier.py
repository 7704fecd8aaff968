"""A linear model of the probability that a statement is worth keeping, and of its type.

The features are the kind of the statement by the rules of `loom.text.statement_kinds`, its words, numbers and length,
the statements around it, its speaker, and whether the previous turn asked a question. The weights were learned from
annotated dialogues by `benchmarks.statement_classifier`, which writes `classifier.json`. The model is pure Python at
run time, and deterministic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise, repeat
from math import exp, log, log1p
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from loom.text.scripts import HAN, is_chinese
from loom.text.specifics import Specifics, specifics
from loom.text.statement_kinds import StatementKind
from loom.text.statements import Statement, clauses

__all__ = [
    "NO_CONTEXT",
    "TYPES",
    "WEIGHTS_FILE",
    "Assessment",
    "Model",
    "TurnContext",
    "assess",
    "choice_probabilities",
    "features",
    "in_company",
    "is_kept",
    "load_model",
    "point_probabilities",
    "probability",
    "shipped_model",
    "type_probabilities",
]

WEIGHTS_FILE: Final = Path(__file__).with_name("classifier.json")

TYPES: Final[Mapping[str, StatementKind]] = MappingProxyType(
    {
        "decision": StatementKind.DECISION,
        "error": StatementKind.ERROR,
        "fix": StatementKind.FIX,
        "number": StatementKind.NUMBER,
        "reason": StatementKind.REASON,
        "date": StatementKind.EVENT,
        "plan": StatementKind.PLAN,
        "practice": StatementKind.PRACTICE,
        "api": StatementKind.API,
        "tool": StatementKind.TOOL,
        "identity": StatementKind.IDENTITY,
        "place": StatementKind.PLACE,
        "preference": StatementKind.PREFERENCE,
    }
)
"""The types of facts, each with its kind of statement."""


class TurnContext(NamedTuple):
    """The context of a turn: the role of its speaker, and the text of the turn before."""

    role: str | None = None
    before: str | None = None


NO_CONTEXT: Final = TurnContext()
"""No context is known: the text counts as the first turn of a user."""


class Assessment(NamedTuple):
    """A statement, its features, and the probability that it states something worth keeping."""

    statement: Statement
    features: tuple[str, ...]
    worth: float


class Model(NamedTuple):
    """Weights by feature: for the worth of a statement, for each type, for the clause that holds its point.

    `choice_weights` are for a statement and `clause_weights` for one of its clauses; together they decide whether a
    summary should choose the clause. A statement becomes a fact from the probability `keep_from` on; `data` is the
    checksum of the dialogues from which the weights were learned.
    """

    bias: float
    weights: Mapping[str, float]
    type_bias: Mapping[str, float]
    type_weights: Mapping[str, Mapping[str, float]]
    point_bias: float
    point_weights: Mapping[str, float]
    choice_bias: float
    choice_weights: Mapping[str, float]
    clause_weights: Mapping[str, float]
    keep_from: float
    data: str


@cache
def shipped_model() -> Model:
    """The shipped weights, read at first use."""
    return load_model(WEIGHTS_FILE)


def load_model(path: Path) -> Model:
    """The weights of a file that `benchmarks.statement_classifier` wrote."""
    held = json.loads(path.read_text(encoding="utf-8"))
    return Model(
        bias=held["bias"] / 100,
        weights=_weights(held["weights"]),
        type_bias=_weights(held["type_bias"]),
        type_weights={kind: _weights(weights) for kind, weights in held["type_weights"].items()},
        point_bias=held["point_bias"] / 100,
        point_weights=_weights(held["point_weights"]),
        choice_bias=held["choice_bias"] / 100,
        choice_weights=_weights(held["choice_weights"]),
        clause_weights=_weights(held["clause_weights"]),
        keep_from=held["keep_from"],
        data=held["data"],
    )


def _weights(hundredths: Mapping[str, int]) -> dict[str, float]:
    """Weights are stored in hundredths; a few thousand sentences do not determine more digits."""
    return {name: weight / 100 for name, weight in hundredths.items()}


def assess(
    found: Sequence[Statement],
    using: Model,
    context: TurnContext = NO_CONTEXT,
    wanted: Sequence[bool] | None = None,
) -> list[Assessment]:
    """The worth of each statement of one turn, given together and in order; with `wanted`, only of those."""
    return [
        Assessment(statement, names, probability(using.bias, using.weights, names))
        for statement, names in zip(found, features(found, context, wanted), strict=True)
        if names
    ]


# The score of a statement that is not assessed: a question, a greeting, code.
_TALK_SCORE: Final = -4.0
# A turn is small talk if its other statements score below this on average.
_EXPECTED_SCORE: Final = -0.5
# The share of the difference that is subtracted from the score of a statement. On dialogues that were not used for
# learning, this removes a fifth of the facts from small talk and one in a hundred of the annotated ones.
_COMPANY_PULL: Final = 0.2


def in_company(assessed: Sequence[Assessment], others: int = 0) -> list[Assessment]:
    """The assessments of one turn, in which the worth of a statement is lower the more the rest of the turn is small
    talk.

    A story with a number reads like a fact, and the jokes around it show that it is not one. `others` are the
    statements of the turn that were not assessed.
    """
    if len(assessed) + others < 2:
        return [*assessed]
    scores = [_logit(one.worth) for one in assessed]
    total = sum(scores) + others * _TALK_SCORE
    found = []
    for one, score in zip(assessed, scores, strict=True):
        beside = (total - score) / (len(assessed) + others - 1)
        found.append(one._replace(worth=_sigmoid(score + _COMPANY_PULL * min(0.0, beside - _EXPECTED_SCORE))))
    return found


def is_kept(assessment: Assessment, using: Model, context: TurnContext = NO_CONTEXT) -> bool:
    """Whether a statement is worth keeping as a fact.

    A short statement of a note without a previous turn is kept unless its worth is very low: people write down what
    matters to them.
    """
    note = "plain" in assessment.features and context.before is None
    return assessment.worth >= (_PLAIN_FROM if note else using.keep_from)


def type_probabilities(assessment: Assessment, using: Model) -> dict[str, float]:
    """For each type, the probability that the statement has this type and is worth keeping."""
    return {
        kind: assessment.worth * probability(using.type_bias[kind], weights, assessment.features)
        for kind, weights in using.type_weights.items()
    }


def point_probabilities(clause_features: Sequence[tuple[str, ...]], using: Model) -> list[float]:
    """For each clause of a statement, the probability that it contains the whole point of the statement."""
    if len(clause_features) == 1:
        return [1.0]
    return [probability(using.point_bias, using.point_weights, names) for names in clause_features]


def choice_probabilities(
    statement_features: Iterable[str], clause_features: Sequence[tuple[str, ...]], using: Model
) -> list[float]:
    """For each clause, the probability that it states a decision, an error, a fix or a number that still holds.

    A statement of one clause has the same features as that clause.
    """
    base = _score(using.choice_bias, using.choice_weights, statement_features)
    return [probability(base, using.clause_weights, clause) for clause in clause_features]


def probability(bias: float, weights: Mapping[str, float], names: Iterable[str]) -> float:
    """The probability that a linear model with this bias and these weights gives to these features."""
    return _sigmoid(_score(bias, weights, names))


_LEAST_PROBABILITY: Final = 1e-13


def _sigmoid(score: float) -> float:
    return 1.0 / (1.0 + exp(-max(-30.0, min(30.0, score))))


def _logit(probability: float) -> float:
    """The score of a probability, within the range of `_sigmoid`."""
    bounded = max(_LEAST_PROBABILITY, min(1.0 - _LEAST_PROBABILITY, probability))
    return log(bounded) - log1p(-bounded)


def _score(bias: float, weights: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(map(weights.get, names, repeat(0.0)), bias)


# --- features ----------------------------------------------------------------------------------------------

# A longer statement is assessed by its beginning.
_READ_CHARACTERS = 400
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?|\d[\d.,:]*%?")
_HAN_RUN = re.compile(f"[{HAN}]+")
_ENDINGS: Final = "?？!！~～…,，:：;；"
_CLOSERS: Final = " \"”'’)）」*"
# Groups of words with which the weights were learned. They are not meant as tables of dates or numbers.
_LEXICON: Final[Mapping[str, str]] = MappingProxyType(
    {
        word: f"L:{group}"
        for group, words in {
            "i": "i i'm i've i'll i'd my me mine",
            "we": "we we're we've we'll our us",
            "you": "you you're your you've you'll",
            "they": "he she he's she's his her they they're their",
            "it": "it it's its",
            "this": "this that these those that's",
            "modal": "would could might may should wouldn't couldn't",
            "will": "will won't going gonna",
            "past": "was were did had went got made came took ran said told found",
            "present": "is are has have does do",
            "joke": "haha lol joke kidding funny laugh laughing god honestly oh ha wow ugh joking swear legend",
            "feeling": "feel feels felt love hate happy sad glad sorry proud tired afraid nice lovely beautiful "
            "terrible great good bad worst best awful",
            "general": "usually generally people everyone everybody somebody someone nobody anyone always never "
            "often sometimes",
            "hedge": "maybe perhaps probably guess think suppose wonder imagine wish hope if whether unless seems",
            "cause": "because since so therefore due reason cause caused why",
            "contrast": "but however although though instead not rather",
            "time": "now today tomorrow yesterday tonight week month year day days weeks months years hour hours "
            "minutes morning evening monday tuesday wednesday thursday friday saturday sunday january february "
            "march april june july august september october november december",
            "story": "once remember grandmother grandfather childhood story stories ago when used",
            "agree": "yes yeah yep ok okay sure right fine agreed exactly true indeed deal",
            "count": "two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty "
            "hundred thousand million half dozen couple",
        }.items()
        for word in words.split()
    }
)
# The least worth for which a short statement of a note is kept, and the length up to which it counts as short.
_PLAIN_FROM: Final = 0.2
_PLAIN_LENGTH: Final = 60

_LENGTHS: Final = (30, 60, 100, 150, 220)


def features(
    found: Sequence[Statement], context: TurnContext | None = None, wanted: Sequence[bool] | None = None
) -> list[tuple[str, ...]]:
    """The names of the features of each statement of a turn, in a fixed order.

    Without a `context` the statements are the clauses of one statement, which are not divided further. A statement
    that is not `wanted` has no features.
    """
    if wanted is not None and not any(wanted):
        return [()] * len(found)
    kinds = ["-", *(statement.kind.value for statement in found), "-"]
    details = [specifics(statement.text[:_READ_CHARACTERS]) for statement in found]
    counts = [len(one.numbers) + len(one.dates) + len(one.names) + len(one.identifiers) for one in details]
    beside = ["-", *(str(min(count, 3)) for count in counts), "-"]
    total = sum(counts)
    last = len(found) - 1
    # In a note every statement asserts something, apart from greetings.
    asserted = [one.asserted for one in found if one.asserted or one.kind is not StatementKind.SMALL_TALK]
    note = bool(asserted) and all(asserted)
    role = "user" if context is None else _ROLES.get(context.role or "user", "assistant")
    asked = [] if context is None else _asked(context.before)
    of_turn = [
        f"turn{min(last + 1, 8)}",
        f"asserted{min(3, sum(statement.asserted for statement in found))}",
        f"details{min(total, 10)}",
        f"length{min(sum(_length(statement.text) for statement in found) // 100, 12)}",
    ]
    found_features: list[tuple[str, ...]] = []
    for place, statement in enumerate(found):
        if wanted is not None and not wanted[place]:
            found_features.append(())
            continue
        kind = statement.kind.value
        names = [
            *of_turn,
            f"place{min(place, 4)}",
            f"left{min(last - place, 2)}",
            f"before:{kinds[place]}",
            f"after:{kinds[place + 2]}",
            f"before#{beside[place]}",
            f"after#{beside[place + 2]}",
            f"others#{min(total - counts[place], 6)}",
        ]
        if note:
            names += ("note", f"note:{kind}")
            if _length(statement.text) <= _PLAIN_LENGTH:
                names += ("plain", f"plain:{kind}")
        if context is not None:
            names += asked
            _add_context(names, statement, role, place, asked)
            _add_clauses(names, statement)
        _add_own(names, statement, details[place])
        found_features.append(tuple(dict.fromkeys(names)))
    return found_features


_ROLES: Final = MappingProxyType({"user": "user", "tool": "tool", "function": "tool"})
_QUESTION_MARKS = re.compile("[?？]")
_ASKS = re.compile("[?？][\\s\"'”’)）」~～]*$|[吗呢么][。.！!～~]*$")
# The number of characters at the end of the previous turn that are read.
_BEFORE_CHARACTERS = 300
# A shorter statement after a question is a short answer.
_SHORT_ANSWER = 40


def _asked(before: str | None) -> list[str]:
    """Whether the previous turn asked something, and whether it ended with the question."""
    end = (before or "")[-_BEFORE_CHARACTERS:].rstrip()
    names = ["asked"] if _QUESTION_MARKS.search(end) else []
    return [*names, "asks"] if _ASKS.search(end) else names


def _add_context(names: list[str], statement: Statement, role: str, place: int, asked: Sequence[str]) -> None:
    """Add the role of the speaker, and the place after a question: an answer matters even if its own words say
    little."""
    kind = statement.kind.value
    names += (f"role:{role}", f"role:{role}:{kind}")
    for name in asked:
        names += (f"{name}{min(place, 2)}", f"{name}:{kind}")
    if "asks" in asked and _length(statement.text) < _SHORT_ANSWER:
        names += ("answer", f"answer{min(place, 2)}")


def _add_clauses(names: list[str], statement: Statement) -> None:
    """Add the kinds of the clauses of a statement: a sentence that ends in a joke may begin with a decision."""
    kinds = [clause.kind.value for clause in clauses(statement)]
    names += [f"clause:{kind}" for kind in kinds]
    names.append(f"clauses{min(len(kinds), 5)}")
    if len(kinds) > 1:
        names += (f"first:{kinds[0]}", f"last:{kinds[-1]}")
        names += [f"then:{one}:{other}" for one, other in pairwise(kinds)]


def _add_own(names: list[str], statement: Statement, details: Specifics) -> None:
    text = statement.text[:_READ_CHARACTERS]
    kind = statement.kind.value
    language = "z" if is_chinese(text) else "e"
    names += (f"kind:{kind}", f"in:{language}")
    names += [name for name in ("machine", "quoted") if getattr(statement, name)]
    counts = {
        "n": len(details.numbers),
        "d": len(details.dates),
        "a": len(details.names),
        "i": len(details.identifiers),
    }
    for code, count in counts.items():
        names.append(f"#{code}{min(count, 3)}")
        if count:
            names += (f"#{code}{language}", f"{code}:{kind}")
    total = sum(counts.values())
    names += (f"#{min(total, 6)}", *([] if total else [f"0:{kind}"]), *(["not"] if details.negated else []))
    names += [_number_shape(number) for number in details.numbers]
    length = _length(text)
    names += (f"long{min(length // 25, 12)}", *(f"above{limit}" for limit in _LENGTHS if length > limit))
    ending = text.rstrip(_CLOSERS)[-1:]
    names.append(f"end{ending if ending and ending in _ENDINGS else '.'}")
    names += [mark for mark, characters in _MARKS if any(character in text for character in characters)]
    _add_words(names, text)
    if not text.isascii():
        _add_characters(names, text)


_MARKS: Final = (("quotes", '"“「'), ("brackets", "(（"), ("colon", ":："))


def _length(text: str) -> int:
    """The length in letters; a Chinese character counts as three."""
    return len(text) * (3 if is_chinese(text) else 1)


def _number_shape(number: str) -> str:
    digits = sum(map(str.isdigit, number))
    money = "$" if number[0] in "$€£¥" else ""
    return f"shape{money}{'%' if number[-1] == '%' else ''}{'.' if '.' in number else ''}{min(digits, 5)}"


def _add_words(names: list[str], text: str) -> None:
    words = ["0" if word[0].isdigit() else word.replace("’", "'") for word in _WORD.findall(text.lower())]
    if not words:
        return
    names += [f"w:{word}" for word in words if word != "0"]
    names += [_LEXICON[word] for word in words if word in _LEXICON]
    names += [f"b:{one} {other}" for one, other in pairwise(words)]
    names += [f"k:{one} {other}" for one, other in zip(words, words[2:], strict=False)]
    names += (f"f:{words[0]}", f"f:{' '.join(words[:2])}")


def _add_characters(names: list[str], text: str) -> None:
    runs = _HAN_RUN.findall(text)
    for run in runs:
        names += (*(f"c:{one}" for one in run), *(f"c:{one}{other}" for one, other in pairwise(run)), f"e:{run[-1]}")
    if runs:
        names += (f"f:{runs[0][:1]}", f"f:{runs[0][:2]}")
