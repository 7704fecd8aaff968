"""The wording of facts: without opening and closing words, in the third person, and with complete dates.

Pure functions from a statement to the words of a fact, in English and Chinese.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime
from typing import Final

from loom.text.date_phrases import CHINESE_TIME_OF_DAY, HOUR_CHINESE
from loom.text.dates import Span, date_mentions
from loom.text.numerals import NUMBER_WORDS
from loom.text.scripts import HAN, is_chinese
from loom.text.specifics import specifics
from loom.text.statement_kinds import without_opening
from loom.text.tense import PAST_VERBS
from loom.text.words import word_set

__all__ = [
    "END_MARKS",
    "opens_reason",
    "reworded",
    "spoken",
    "third_person",
    "with_dates",
    "without_connective",
    "word_decision",
    "word_reason",
    "written_span",
]


END_MARKS: Final = " \t\n。．.!！；;，,～~：:"
"""The punctuation that is removed from the end of a fact."""

_CONNECTIVE = re.compile(
    r"(?:and then|and now|and|but|so|then|which|while|although|though|that|plus)\s+|(?:但是?|不过|而且|并且|所以|"
    r"因此|然后|然而|可是|只是|于是|另外)[，,]?",
    re.IGNORECASE,
)
_REASON_OPENING = re.compile(
    r"\s*(?:(?:主要|可能|都)?是?(?:因为|由于)|毕竟|(?:and |but |mainly |mostly |partly )?(?:because(?: of)?|since|"
    r"due to|as it|as we)\b)\s*",
    re.IGNORECASE,
)


def without_connective(text: str) -> str:
    """The text without the word that joins it to the clause before ("and then", 但是)."""
    match = _CONNECTIVE.match(text)
    return text if match is None else text[match.end() :]


def opens_reason(text: str) -> bool:
    """Whether a clause begins with a word that gives a reason ("because", 由于)."""
    return _REASON_OPENING.match(text) is not None


def spoken(text: str, chinese: bool) -> str:
    """The text without the words that only open, join or close it."""
    for _ in range(3):
        shorter = without_opening(text)
        match = _CONNECTIVE.match(shorter)
        if match is not None and not (chinese and match.group()[0] in "so"):
            shorter = shorter[match.end() :]
        if shorter == text:
            break
        text = shorter
    return _CLOSING.sub("", text)


_CLOSING = re.compile(
    r",? (?:i'm afraid|i guess|by the way|btw|as you know|you know|remember|haha+|lol|though|right|okay|ok|please|"
    r"did i tell you)[\s.!?]*$"
    r"|[，,](?:你知道的?|对吧|哈+|哈哈.*|嘿+)[\s。！？~～]*$",
    re.IGNORECASE,
)


def reworded(text: str, speaker: str | None) -> str:
    """A clause in the wording of a summary: on one line, without opening and closing words, with the speaker's
    name."""
    text = " ".join(spoken(text, is_chinese(text)).split()).strip(END_MARKS)
    return third_person(text, speaker) if speaker else text


# --- decisions and reasons ---------------------------------------------------------------------------------

_DECIDED = re.compile(
    r"(?:.{0,60}?\b(?:we|i|they|the team|everyone|it)(?:'ve| have| has|'s| was| were)?(?: (?:finally|all|both|"
    r"just|also|already|now|eventually|ultimately|then))* "
    r"(?:decided|agreed|chose|opted|voted|resolved|settled)(?: (?:to|on|for|that we|that))?|(?:we|i)(?:'ll| "
    r"will| are going to|'re going to)(?: now)?"
    r"|let(?:'|’)?s|(?:the |our |final )?decision(?: is| was|:)(?: to)?)\s+",
    re.IGNORECASE,
)
_DECIDED_CHINESE = re.compile(
    r"(?:.{0,30}?(?:最终|最后|经过讨论|讨论后|会上|一致)?(?:我们|我|大家|公司|团队|用户)?(?:最终|最后|已经|一致|"
    r"都|共同)?(?:决定|商定|敲定|拍板|同意)(?:了|要|好)?[：:，,]?\s*)"
)
_TOPIC = re.compile(
    r"(?:讨论|比较|对比|研究|评估|分析|考察|看|聊|介绍|提到)了?(?:一下)?\s?(?P<topic>[A-Za-z][\w.+#-]*(?: "
    r"[A-Z][\w.]*)?)\s?的[^，。]{0,12}?(?P<head>"
    rf"[{HAN}]{{2}})(?=[，,。]|$)"
)


def word_decision(said: str, before: str, chinese: bool) -> str:
    """The decision alone ("use X"), without the words that announce it.

    A topic that only the text `before` names is inserted.
    """
    match = (_DECIDED_CHINESE if chinese else _DECIDED).match(said)
    if match is None or len(said) - match.end() < 4:
        return said
    decided = said[match.end() :]
    left_out = said[: match.end()]
    topic = _TOPIC.search(before) or _TOPIC.search(left_out)
    if topic is None and any(specifics(left_out)[:-1]):
        # The occasion of a decision belongs to it.
        return said
    if topic is not None and topic["head"] in decided and topic["topic"] not in decided:
        verb = re.match(r"(?:继续|统一|先|都)*(?:使用|采用|选用|选择|用|选)\s?", decided)
        at = verb.end() if verb else 0
        decided = f"{decided[:at].rstrip()} {topic['topic']} {decided[at:]}".strip()
    return decided if chinese or decided[:1].isupper() else decided[0].lower() + decided[1:]


_REASON_LEAD = re.compile(
    r"(?:.{0,20}?(?:(?:根本)?原因(?:是|在于|：|:)|根因是?)|(?:the |main |root |real |our )*(?:reason|cause)(?: is|"
    r" was|:)(?: that| because)?|that's why)\s*",
    re.IGNORECASE,
)


def word_reason(said: str) -> str:
    """The reason alone, without the words that announce it."""
    opening = _REASON_OPENING.match(said) or _REASON_LEAD.match(said)
    return said[opening.end() :] if opening is not None and len(said) - opening.end() >= 2 else said


# --- third person ------------------------------------------------------------------------------------------

# Verbs whose past form is the same as the present: after "I" they are more often past.
_PAST = PAST_VERBS | word_set("put quit read set cut hit let")
_UNCHANGED = word_set(
    "will would can could should must may might shall used cannot can't won't couldn't wouldn't shouldn't"
)
_ADVERB = word_set(
    "always usually never really also still now just only mostly normally generally often sometimes recently "
    "finally currently already personally actually definitely absolutely both even much then simply typically no "
    "longer"
)
_PRESENT = {
    "am": "is",
    "have": "has",
    "do": "does",
    "don't": "doesn't",
    "haven't": "hasn't",
    "go": "goes",
    "were": "was",
}
_FIRST_PERSON = re.compile(
    rf"\b(?P<contracted>I['’](?:m|ve|ll|d))\b|\b(?P<subject>I)\b(?P<adverbs>(?: (?:{'|'.join(sorted(_ADVERB))}))* "
    rf")(?P<verb>[a-z]+(?:['’]t)?)\b|\b(?P<mine>[Mm]y)\b|\b(?P<self>[Mm]yself)\b|\b(?P<me>me)\b|\b(?P<alone>I)\b"
)
_SUBJECT_BEFORE = re.compile(r"\bI\b")
_FIRST_PERSON_CHINESE = re.compile("我(?!们|国|家)|(?<!自)本人")


def third_person(said: str, speaker: str) -> str:
    """The text with the speaker's name in place of "I", "my" and 我, and the verbs in the third person."""

    def named(match: re.Match[str]) -> str:
        contracted = match["contracted"]
        if contracted:
            return speaker + {"m": " is", "ve": " has", "ll": " will", "d": " would"}[contracted[2:]]
        if match["subject"]:
            return f"{speaker}{match['adverbs']}{_verb_in_third_person(match['verb'])}"
        if match["mine"]:
            # After the name, "their" reads better and is as clear.
            return (
                "their"
                if speaker in said[: match.start()] or _SUBJECT_BEFORE.search(said, 0, match.start())
                else f"{speaker}'s"
            )
        return "themself" if match["self"] else speaker

    if not said.isascii() or "我" in said:
        said = _FIRST_PERSON_CHINESE.sub(speaker, said)
    return _FIRST_PERSON.sub(named, said)


def _verb_in_third_person(verb: str) -> str:
    if verb in _PRESENT:
        return _PRESENT[verb]
    if verb in _PAST or verb in _UNCHANGED or verb.endswith(("ed", "n't", "n’t")):
        return verb
    if verb.endswith(("s", "sh", "ch", "x", "z")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


# --- dates -------------------------------------------------------------------------------------------------

# The first day of a range is not separated from the last: "Monday to Thursday".
_RANGE_CONTINUES = re.compile(
    r"\s?(?:[到至、~～–-](?=[周星礼上下\d一二三四五六七八九十])|(?:to|until|and) (?=\w+day\b))"
)
_HOUR = "|".join(word for word, hour in NUMBER_WORDS.items() if hour <= 12)
# A time of day stays with its day, and so does a possessive ending.
_TIME_AFTER = re.compile(
    r"['’]s\b| (?:morning|afternoon|evening|night)\b|"
    r" (?:at )?(?:noon|midnight|half past \w+|quarter (?:past|to) \w+)\b|"
    rf" at (?:\d{{1,2}}(?::\d\d)?(?: ?[ap]m)?|{_HOUR})\b(?![\d.:]\d)"
    rf"| ?{CHINESE_TIME_OF_DAY}(?:{HOUR_CHINESE})?|{HOUR_CHINESE}",
    re.IGNORECASE,
)


# A day that recurs every year, or a day of birth.
_EVERY_YEAR = re.compile(
    r"\b(?:birthday|anniversary)\b(?! (?:party|dinner|lunch|trip|present|gift|cake|do|drinks?)\b)"
    r"|\b(?:I was|we were|(?:mother|father|mum|mom|mam|dad|parents?|grand(?:mother|father|ma|pa|ad|mum)|wife|husband|"
    r"partner|boss|girlfriend|boyfriend|aunt|uncle|friend|colleague)(?:['’]s| was| were)) born\b"
    r"|(?:生日|周年)(?!会|聚|派对|宴|礼|蛋糕|旅)"
    r"|(?:^|[，。；])我是?在?(?:[0-9一二三四五六七八九十月日号年 ]{2,12}(?:出生|生的)|生于)"
    r"|(?:妈妈?|爸爸?|母亲|父亲|爷爷|奶奶|外公|外婆|姥姥|姥爷|老婆|老公|"
    r"妻子|丈夫|老板|朋友|同事)是?[^，。；]{0,12}(?:出生|生于|生的)",
    re.IGNORECASE,
)


def with_dates(said: str, at: datetime) -> str:
    """The text with the days in brackets after each date without a year: "last Friday [2026-02-27]".

    `at` is the time of the statement. Vague dates ("a few days ago"), recurring ones ("on Fridays", a birthday) and
    the births of adults get no days, because their year is unknown.
    """
    marks: list[tuple[int, str]] = []
    every_year = _EVERY_YEAR.search(said) is not None
    for mention in date_mentions(said, at):
        if mention.span is not None and mention.span.exact and not mention.complete:
            if every_year and not mention.span.has_year:
                continue
            end = mention.end
            while (time := _TIME_AFTER.match(said, end)) is not None:
                end = time.end()
            if not _RANGE_CONTINUES.match(said, end):
                marks.append((end, written_span(mention.span)))
    for end, days in sorted(marks, reverse=True):
        said = f"{said[:end]} [{days}]{said[end:]}"
    return said


def written_span(span: Span) -> str:
    """A span as a day ("2026-03-09"), a month, a quarter or a year if it is one, else as its first and last day."""
    first, last = span.first, span.last
    if first == last:
        return str(first)
    if first.day == 1 and last.day == monthrange(last.year, last.month)[1]:  # whole months
        months = 12 * (last.year - first.year) + last.month - first.month + 1
        if months == 1:
            return f"{first:%Y-%m}"
        if months == 12 and first.month == 1:
            return f"{first:%Y}"
        if months == 3 and first.month % 3 == 1:
            return f"{first:%Y}-Q{first.month // 3 + 1}"
        return f"{first:%Y-%m} to {last:%Y-%m}"
    return f"{first} to {last}"
