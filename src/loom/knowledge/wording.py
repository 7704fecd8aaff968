"""How a fact is worded: without its opening and closing words, in the third person, with its dates written out.

Pure functions from a statement to the words of a fact, in English and Chinese.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

from loom.text.date_phrases import DATE_CHINESE, DATE_ENGLISH
from loom.text.scripts import HAN, is_chinese
from loom.text.specifics import specifics
from loom.text.statement_kinds import without_opening

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
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


END_MARKS: Final = " \t\n。．.!！；;，,～~：:"
"""The punctuation that a fact does not end with."""

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
    """A clause as a summary words it: on one line, without opening and closing words, the speaker named."""
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
    """The decision alone, "use X", without the words that call it one.

    A topic that only the text `before` it names is written into it.
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
    """The reason alone, without the words that call it one."""
    opening = _REASON_OPENING.match(said) or _REASON_LEAD.match(said)
    return said[opening.end() :] if opening is not None and len(said) - opening.end() >= 2 else said


# --- third person ------------------------------------------------------------------------------------------

_PAST = _words(
    "was went got made had did took ran bought paid sold met saw came left gave found wrote told said knew "
    "began broke chose drove ate flew forgot grew kept lost put quit read sent set slept spent spoke stood "
    "taught thought won wore built cut felt held heard hit led let meant fell rose drew lived"
)
_UNCHANGED = _words(
    "will would can could should must may might shall used cannot can't won't couldn't wouldn't shouldn't"
)
_ADVERB = _words(
    "always usually never really also still now just only mostly normally generally often sometimes recently "
    "finally currently already personally actually definitely absolutely both even much then simply typically"
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
            ending = contracted[2:]
            return speaker + {"m": " is", "ve": " has", "ll": " will", "d": " would"}[ending]
        if match["subject"]:
            return f"{speaker}{match['adverbs']}{_verb_in_third_person(match['verb'])}"
        if match["mine"]:
            # Once the name is there, "their" reads better and is as clear.
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

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER_WORDS = {"a": 1, "an": 1, **{word: number for number, word in enumerate(_COUNTS, 1)}}
_HAN_DIGITS = {"一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_PAST_TENSE = re.compile(
    # "is repeated" and "will be moved" are no past.
    r"\b(?:was|were|did|had|got|went|met|bought|paid|left|(?<!\bis )(?<!\bare )(?<!\bbe )\w+ed)\b|了|过",
    re.IGNORECASE,
)


_SPAN_GOES_ON = re.compile(
    r"\s?(?:[到至、~～–-](?=[周星礼上下\d一二三四五六七八九十])|(?:to|until|and) (?=\w+day\b))"
)


_WEEKDAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_COUNTED = re.compile(
    rf"\b(?:first|second|third|fourth|last|other) {_WEEKDAY} (?:of|in)\b|\b{_WEEKDAY} week\b"
    "|(?:第[一二三四五]|每|隔|最后一)个?(?:周|星期|礼拜)[一二三四五六日天]",
    re.IGNORECASE,
)
# A bracket does not tear the hour from its day.
_HOUR_AFTER = re.compile(
    r" (?:at )?(?:noon|midnight|half past \w+|quarter (?:past|to) \w+)\b|"
    r" at (?:\d{1,2}(?::\d\d)?(?: ?[ap]m)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
    r"(?![\d.:]\d)"
    r"|[一二两三四五六七八九十\d]{1,3}点(?:半|[一二三四五六七八九十\d]{1,3}分?)?",
    re.IGNORECASE,
)


def with_dates(said: str, at: datetime) -> str:
    """The text with the day, month or year in brackets after each relative or incomplete date in it."""
    day = at.date()
    past = _PAST_TENSE.search(said) is not None
    marks: list[tuple[int, str]] = []
    for pattern, resolve in (*(() if said.isascii() else _CHINESE_DATES), *_ENGLISH_DATES):
        for match in pattern.finditer(said):
            # Which one "the first Saturday of October" is, the day of speaking does not say.
            if not _COUNTED.search(said[max(0, match.start() - 16) : match.end() + 8]):
                hour = _HOUR_AFTER.match(said, match.end())
                marks.append((hour.end() if hour else match.end(), resolve(match.group(), day, past)))
    taken = len(said) + 1
    for end, resolved in sorted(marks, reverse=True):
        # The first day of a span would be torn from the last: "Monday to Thursday".
        if resolved and end < taken and not _SPAN_GOES_ON.match(said, end):
            said = f"{said[:end]} [{resolved}]{said[end:]}"
            taken = end
    return said


def _english_date(phrase: str, day: date, past: bool) -> str:
    words = phrase.lower().replace(",", " ").split()
    if not words or (phrase[:1].isdigit() and "-" in phrase):
        return ""
    if words[0] in ("yesterday", "tomorrow"):
        return str(day + timedelta(days=1 if words[0] == "tomorrow" else -1))
    if any(re.fullmatch(r"(?:19|20)\d\d", word) for word in words):
        return ""
    month = next(
        (
            number
            for number, name in enumerate(_MONTHS, 1)
            for word in words
            if (word[:3] == name and word.isalpha() and len(word) != 4)
            or (word[:3] == name and word.rstrip(".") in ("june", "july", "sept"))
        ),
        0,
    )
    if month:
        digits = next((re.match(r"\d{1,2}", word) for word in words if word[0].isdigit()), None)
        return _nearest(day, month, int(digits.group()) if digits else None, past, words[0])
    weekday = next(
        (number for number, name in enumerate(_DAYS) for word in words if word.startswith(name) and "day" in word),
        None,
    )
    if weekday is not None:
        if words[0] in ("every", "each") or words[-1].endswith("days"):
            return ""
        back = (day.weekday() - weekday) % 7 or 7
        ahead = (weekday - day.weekday()) % 7 or 7
        if words[0] == "last" or (past and words[0] != "next"):
            return str(day - timedelta(days=back))
        # "Next Friday" is the one of the following week.
        if words[0] == "next":
            return str(day + timedelta(days=7 - day.weekday() + weekday))
        return str(day + timedelta(days=ahead))
    if words[0] in ("last", "next"):
        return _neighbour(day, words[1], -1 if words[0] == "last" else 1)
    if len(words) >= 3 and words[-1] in ("ago", "later", "earlier", "now"):
        count = _NUMBER_WORDS.get(words[0]) or (int(words[0]) if words[0].isdigit() else 0)
        return (
            _moved(day, words[1].rstrip("s"), count * (-1 if words[-1] in ("ago", "earlier") else 1))
            if words[-1] != "later"
            else ""
        )
    return ""


_ENGLISH_DATES: Final = ((DATE_ENGLISH, _english_date),)
_HOUR_SUFFIX = re.compile("(?<=.) ?(?:凌晨|清晨|早上|上午|中午|下午|傍晚|晚上|半夜).*$")


def _chinese_date(phrase: str, day: date, past: bool) -> str:
    phrase = _HOUR_SUFFIX.sub("", phrase)
    fixed = {"昨天": -1, "昨晚": -1, "前天": -2, "大前天": -3, "明天": 1, "后天": 2}
    if phrase in fixed:
        return str(day + timedelta(days=fixed[phrase]))
    years = {"去年": -1, "明年": 1, "前年": -2, "后年": 2, "今年": 0}
    months = re.search(r"(\d{1,2}|[一二三四五六七八九十]{1,2}) ?月", phrase)
    if re.search(r"\d{4}", phrase):
        return ""
    if months:
        days = re.search(r"月 ?(\d{1,2}|[一二三四五六七八九十廿]{1,3}) ?[日号]?", phrase)
        month, number = _han_number(months[1]), _han_number(days[1]) if days else None
        if not 1 <= month <= 12:
            return ""
        if phrase[:2] in years:
            return _dated(day.year + years[phrase[:2]], month, number)
        return _nearest(day, month, number, past, "")
    if phrase[:2] in years:
        return str(day.year + years[phrase[:2]])
    alone = re.fullmatch(r"(\d{1,2}) ?[日号]", phrase)
    if alone:
        return _dated(day.year, day.month, int(alone[1]))
    week = re.fullmatch(r"(上|下|这|本)?个?(?:周|星期|礼拜)([一二三四五六日天])", phrase)
    if week:
        weekday = "一二三四五六日".find(week[2].replace("天", "日"))
        shift = {"上": -7, "下": 7}.get(week[1] or "", 0)
        found = day + timedelta(days=weekday - day.weekday() + shift)
        if not week[1]:
            found += timedelta(days=-7 if past and found > day else 7 if not past and found < day else 0)
        return str(found)
    near = re.fullmatch(r"([上下])个?(月|周|星期|礼拜|季度)", phrase)
    if near:
        unit = {"月": "month", "季度": "quarter"}.get(near[2], "week")
        return _neighbour(day, unit, -1 if near[1] == "上" else 1)
    count = re.fullmatch(r"(\d{1,3}|[一二两三四五六七八九十]{1,3}) ?(天|周|个星期|个月|年)以?([前后])", phrase)
    if count:
        unit = {"天": "day", "个月": "month", "年": "year"}.get(count[2], "week")
        return _moved(day, unit, _han_number(count[1]) * (-1 if count[3] == "前" else 1))
    return ""


_CHINESE_DATES: Final = ((DATE_CHINESE, _chinese_date),)


def _han_number(text: str) -> int:
    if text.isdigit():
        return int(text)
    if "十" in text or "廿" in text:
        tens, _, ones = text.replace("廿", "二十").partition("十")
        return _HAN_DIGITS.get(tens, 1) * 10 + _HAN_DIGITS.get(ones, 0)
    return _HAN_DIGITS.get(text, 0)


def _dated(year: int, month: int, day: int | None) -> str:
    try:
        return f"{year}-{month:02d}" if day is None else str(date(year, month, day))
    except ValueError:
        return ""


def _nearest(day: date, month: int, number: int | None, past: bool, word: str) -> str:
    """The month or day that is meant: the last one in the past tense, else the next, the present one included."""
    before = (month, number or 1) <= (day.month, day.day if number else 31)
    same = month == day.month and number is None
    year = day.year
    if (past or word in ("last", "since")) and not before:
        year -= 1
    elif (
        not past
        and word not in ("last", "since")
        and before
        and not same
        and (month, number or 1) != (day.month, day.day)
    ):
        year += 1
    return _dated(year, month, number)


def _neighbour(day: date, unit: str, step: int) -> str:
    if unit == "week":
        monday = day - timedelta(days=day.weekday()) + timedelta(weeks=step)
        return f"{monday} to {monday + timedelta(days=6)}"
    if unit == "month":
        months = day.year * 12 + day.month - 1 + step
        return f"{months // 12}-{months % 12 + 1:02d}"
    if unit == "quarter":
        quarters = day.year * 4 + (day.month - 1) // 3 + step
        return f"{quarters // 4}-Q{quarters % 4 + 1}"
    if unit == "year":
        return str(day.year + step)
    if unit == "night":
        return str(day + timedelta(days=step))
    return ""


def _moved(day: date, unit: str, count: int) -> str:
    if not count or abs(count) > 1000:
        return ""
    if unit in ("day", "week"):
        return str(day + timedelta(days=count * (7 if unit == "week" else 1)))
    return _neighbour(day, unit, count)
