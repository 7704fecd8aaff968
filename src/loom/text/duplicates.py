"""Details that tell two similar texts apart: numbers, dates, names, identifiers and negations, English and Chinese.

"rack 12" is never a duplicate of "rack 13", nor 启用 of 不启用. `protected` extracts these details, `may_merge`
compares them, and `normal_form` recognises exact duplicates. Similarity is measured elsewhere. If in doubt, two texts
count as different: a duplicate that is shown twice costs a line, but a memory that is merged into another one is
lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from loom.text.date_phrases import CHINESE_DAYS, CHINESE_YEARS, MONTHS, NEAR_DAYS, SEASONS, WEEKDAY_NAMES, WEEKDAYS
from loom.text.entities import COMPOUND_SURNAMES, NO_NAMES, PLACES, SURNAMES, TITLES
from loom.text.numerals import CHINESE_NUMERALS, NUMBER_WORDS, ORDINAL_WORDS, chinese_digits, scale_of
from loom.text.scripts import HAN, is_han
from loom.text.words import Known, half_width, word_set

__all__ = ["Protected", "may_merge", "normal_form", "normal_forms", "protected"]


@dataclass(frozen=True, slots=True)
class Protected:
    """The details of a text that must be equal in a duplicate, each kind in the order of the text.

    The order matters: "Ana pays Ben" is not "Ben pays Ana". Numbers include their unit (`5gb`), dates are
    `year-month-day` with gaps (`-12-` is any December), times `15:00`, weekdays `w1` to `w7`. A negation is
    identified by the words on both sides of it. Names are in lower case. `words` are all words, for names that the
    other text writes in lower case; `unspaced` are the runs of Chinese characters, for the same purpose.
    """

    numbers: tuple[str, ...]
    dates: tuple[str, ...]
    identifiers: tuple[str, ...]
    negations: tuple[str, ...]
    names: tuple[str, ...]
    words: tuple[str, ...]
    unspaced: str

    @property
    def key(self) -> tuple[tuple[str, ...], ...]:
        """The details that must be equal, names excepted."""
        return (self.numbers, self.dates, self.identifiers, self.negations)


def may_merge(a: str | Protected, b: str | Protected) -> bool:
    """Whether all protected details of two texts are equal. Similarity is not considered.

    Symmetric, but not transitive: a capitalised word matches the same word in lower case. Pass a `Protected` if a
    text is compared more than once; extracting it takes most of the time.
    """
    one = protected(a) if isinstance(a, str) else a
    other = protected(b) if isinstance(b, str) else b
    return one.key == other.key and (one.names == other.names or _same_names(one, other))


_MOST_NAMES = 256


def _same_names(one: Protected, other: Protected) -> bool:
    """Whether each text contains the names of the other in the same order, capitalised or not."""
    names = {*one.names, *other.names}
    if len(names) > _MOST_NAMES:  # each name is searched for in both texts
        return False
    for text in (one, other):
        words = set(text.words)
        if any(name not in words and name not in text.unspaced for name in names):
            return False
    spaced = [[word for word in text.words if word in names] for text in (one, other)]
    unspaced = [sorted((text.unspaced.find(name), name) for name in names) for text in (one, other)]
    in_order = [[name for place, name in found if place >= 0] for found in unspaced]
    return spaced[0] == spaced[1] and in_order[0] == in_order[1]


def normal_form(text: str) -> str:
    """Return the text without differences of width, case, spacing, and punctuation at the ends.

    Simplified and traditional characters remain different, and so does punctuation inside. Two texts with the same
    normal form are exact duplicates unless case matters in them, which `may_merge` checks.
    """
    small = _folded(_folded(text).casefold())  # a lower-case letter may have a simpler form of its own
    return " ".join(small.split()).strip(_PUNCTUATION)


def normal_forms(texts: Iterable[str]) -> list[str]:
    return [normal_form(text) for text in texts]


_PUNCTUATION = " .,;:!?'\"`()[]{}<>~…·—–-*_。、《》〈〉「」『』【】〔〕“”‘’"


def protected(text: str) -> Protected:
    """Extract the details that must be equal in a duplicate. Linear in the length of the text."""
    folded = _folded(text)
    if not folded.isascii():
        folded = _CHINESE_NUMBER.sub(_digits, folded)  # 十二月 and 12月 read the same
    return _Reading(folded).result()


# --- folding -------------------------------------------------------------------------------------------------


def _folded(text: str) -> str:
    return text if text.isascii() else half_width(text)


# --- Chinese numerals ----------------------------------------------------------------------------------------

_NUMERAL = CHINESE_NUMERALS + "兩萬億"
# Counters and date words. A single numeral is a number only before one of these: 一直 and 统一 contain none.
_MEASURES = "个個月日号號年天周点點次台条條张張位名人块塊元分秒小岁歲楼层層期版章节節页頁行列只本件份套种種倍米斤公"
_CHINESE_NUMBER = re.compile(
    rf"百分之(?P<percent>[{_NUMERAL}]{{1,24}}+|[0-9.]++)"
    rf"|(?<![0-9])(?<![0-9],)(?P<scaled>[0-9]++(?:,[0-9]++)*+(?:\.[0-9]++)?+)[ ]?(?P<myriad>[百千]?[万亿萬億])"
    rf"|(?:(?<=第)|(?<=周)|(?<=星期)|(?<=礼拜)|(?<=禮拜))(?P<placed>[{_NUMERAL}]{{1,24}}+)"
    rf"|(?P<long>[{_NUMERAL}]{{2,24}}+(?![{_NUMERAL}])|[壹贰叁肆伍陆柒捌玖拾佰仟萬万亿億零貳參陸]{{2,24}}+)"
    rf"|(?P<single>[二三四五六七八九十两兩]|一(?=[月日号號年天周点點次楼层層期章节節页頁行列]))(?=[{_MEASURES}])"
)
# Frequent words that consist of numerals: very, by all means, in case, wholeheartedly.
_NO_NUMBERS = frozenset(("千万", "万一", "万千", "一一", "千百", "万万"))


def _digits(match: re.Match[str]) -> str:
    found = match.lastgroup
    if match["percent"]:
        number = match["percent"]
        return (number if number[0].isdigit() and number.isascii() else chinese_digits(number)) + "%"
    if found == "myriad":
        return _scaled(match["scaled"], scale_of(match["myriad"]))
    numeral = match.group()
    return numeral if numeral in _NO_NUMBERS else chinese_digits(numeral)


def _scaled(number: str, factor: int) -> str:
    """Multiply a decimal by a power of ten exactly: `1.5` and 10,000 give `15000`."""
    whole, _, fraction = number.replace(",", "").partition(".")
    places = len(str(factor)) - 1
    shifted = whole + fraction[:places].ljust(places, "0")
    rest = fraction[places:].rstrip("0")
    return (shifted.lstrip("0") or "0") + (f".{rest}" if rest else "")


# --- the words that carry meaning of their own ---------------------------------------------------------------

_NEGATIONS = word_set("""
not no never none nobody nothing nowhere neither nor without cannot hardly scarcely dont doesnt didnt isnt arent
wasnt werent hasnt havent hadnt wont wouldnt cant couldnt shouldnt mustnt
""")
# One word of each pair of opposites. If only one of two texts contains it, they say the opposite of each other.
_OPPOSITES = word_set("""
disable disabled disables disabling off false closed closes close fail failed fails failing failure unsuccessful
deny denied denies forbid forbids forbidden prohibited refuse refused refuses reject rejected rejects stop stopped
stops hate hates dislike dislikes unable impossible invalid incorrect wrong missing absent lack lacks lacking
unsafe insecure inactive unavailable offline disconnected unsupported unknown unlike unless except excluding
exclude excluded decrease decreased decreases less fewer least minimum min below down before removed remove removes
deleted delete deprecated optional sync synchronous private avoid avoids avoided worse worst slower smaller lower
cheaper earlier sell sold left lost allergic
""")
_WEEKDAYS = {name: f"w{number + 1}" for name, number in WEEKDAYS.items()} | {
    f"{name}s": f"w{number}" for number, name in enumerate(WEEKDAY_NAMES, 1)
}
# Abbreviations that are also words are dates only if capitalised; so are May and March without other evidence.
_ONLY_CAPITALISED = frozenset(("mon", "sat", "sun", "wed", "fri", "mar", "jan", "dec", "sep", "may", "march"))
_BEFORE_A_MONTH = word_set("in since until till by of last next this every early late mid from before after to")
# "Fall" is a verb more often than a season.
_MOMENTS = (NEAR_DAYS.keys() | SEASONS.keys()) - {"fall"} | word_set("""
morning mornings noon afternoon evening evenings midnight weekend weekends weekday weekdays next last previous daily
weekly monthly yearly annually hourly
""")
# "One" is left out ("this one", "no one"). Compared with another number, its absence already is a difference.
_NUMBER_WORDS = {
    **{word: value for word, value in NUMBER_WORDS.items() if word != "one"},
    **ORDINAL_WORDS,
    "zero": 0,
    "twice": 2,
    "dozen": 12,
}
_NUMBER_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
# The unit as it is stored, then its other names.
_UNIT_LIST = """
ms millisecond milliseconds 毫秒; s sec secs second seconds 秒 秒钟; min mins minute minutes 分钟;
h hr hrs hour hours 小时 个小时; d day days 天; wk week weeks 周 个星期; mo month months 个月; yr yrs year years 年;
kb kib 千字节; mb mib; gb gib; tb tib; byte bytes 字节; kg kilo kilos kilogram kilograms 公斤 千克;
g gram grams 克; km kilometer kilometers kilometre kilometres 公里 千米; m meter meters metre metres 米;
cm 厘米; mm 毫米; mile miles 英里; % percent pct; $ dollar dollars usd 美元 美金;
¥ yuan rmb cny 元 块 块钱 人民币; € euro euros eur 欧元; £ pound pounds gbp 英镑; ° degrees degree 度;
tok token tokens; hz; khz; mhz; ghz; px pixel pixels; lb lbs; l liter liters litre litres 升; ml 毫升; am; pm;
kbps; mbps; gbps; qps; rps; fps
"""
_UNITS = {alias: entry.split()[0] for entry in _UNIT_LIST.split(";") for alias in entry.split()}
# Words that are capitalised at the beginning of a sentence or label. Any other capitalised word may be a name.
_COMMON = word_set("""
a about above according across actually add added adding additionally after again all allow allows almost also
although always am among an and another any anyone anything api app application apply approach are around as ask
asked assume at auth avoid back backup backups based basic be because been before begin being below best better
between big both bring browser budget bug bugs build builds built but by cache caches caching call called calls can
caution change changed changes check checks choose chose client code come coming command company completed config
configuration configure connect context continue could create created current currently customer customers data
database date deadline decided decision default delete deploy deployed deployment deployments deploys design
details dev developer developers did do document documentation does doing done due during each early edit either
else email enable enabled ensure error errors even event events every everyone everything example expected explain
fact facts feature features file files find finally find fix fixed following follow food for found from full
function general get give given go goal going good got had half has have having he help her here hers hi his hello
how however i idea if import important in include including info input install installed instead into is issue it
item items its job jobs just keep key keys know language large last later latency learned let like likes limit list
local location log logging login logs long look made main maintain make makes making many maybe me means meeting
meetings memory message messages method might mode model more most move moved much must my name need needs new next
nice nightly note notes notice now number of often ok okay old on once one only open option or order other our out
output over package parse password people per perhaps person place plan planned plans please point policy prefer
preference preferences preferred prefers problem process production project provide public put query question
queries queue quick rather read reading ready really reason recently record refactor reference release released
releases remember reminder replace report request requests require required requires requirement response result
results return returns review right root rule rules run running runs said same save saved say says schedule search
see send sent server service services session set setting settings setup several she should show shows similar
simple simply since single small so software solution some someone something sometimes soon start started starts
state status step still storage store stored stores such suggest summary support supports sure switch switched
system table take task tasks team teams tell test tested testing tests than thank thanks that the their them then
there therefore these they thing things think this those though through time times tip to today todo together token
tokens too tool tools total traffic tried true try turn two type typically under understand unit until up update
updated updates upgrade use used user users uses using usually value values version very via view want wants
warning was we web website well went were what when where whether which while who whole whose why will with work
worked working works would write writes writing written yes yet you your yours
""")
_FUNCTION_WORDS = word_set("""
a an the this that these those there here is are was were be been being am do does did have has had having can
could would should will shall might must may and or but if so than then of at by for with to from in on i it its we
us our you your he him his she her they them their any at all very really just also
""")

# --- English tokens ------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """The kind of a token, as one of the letters below, and its normalised value."""

    code: str
    value: str = ""


# w word, f function word, n name, c capitalised common word, ! negation, o opposite, # number, d date, m month,
# i identifier, x number word, s scale of a number
_WORD_CODES = (
    dict.fromkeys(_OPPOSITES, "o")
    | dict.fromkeys(_NUMBER_WORDS, "x")
    | dict.fromkeys(_NUMBER_SCALES, "s")
    | dict.fromkeys(_MOMENTS, "d")
)
_PLAIN_NUMBER = re.compile(r"-?[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]++)*+")
_NUMBER = re.compile(r"([$€£¥]?)(-?[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]++)?+)([A-Za-z%°µ]{0,4})")
_ORDINAL = re.compile("([0-9]++)(?:st|nd|rd|th)")
_VERSION = re.compile(r"[vV]([0-9]++(?:\.[0-9]++)*+)")
_ISO_DATE = re.compile(r"([0-9]{4})[-/.]([0-9]{1,2})(?:[-/.]([0-9]{1,2}))?(?:T([0-9:.]+)Z?)?")
_CLOCK = re.compile("([0-9]{1,2}):([0-9]{2})(?::[0-9]{2})?([ap]m)?|([0-9]{1,2})([ap]m)", re.IGNORECASE)
_PLAIN_WORD = re.compile(r"[^\W\d_]++(?:[-'][^\W\d_]++)*+")


def _kind(token: str) -> _Kind:
    if _PLAIN_WORD.fullmatch(token):
        return _word_kind(token)
    lower = token.casefold()
    if clock := _CLOCK.fullmatch(token):
        hour, minute = clock[1] or clock[4], clock[2] or "00"
        return _Kind("d", _clock(hour, minute, (clock[3] or clock[5] or "").casefold()))
    if date := _ISO_DATE.fullmatch(token):
        year, month, day, rest = date[1], int(date[2]), date[3], date[4]
        if 1 <= month <= 12 and (day is None or 1 <= int(day) <= 31) and (day or "-" in token):
            return _Kind("d", f"{year}-{month}-{int(day) if day else ''}{'T' + rest if rest else ''}")
    if match := _ORDINAL.fullmatch(lower) or _VERSION.fullmatch(token):
        return _Kind("#", match[1])
    if match := _NUMBER.fullmatch(token):
        number, sign, suffix = match[2].replace(",", ""), match[1], match[3]
        if suffix in ("k", "K", "M"):
            number, suffix = _scaled(number, 1000 if suffix != "M" else 10**6), ""
        unit = _UNITS.get(sign or suffix.casefold(), "" if not suffix else None)
        if unit is not None:
            return _Kind("#", number + unit)
    if _PLAIN_NUMBER.fullmatch(token):
        return _Kind("#", token.replace(",", ""))
    # Case matters in paths, dotted names and constants, and not in product names.
    return _Kind("i", token if re.search(r"[_/\\]|[^\W\d]\.[^\W\d]", token) else lower)


_KINDS = Known(_kind)


def _word_kind(token: str) -> _Kind:
    lower = token.casefold()
    if lower.endswith("'s"):
        token, lower = token[:-2], lower[:-2]
    plain = lower.replace("'", "")
    if plain in _NEGATIONS or lower.endswith("n't"):
        return _Kind("!", lower)
    capital = token[0].isupper()
    if lower in MONTHS and (capital or lower not in _ONLY_CAPITALISED):
        return _Kind("m", lower)
    if lower in _WEEKDAYS and (capital or lower not in _ONLY_CAPITALISED):
        return _Kind("d", _WEEKDAYS[lower])
    if lower in _WORD_CODES:
        return _Kind(_WORD_CODES[lower], lower)
    if all(part in _NUMBER_WORDS for part in lower.split("-")):
        return _Kind("x", lower)
    if len(token) > 1 and not token.islower() and not token.istitle():
        # US, IT, PostgreSQL: capitals inside a word are intended.
        return _Kind("n", lower)
    if lower in _FUNCTION_WORDS:
        return _Kind("f", lower)
    if capital:
        return _Kind("c" if lower in _COMMON or len(token) == 1 else "n", lower)
    return _Kind("w", lower)


def _clock(hour: str, minute: str, half: str) -> str:
    value = int(hour)
    if half == "pm" and value < 12:
        value += 12
    elif half == "am" and value == 12:
        value = 0
    return f"{value}:{minute}"


# --- Chinese words -------------------------------------------------------------------------------------------

_CHINESE_MOMENT_LIST = """
上周 下周 本周 这周 上个月 下个月 上月 下月 本月 上次 下次 上个星期 下个星期 上星期 下星期 上午 下午 早上 晚上 凌晨
中午 傍晚 周末 每天 每周 每月 每年 春天 夏天 秋天 冬天
"""
_CHINESE_MOMENTS = " ".join((*CHINESE_DAYS, *CHINESE_YEARS, _CHINESE_MOMENT_LIST))
# These contain a character of negation but do not negate: 不过, 非常, 特别. A question (是不是) denies nothing.
_NO_NEGATION = """
不过 不仅 不但 不管 不论 无论 不断 不久 不得不 不好意思 不客气 对不起 没关系 无线 无锡 未来 非常 非洲 除非 莫非
别人 别的 别名 别墅 特别 区别 类别 级别 分别 识别 个别 告别 性别 差别 判别 鉴别 是不是 有没有 能不能 会不会 要不要
可不可以 好不好 无人机
"""
_CHINESE_NEGATIONS = "没有 不 没 未 无 非 别 勿 莫 沒有 沒 無"
_CHINESE_OPPOSITES = """
禁用 停用 关闭 關閉 失败 失敗 禁止 拒绝 拒絕 停止 讨厌 討厭 错误 錯誤 缺少 缺乏 取消 删除 刪除 移除 下降 减少 減少
降低 离线 除了 之前 以前 低于 少于 小于 至少 最少 最低 最小 反对 反對 避免 过敏 過敏 卖 賣
"""
_BEFORE_A_NAME = "和与跟同由给让叫请找问是对向被把替为及的了说在姓事系知诉友师理、"
_AFTER_A_NAME = """
是 的 在 说 和 与 跟 有 没 不 去 来 到 把 被 让 给 对 向 要 会 能 想 喜欢 喜歡 住 做 从 也 都 就 已 将 负责 負責 管
提 写 改 建议 觉得 认为 希望 正 刚 曾 决定 同意 拒绝 批准 买 用 使用 选 推荐 计划 打算 告诉 问 答 今 明 昨 周 每 之
讨厌 养 叫 毕业 出生 来自 加入 离开 担任 修 发 完成 参加 需要 上 下 搬 开 吃 喝 爱 带 见 当 换 找 请 处理 部署 测试
"""


def _any_of(words: str) -> str:
    """Return a pattern for one of the words, longest first. A set of first letters rejects most places quickly."""
    longest_first = sorted(words.split(), key=len, reverse=True)
    return f"(?=[{''.join({word[0]: '' for word in longest_first})}])(?:{'|'.join(longest_first)})"


_SURNAME = f"(?:{_any_of(COMPOUND_SURNAMES)}|[{SURNAMES}])"
_MAYBE_SURNAME = f"(?=[{SURNAMES}{''.join(name[0] for name in COMPOUND_SURNAMES.split())}])"
_HAN_UNITS = "|".join(sorted((unit for unit in _UNITS if not unit.isascii()), key=len, reverse=True))
_HALVES = {
    "上午": "am",
    "早上": "am",
    "凌晨": "am",
    "下午": "pm",
    "晚上": "pm",
    "傍晚": "pm",
    "中午": "",
    "今晚": "pm",
}
_LETTER = rf"[^\W{HAN}]"
_LATIN = (
    r"(?:--?(?=[A-Za-z0-9])|[~.]{0,2}[/\\](?=\w)|[@#$€£¥](?=[A-Za-z0-9]))?+{letter}++"
    r"(?:(?:://|::|[.\-/@'\\?&=%#~+]|(?<=[0-9])[:,](?=[0-9])){letter}++)*+(?:\+\+|\#|%|°)?+"
)
_CHINESE = (
    rf"(?P<year>[0-9]{{4}})年(?:(?P<ymonth>[0-9]{{1,2}})月(?:(?P<yday>[0-9]{{1,2}})[日号號])?)?"
    rf"|(?P<month>[0-9]{{1,2}})月(?:(?P<day>[0-9]{{1,2}})[日号號])?"
    rf"|(?P<alone>[0-9]{{1,2}})[日号號]"
    rf"|(?:周|星期|礼拜|禮拜|週)(?P<weekday>[1-7日天])"
    rf"|(?P<half>{_any_of(' '.join(_HALVES))})?(?P<hour>[0-9]{{1,2}})"
    rf"(?:[点點](?:(?P<minute>[0-9]{{1,2}})分?|(?P<thirty>半))?|:(?P<clock>[0-9]{{2}})(?![0-9:]))"
    rf"|(?P<amount>[0-9][0-9,]*+(?:\.[0-9]++)?+)[ ]?(?P<unit>{_HAN_UNITS})"
    rf"|(?P<moment>{_any_of(_CHINESE_MOMENTS)})"
    rf"|(?P<place>{_any_of(PLACES)})"
    rf"|{_any_of(_NO_NEGATION)}"
    rf"|(?P<negation>{_any_of(_CHINESE_NEGATIONS)})"
    rf"|(?P<opposite>{_any_of(_CHINESE_OPPOSITES)})"
    rf"|(?P<person>[小老阿][{SURNAMES}](?![{HAN}])|[小老阿][{SURNAMES}](?={_any_of(_AFTER_A_NAME)})"
    rf"|{_MAYBE_SURNAME}(?!{_any_of(NO_NAMES)})(?:{_SURNAME}(?:{_any_of(TITLES)})"
    rf"|(?:(?<![{HAN}])|(?<=[{_BEFORE_A_NAME}])){_SURNAME}"
    rf"[{HAN}]{{1,2}}?(?=[^{HAN}]|$|{_any_of(_AFTER_A_NAME)})))"
)
_END = r"(?P<end>[.!?。;\n:`\"“”]++)"
_ASCII_TOKEN = re.compile(f"{_LATIN.replace('{letter}', '[A-Za-z0-9_]')}|{_END}")
_HAN_RUN = re.compile(f"[{HAN}]++")
_HAN_TAIL = re.compile(f"[{HAN}]{{1,2}}$")
_HAN_HEAD = re.compile(f"[{HAN}]{{1,2}}")


@cache
def _any_token() -> re.Pattern[str]:
    """Return the pattern of a token for texts beyond ASCII. Compiled at first use, which takes 17 ms."""
    return re.compile(f"{_CHINESE}|{_LATIN.replace('{letter}', _LETTER)}|{_END}")


# --- reading -------------------------------------------------------------------------------------------------

# The number of letters that identify a word beside a negation: "does not like" and "did not liked" deny the same.
_STEM_CHARS = 5
_LARGEST_SPOKEN = 10**15
# The number of tokens beside a negation that are searched for a content word.
_REACH = 8


class _Reading:
    """One pass over a text, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ascii = text.isascii()
        self.numbers: list[str] = []
        self.dates: list[str] = []
        self.identifiers: list[str] = []
        self.negations: list[str] = []
        self.names: list[str] = []
        self.words: list[str] = []
        self.tokens = [*self._tokens()]
        self._into = {"n": self.names, "d": self.dates, "i": self.identifiers, "^": self.negations}

    def result(self) -> Protected:
        place = 0
        while place < len(self.tokens):
            place = self._take(place)
        return Protected(
            tuple(self.numbers),
            tuple(self.dates),
            tuple(self.identifiers),
            tuple(self.negations),
            tuple(self.names),
            tuple(self.words),
            "" if self.ascii else " ".join(_HAN_RUN.findall(self.text)),
        )

    def _tokens(self) -> Iterator[_Kind]:
        if self.ascii:
            for match in _ASCII_TOKEN.finditer(self.text):
                yield _Kind(".", match.group()) if match.lastgroup else _KINDS[match.group()]
            return
        for match in _any_token().finditer(self.text):
            if match.lastgroup is None:
                if not is_han(match.group()):  # a word that contains a character of negation but does not negate
                    yield _KINDS[match.group()]
            elif match.lastgroup == "end":
                yield _Kind(".", match.group())
            else:
                yield self._chinese(match)

    def _chinese(self, match: re.Match[str]) -> _Kind:
        found = match.lastgroup
        if found in ("negation", "opposite"):
            before = _HAN_TAIL.search(self.text[max(0, match.start() - 2) : match.start()])
            after = _HAN_HEAD.match(self.text, match.end()) if found == "negation" else None
            said = after.group() if after else match.group() if found == "opposite" else ""
            return _Kind("^", f"{before.group() if before else ''}!{said}")
        if found in ("place", "person"):
            return _Kind("n", match.group())
        if found == "moment":
            return _Kind("d", match.group())
        if found == "weekday":
            return _Kind("d", f"w{'7' if match['weekday'] in '日天' else match['weekday']}")
        if found == "unit":
            return _Kind("#", match["amount"].replace(",", "") + _UNITS[match["unit"]])
        if match["hour"]:
            minute = match["clock"] or ("30" if match["thirty"] else (match["minute"] or "0").zfill(2))
            return _Kind("d", _clock(match["hour"], minute, _HALVES.get(match["half"] or "", "")))
        if match["year"] and not match["ymonth"]:
            return _Kind("#", match["year"])  # like "in 2024"
        month, day = match["ymonth"] or match["month"], match["yday"] or match["day"] or match["alone"]
        return _Kind("d", f"{match['year'] or ''}-{int(month) if month else ''}-{int(day) if day else ''}")

    def _take(self, place: int) -> int:
        """Read the token at this place; return the place of the next one."""
        code, value = self.tokens[place]
        if code in "wfcn":
            self.words.append(value)
        if code in self._into:
            self._into[code].append(value)
        elif code == "#":
            return self._number(place, value)
        elif code == "x" or code == "s":
            return self._number_words(place)
        elif code == "m":
            return self._month(place, value)
        elif code == "!":
            self.negations.append(f"{self._content(place, -1)}!{self._content(place, 1)}")
        elif code == "o":
            self.negations.append(f"{self._content(place, -1)}!{value[:4]}")
            self.words.append(value)
        return place + 1

    def _content(self, place: int, step: int) -> str:
        """Return the first letters of the nearest content word before or after a negation."""
        end = min(max(place + step * _REACH, -1), len(self.tokens))
        for code, value in (self.tokens[near] for near in range(place + step, end, step)):
            if code == ".":
                break
            if code not in "f!^":
                return value[:_STEM_CHARS]
        return ""

    def _at(self, place: int) -> _Kind:
        return self.tokens[place] if place < len(self.tokens) else _Kind(".")

    def _number(self, place: int, number: str) -> int:
        code, word = self._at(place + 1)
        bare = number.isascii() and number.replace(".", "", 1).isdigit()
        if code == "s" and bare:
            number = _scaled(number, _NUMBER_SCALES[word])
            place += 1
            code, word = self._at(place + 1)
        day = bare and len(number) <= 2 and number.isdigit() and 1 <= int(number) <= 31
        if code == "m" and day:
            return self._month(place + 1, word, int(number))
        if code == "f" and word == "of" and self._at(place + 2).code == "m" and day:
            return self._month(place + 2, self._at(place + 2).value, int(number))
        unit = _UNITS.get(word) if bare and code in "wncx" else None
        if unit in ("am", "pm"):
            self.dates.append(_clock(number, "00", unit) if day else number + unit)
            return place + 2
        self.numbers.append(number + (unit or ""))
        return place + (2 if unit else 1)

    def _number_words(self, place: int) -> int:
        """Read number words: `two hundred and fifty` is 250, `two three` are two numbers."""
        total = current = 0
        started = False
        while True:
            code, word = self._at(place)
            if code == "s" and total + current < _LARGEST_SPOKEN:
                current = max(1, current) * _NUMBER_SCALES[word]
                if _NUMBER_SCALES[word] >= 1000:
                    total, current = total + current, 0
            elif code == "x":
                value = sum(_NUMBER_WORDS[part] for part in word.split("-"))
                if started and (current % 10 or (current % 100 and value >= 10)):
                    break
                current += value
            elif not (
                started and code == "f" and word == "and" and self._at(place + 1).code == "x" and current >= 100
            ):
                break
            started = True
            place += 1
        unit = _UNITS.get(self._at(place).value) if self._at(place).code in "wncx" else None
        self.numbers.append(f"{total + current}{unit or ''}")
        return place + (1 if unit else 0)

    def _month(self, place: int, name: str, day: int | None = None) -> int:
        """Read a month with the day and the year around it. May and March alone are read as words."""
        following = place + 1
        if self._at(following) == _Kind(".", ".") and len(name) <= 4 and self._at(following + 1).code == "#":
            following += 1  # Mar. 5
        code, value = self._at(following)
        numeric = code == "#" and value.isascii() and value.isdigit()
        before = self.tokens[place - 1].value if place else ""
        if name in ("may", "march") and day is None and not numeric and before.casefold() not in _BEFORE_A_MONTH:
            self.words.append(name)
            return place + 1
        if day is None and numeric and len(value) <= 2 and 1 <= int(value) <= 31:
            day = int(value)
            following += 1
            code, value = self._at(following)
            numeric = code == "#" and value.isascii() and value.isdigit()
        elif not numeric:
            following = place + 1
        year = ""
        if numeric and len(value) == 4 and value[0] in "12":
            year = value
            following += 1
        elif following > place + 1 and day is None:
            following = place + 1
        self.dates.append(f"{year}-{MONTHS[name]}-{day or ''}")
        return following
