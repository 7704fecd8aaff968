"""The person whom a turn addresses, and the person whom it is about.

"Good morning, Kate!" names the listener. A question may use a nickname that is not the name of a speaker in the
store. If one of two speakers addresses the other by it, it refers to the other. A turn that says "you" more often
than "I" is about the listener and rarely says something about its speaker.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from loom.recall.candidates import Candidates
from loom.recall.questions import Question
from loom.recall.relevance import names_speaker
from loom.storage.search_view import SearchView
from loom.text.words import terms

__all__ = ["with_addressed", "with_own"]

# The most records with a name that are read. In at least half of them, and in `_FEWEST`, the name must open or end a
# sentence or precede a comma; in `_FEWEST_SURE` it must follow a greeting or "you", or open a sentence: "Hello Kate",
# "What about you, Kate?". A third person is not mentioned in this way. The other speaker may use the name in at most
# a fifth of them: "I'm Kate."
_READ = 12
_FEWEST = 3
_FEWEST_SURE = 2
_BY_ONE = 0.8
_MOST_CHARS = 1_000
_NAME = r"(?P<name>[^\W\d_][\w'’-]*)"
_ENDS = r"\s*(?=[,.!?;:\n]|$)"
_SURE = re.compile(
    r"(?:^|[.!?\n] *|\b(?:hi|hey|hello|dear|thanks|bye|(?:good )?(?:morning|night|evening)),? +"
    rf"|\byour?\b[^.!?\n]{{0,80}}? ){_NAME}{_ENDS}",
    re.IGNORECASE,
)
_LIKELY = re.compile(rf"{_NAME}{_ENDS}")
# The terms for the speaker and for the listener.
_OF_SPEAKER = ("i", "me", "my", "mine", "myself", "we", "us", "our", "我", "咱")
_OF_LISTENER = ("you", "your", "你", "您")
# Frequencies from the index are rounded.
_ALMOST = 0.999


def with_addressed(view: SearchView, found: Candidates, question: Question) -> Candidates:
    """Return the candidates with `addressed` filled in."""
    talking = found.speakers >= 0
    if len(np.unique(found.speakers[talking])) < 2:
        return found
    spread = dict(zip(question.marks, found.spread.tolist(), strict=True))
    addressed: dict[str, npt.NDArray[np.bool_]] = {}
    for row, term in enumerate(question.words):
        if not term.isascii() or spread.get(question.speakers.get(term, ""), 1):
            continue
        holding = np.flatnonzero((found.words[row] > 0.0) & talking)
        if len(holding) >= _FEWEST and (meant := _addressee(view, found, term, holding)) is not None:
            addressed[term] = found.speakers == meant
    return replace(found, addressed=addressed) if addressed else found


def _addressee(view: SearchView, found: Candidates, term: str, holding: npt.NDArray[np.intp]) -> int | None:
    """Return the number of the speaker whom the other one of two speakers addresses by this term, or None."""
    holding = holding[:_READ]
    records = view.records(found.keys[holding].tolist())
    speaking: Counter[int] = Counter()
    sessions: set[int] = set()
    sure = 0
    for place in holding.tolist():
        record = records.get(int(found.keys[place]))
        text = "" if record is None else record.content[:_MOST_CHARS]
        if _names(_LIKELY, text, term):
            speaking[int(found.speakers[place])] += 1
            sessions.add(int(found.sessions[place]))
            sure += _names(_SURE, text, term)
    speaker, times = max(speaking.items(), key=lambda one: one[1], default=(-1, 0))
    if sure < _FEWEST_SURE or times < max(_FEWEST, len(holding) / 2, _BY_ONE * speaking.total()):
        return None
    present = found.speakers[np.isin(found.sessions, [*sessions - {-1}]) & (found.speakers >= 0)]
    others = set(present.tolist()) - {speaker}
    return others.pop() if len(others) == 1 else None


def _names(address: re.Pattern[str], text: str, term: str) -> bool:
    return any(term in terms(match["name"]) for match in address.finditer(text))


def with_own(view: SearchView, found: Candidates, question: Question) -> Candidates:
    """Return the candidates with `own` filled in if the question names a speaker."""
    if not len(found.keys) or not names_speaker(found, question):
        return found
    table, weights, _ = view.text.contributions(dict.fromkeys((*_OF_SPEAKER, *_OF_LISTENER), 1.0), found.keys)
    said = table / np.where(weights > 0.0, weights, 1.0)[:, np.newaxis]
    speaker, listener = said[: len(_OF_SPEAKER)].sum(axis=0), said[len(_OF_SPEAKER) :].sum(axis=0)
    return replace(found, own=(speaker > 0.0) & (speaker >= _ALMOST * listener))
