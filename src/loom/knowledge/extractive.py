"""Extractive summaries: clauses of a dialogue, chosen by their worth and shortened to fit a token budget.

Deterministic, without a model. The classifier gives the probability that a clause matters, and `statement_kinds` the
weight of its kind. Only the newest version of a repeated or corrected statement counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from loom.knowledge.classifier import (
    TYPES,
    Model,
    TurnContext,
    choice_probabilities,
    features,
    point_probabilities,
    shipped_model,
)
from loom.knowledge.extraction import CandidateFact, candidate_facts
from loom.knowledge.fact_sources import Source
from loom.knowledge.keys import apply_correction, contradicts, fact_identity
from loom.knowledge.shortening import SHORTEST, clause_forms
from loom.knowledge.states import is_state
from loom.knowledge.summarizer import KEEP_FROM, Kept, Summary, Turn
from loom.knowledge.wording import reworded
from loom.text.scripts import is_chinese, is_han
from loom.text.specifics import specifics
from loom.text.statement_kinds import WEIGHTS, StatementKind
from loom.text.statements import clauses, cuts
from loom.text.tokens import TokenCounter
from loom.text.words import content_terms, terms

__all__ = ["key_clauses", "summarize_by_rules"]


@dataclass(slots=True, eq=False)
class _Unit:
    """A clause that may be in the summary, at four lengths, with its worth."""

    place: int
    turn: Turn
    kind: StatementKind
    worth: float
    forms: tuple[str, ...]
    costs: tuple[int, ...]
    score: float
    chinese: bool
    lead: str = ""
    state: bool = False
    level: int = 0
    partner: _Unit | None = None

    @property
    def text(self) -> str:
        return self.forms[self.level]

    @property
    def cost(self) -> int:
        return self.costs[self.level]

    @property
    def shortest(self) -> int:
        """The index of its shortest form."""
        return len(self.forms) - 1


# The problem of a fix is searched for among this many clauses before it.
_CHAIN = 8
# The factor for a problem with its solution, so that the pair is preferred to a short decision.
_CHAIN_BONUS = 2.0
# The factor for each further clause of a turn: another turn is more likely to say something new.
_NEXT_OF_TURN = 0.85
# Above 1, so that a clause that probably does not hold the point leaves its tokens to others.
_POINT_POWER = 1.3
# The weights from KEEP_FROM on are raised to this power, because all of these statements should be kept.
_KEPT_POWER = 0.3
# The factor for a kind that weighs less than KEEP_FROM.
_LESSER = 0.05
# Below this worth, only one statement in twenty was marked as important.
_LEAST_WORTH = 0.1
# The same for a present state, which only the newest statement gives.
_LEAST_OF_STATE = 0.02
# The lowest score of a state. From 0.2 to 0.25, summaries keep 1.7 % more of the marked statements.
_LEAST_SCORE_OF_STATE = 0.2
# The outdated statement of a correction is searched for among this many.
_LOOK_BACK = 40
# Passes over the clauses: without those whose names are already in the summary, with them, and with the tokens that
# are left after the chosen clauses were counted together.
_FILLINGS = 3
# A clause counts as at least this long: a very short one says little.
_FEWEST_TOKENS = 5
_FEWEST_TOKENS_CHINESE = 6


# The factor for a clause without a number, a date, a name or an identifier in a readable summary.
_VAGUE = 0.2
# The factor for a clause that addresses a person ("your support helps", "let's keep going").
_ADDRESSED = 0.3
_TO_SOMEBODY = re.compile(
    r"(?:(?:and|but|so|yes|yeah|no|wow|thanks|well|oh)\b\W*)*"
    r"(?:you(?:r|rs)?\b|you['’]|let['’]?s\b|keep \w+ing\b|thank)"
    "|[你您咱]|谢谢|加油|一起",
    re.IGNORECASE,
)
# The punctuation at the end of a sentence is left out where clauses stand side by side.
_ENDS = " .!,;:。！，；：~～"
# The fewest content words of a clause in a readable summary; one less if it has a number or an identifier.
_FEWEST_TERMS = 3


def summarize_by_rules(
    turns: list[Turn], budget: int, counter: TokenCounter, weights: Model | None, *, readable: bool = False
) -> Summary:
    """Summarise turns, given in the order of time, in at most `budget` tokens. The default `weights` are the shipped
    ones.

    A `readable` summary says who speaks and keeps the words of each clause; otherwise clauses are shortened, down to
    telegrams, and more of them fit.
    """
    units = _units(turns, counter, weights, readable) if budget else []
    if not units:
        return Summary("", 0, "extractive")
    _spread(units)
    _join_chains(units)
    chosen = _chosen(units, budget, counter)
    text, tokens = _fitted(chosen, units, budget, counter)
    sources = tuple(dict.fromkeys(unit.turn.id for unit in chosen))
    kept = tuple(
        # "The database is SQLite now" is a state, and a decision as well.
        Kept(
            unit.text,
            unit.turn.id,
            (StatementKind.STATE if unit.state else unit.kind).value,
            round(unit.worth, 3),
        )
        for unit in chosen
    )
    return Summary(text, tokens, "extractive", sources, kept)


def key_clauses(turns: list[Turn], budget: int, counter: TokenCounter, weights: Model | None) -> list[str]:
    """The clauses that matter most, word for word and the best first, about `budget` tokens together."""
    units = _units(turns, counter, weights, readable=True)
    _spread(units)
    chosen: list[str] = []
    room = budget
    for unit in sorted(units, key=lambda unit: (-unit.score, unit.place)):
        if room <= 0:
            break
        chosen.append(unit.text)
        room -= unit.cost
    return chosen


def _units(turns: list[Turn], counter: TokenCounter, weights: Model | None, readable: bool) -> list[_Unit]:
    """The clauses that may be worth keeping; of repeated or corrected statements, only the newest version."""
    weights = weights or shipped_model()
    recency = {id(turn): number / max(1, len(turns) - 1) for number, turn in enumerate(turns)}
    speakers = frozenset(turn.speaker for turn in turns if turn.speaker)
    units: list[_Unit] = []
    for turn, one, changed in _newest(turns, weights):
        # Of two decisions, the newer or the more important one is more likely to be asked for.
        value = _value(one) * (0.95 + 0.1 * recency[id(turn)]) * (0.75 + 0.5 * turn.importance)
        parts = clauses(one.statement) if readable else cuts(one.statement)
        if changed or (len(parts) == 1 and not readable):
            parts = [one.statement]
            said = [one.fact.content.partition(": ")[2]]
            of_parts = [one.features]
        else:
            said = [part.text if readable else reworded(part.text, turn.speaker) for part in parts]
            of_parts = features(parts)
        points = point_probabilities(of_parts, weights)
        choices = choice_probabilities(one.features, of_parts, weights)
        for part, words, point, choice in zip(parts, said, points, choices, strict=True):
            state = is_state(part)
            forms: tuple[str, ...] = clause_forms(
                words, one.statement.machine, _doer(part.text, turn.speaker, one.fact.kind), state=state
            )
            lead = ""
            if readable:
                # Word for word, on one line; of the output of a program the beginning.
                plain = " ".join(forms[1 if one.statement.machine else 0].split()).rstrip(_ENDS)
                forms, lead = (plain,), _lead(turn)
            if forms[0] and not (readable and _says_little(forms[0], turn)):
                costs = tuple(counter.count_batch([lead + form for form in forms]))
                # The two estimates err on different sentences: together they keep 2 % more of unseen dialogues.
                score = (value * point**_POINT_POWER * choice) ** 0.5
                if state:
                    score = max(score, _LEAST_SCORE_OF_STATE)
                if readable:
                    score *= _information(forms[0], speakers)
                units.append(
                    _Unit(
                        len(units),
                        turn,
                        one.fact.kind,
                        one.worth,
                        forms,
                        costs,
                        score,
                        is_chinese(forms[0]),
                        lead,
                        state,
                    )
                )
    return units


def _lead(turn: Turn) -> str:
    """The speaker as the beginning of a line of a readable summary."""
    speaker = turn.speaker or turn.role
    return "" if not speaker else f"{speaker}：" if is_han(speaker[-1]) else f"{speaker}: "


def _says_little(text: str, turn: Turn) -> bool:
    """Whether a clause says nothing by itself: only a name, a date, or a word or two."""
    said = specifics(text)
    fewest = _FEWEST_TERMS - 1 if said.numbers or said.identifiers else _FEWEST_TERMS
    return len({*content_terms(text)} - {*terms(turn.speaker or "")}) < fewest


def _information(text: str, speakers: frozenset[str]) -> float:
    """The information of a clause, as a factor.

    It is lower without a number, a date, an identifier or a name other than the speakers', and lower if the clause
    only addresses a person.
    """
    said = specifics(text)
    specific = said.numbers or said.dates or said.identifiers or {*said.names} - speakers
    return (1.0 if specific else _VAGUE) * (_ADDRESSED if _TO_SOMEBODY.match(text) else 1.0)


def _doer(text: str, speaker: str | None, kind: StatementKind) -> str | None:
    """The speaker, if a telegram can leave the name out: in "raised the limit to 92", but not in "lives in
    Lisbon"."""
    return None if not speaker or text.startswith(speaker) or kind in _WITH_THEIR_DOER else speaker


_WITH_THEIR_DOER = frozenset(
    {
        StatementKind.IDENTITY,
        StatementKind.PLACE,
        StatementKind.PREFERENCE,
        StatementKind.PRACTICE,
        StatementKind.PLAN,
        StatementKind.EVENT,
    }
)


def _spread(units: list[_Unit]) -> None:
    """Lower the scores of all clauses of a turn but the best.

    Chinese clauses keep their scores: they are shorter, and one statement takes several of them.
    """
    of_turn: dict[int, list[_Unit]] = {}
    for unit in units:
        of_turn.setdefault(id(unit.turn), []).append(unit)
    for together in of_turn.values():
        together.sort(key=lambda unit: (-unit.score / (unit.costs[-1] + 1), unit.place))
        for rank, unit in enumerate(together):
            if not unit.chinese:
                unit.score *= _NEXT_OF_TURN**rank


def _newest(turns: list[Turn], weights: Model) -> list[tuple[Turn, CandidateFact, bool]]:
    """Each statement once, in its newest version, with a flag that says whether a correction changed its words."""
    found: dict[str, tuple[Turn, CandidateFact, bool]] = {}
    keyed: dict[str, str] = {}
    for before, turn in zip((None, *turns), turns, strict=False):
        source = Source(
            turn.text,
            ((0, len(turn.text)),),
            turn.speaker,
            untrusted=turn.role in ("tool", "function"),
            context=TurnContext(turn.role, None if before is None else before.text),
        )
        for one in candidate_facts(
            source, weights=weights, least=lambda statement: _LEAST_OF_STATE if is_state(statement) else _LEAST_WORTH
        ):
            fact, changed = one.fact, False
            normal = fact_identity(fact)
            found.pop(normal, None)
            if fact.key is not None:
                older = keyed.get(fact.key)
                if older is not None and older != normal:
                    found.pop(older, None)
                keyed[fact.key] = normal
            elif fact.replaces is not None:
                wrong = [
                    name for name, (_, other, _) in [*found.items()][-_LOOK_BACK:] if contradicts(fact, other.fact)
                ]
                if wrong:
                    fact, changed = apply_correction(fact, found[wrong[-1]][1].fact), True
                    normal = fact_identity(fact)
                for name in wrong:
                    del found[name]
            found[normal] = (turn, one._replace(fact=fact), changed)
    return [*found.values()]


def _value(one: CandidateFact) -> float:
    """The expected weight of a statement over its possible types, with those from KEEP_FROM on far above the
    others."""
    value = 0.0
    for name, probability in one.types.items():
        weight = WEIGHTS[TYPES[name]]
        value += probability * (weight**_KEPT_POWER if weight >= KEEP_FROM - 1e-9 else weight * _LESSER)
    if one.fact.kind not in TYPES.values():
        # Changed files and test results are not part of the annotated dialogues from which the weights were learned.
        value = max(value, one.worth * WEIGHTS[one.fact.kind])
    return value


def _join_chains(units: list[_Unit]) -> None:
    """Raise the scores of a problem and its solution, and the score of a result to that of the fix."""
    for number, unit in enumerate(units):
        if unit.kind is StatementKind.FIX:
            plain = unit.score
            for other in reversed(units[max(0, number - _CHAIN) : number]):
                # A failed build is a problem too if its solution is in the same turn.
                if other.kind is StatementKind.ERROR or (
                    other.kind is StatementKind.TEST and other.turn is unit.turn
                ):
                    other.score *= _CHAIN_BONUS
                    unit.score *= _CHAIN_BONUS
                    unit.partner, other.partner = other, unit
                    break
            for other in units[number + 1 : number + 3]:
                if other.kind is StatementKind.TEST:
                    other.score = max(other.score, plain)


def _density(unit: _Unit) -> float:
    """The score of a clause per token. The exponent lets a fix of 18 tokens go before a result of 9."""
    fewest = _FEWEST_TOKENS_CHINESE if unit.chinese else _FEWEST_TOKENS
    return unit.score / float((max(unit.cost, fewest) + 1) ** 0.95)


def _chosen(units: list[_Unit], budget: int, counter: TokenCounter) -> list[_Unit]:
    """All clauses at the greatest length at which they fit, or else the densest ones."""
    for level in range(SHORTEST + 1):
        for unit in units:
            unit.level = min(level, unit.shortest)
        if sum(unit.cost + 1 for unit in units) <= budget:
            return [*units]
    chosen: list[_Unit] = []
    taken: set[_Unit] = set()
    told: set[str] = set()
    densest = sorted(units, key=lambda unit: (-_density(unit), -unit.place))
    room = budget
    for filling in range(_FILLINGS):
        for unit in densest:
            # A problem and its solution are chosen together.
            for one in (unit, unit.partner):
                if one is None or one in taken or one.cost + 1 > room:
                    continue
                named = _named_in(one.text)
                if filling == 0 and one is unit and named and named <= told:
                    continue  # its names are already in the summary: others come first
                chosen.append(one)
                taken.add(one)
                told |= named
                room -= one.cost + 1
        # Joined clauses may cost less than their sum; the next pass uses the rest.
        room = budget - _counted(chosen, counter)[1]
    for unit in sorted(chosen, key=lambda unit: -unit.place):
        # The rest of the budget is used for longer forms, newest clauses first.
        for level in range(unit.level):
            growth = unit.costs[level] - unit.cost
            if growth <= room:
                unit.level = level
                room -= growth
                break
    return chosen


def _fitted(chosen: list[_Unit], units: list[_Unit], budget: int, counter: TokenCounter) -> tuple[str, int]:
    """The summary of the chosen clauses and its tokens, with the fewest changes that keep it within the budget.

    The clauses were counted one by one; joined they cost a little more or less. A clause that is removed may leave
    room for a shorter one; without this step up to a twelfth of the budget was not used.
    """
    text, tokens = _counted(chosen, counter)
    while tokens > budget and chosen:
        grown = [unit for unit in chosen if unit.level < unit.shortest]
        if grown:
            least = min(grown, key=_density)
            least.level = least.shortest
        else:
            chosen.remove(min(chosen, key=_density))
        text, tokens = _counted(chosen, counter)
    taken = {*chosen}
    for unit in sorted(
        (unit for unit in units if unit not in taken), key=lambda unit: (-_density(unit), -unit.place)
    ):
        if unit.costs[-1] + 1 <= budget - tokens:
            unit.level = unit.shortest
            longer, more = _counted([*chosen, unit], counter)
            if more <= budget:
                chosen.append(unit)
                chosen.sort(key=lambda unit: unit.place)
                text, tokens = longer, more
    return text, tokens


def _named_in(text: str) -> frozenset[str]:
    """The numbers, names and identifiers of a clause, by which repetitions are recognised.

    Chinese clauses have none: their numerals are too common, and summaries kept 1.6 % less with them.
    """
    if is_chinese(text):
        return frozenset()
    found = specifics(text)
    return frozenset((*found.numbers, *found.identifiers, *found.names))


def _counted(chosen: list[_Unit], counter: TokenCounter) -> tuple[str, int]:
    """The chosen clauses as a summary, and its tokens."""
    chosen.sort(key=lambda unit: unit.place)
    text = _rendered(chosen)
    return text, counter.safe_count(text)


def _rendered(units: list[_Unit]) -> str:
    """One line per turn with all its statements; if lines name speakers, one line per speaker."""
    lines: list[str] = []
    last: Turn | None = None
    for unit in units:
        if last is unit.turn or (last is not None and unit.lead and unit.lead == _lead(last)):
            # Between Chinese characters a space costs two tokens, as much as two characters.
            lines[-1] += f"；{unit.text}" if is_han(lines[-1][-1:]) else f"; {unit.text}"
        else:
            lines.append(unit.lead + unit.text)
        last = unit.turn
    return "\n".join(lines)
