"""Reads the state from a clause: its subject, the relation, and the value.

"The deploy server is heron", "we moved the launch to 11 May" and 主分支改成 main 了 state something; a question, a
supposition, a plan and an event do not. `states` compares them. Pure functions of one clause, in English and Chinese,
linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from loom.knowledge.homes import WORKS_AS, home_in
from loom.text.date_phrases import DATE_CHINESE, DATE_ENGLISH, MONTH_NAMES, WEEKDAY
from loom.text.numerals import CHINESE_NUMERALS, NUMBER_WORDS, ORDINAL_WORDS
from loom.text.scripts import HAN, is_chinese
from loom.text.statement_kinds import without_opening
from loom.text.words import word_set

__all__ = ["CHANGED", "LASTING_SCALES", "Frame", "State", "frame_in", "has_one_value", "state_in"]

CHANGED: Final = "changed"
"""The relation of a clause that gives only the new value of something."""

_LONGEST_CLAUSE: Final = 160
_MOST_WORDS: Final = 8


@dataclass(frozen=True, slots=True)
class State:
    """The state of a subject, as one clause gives it.

    `subject` holds the words that name it; `head` is the main noun ("limit" of "the limit for uploads"). `sort` is
    the sort of the value: "date", "number" (with its `unit`), "status", "name", "kind" ("a nurse"), "manner" (another
    adjective) or "phrase". `groups` are the scales of a status or colour; two values on one scale exclude each other.
    `renewed` is True if the clause itself says that the value is new (now, changed to, 现在, 改成), and `definite` if
    the subject is one known thing ("the server", not "Ana" or "I"). `proper` is True if the value is one proper name
    or identifier (heron-2, PostgreSQL).
    """

    subject: frozenset[str]
    head: str
    relation: str
    value: str
    sort: str
    unit: str = ""
    groups: frozenset[str] = frozenset()
    renewed: bool = False
    definite: bool = True
    proper: bool = False


# Scales: a subject has one value of each scale at a time. A word can be on several scales.
_SCALES: Final = MappingProxyType(
    {
        "available": "up|down|online|offline|available|unavailable|reachable|unreachable|broken|working|running|"
        "stopped|crashed|dead|alive|healthy|unhealthy|degraded|out of order|fixed|"
        "挂|崩|崩溃|坏|好|恢复|恢复正常|正常|异常|可用|不可用|在线|离线|上线|下线|宕机|停机|运行|停止|停用|修好|瘫痪|断|断线",
        "progress": "open|opened|closed|done|finished|complete|completed|incomplete|unfinished|pending|blocked|"
        "unblocked|in progress|in review|under review|in testing|approved|rejected|accepted|merged|cancelled|"
        "canceled|shipped|delivered|ready|not ready|draft|final|started|waiting|paused|resolved|fixed|reopened|"
        "unresolved|submitted|published|released|signed|paid|unpaid|delayed|on hold|on track|late|overdue|"
        "postponed|deployed|expired|valid|invalid|suspended|terminated|frozen|archived|renewed|"
        "打开|关闭|完成|未完成|做完|没做完|写完|写好|办好|进行|进行中|待处理|待审核|待发货|已发货|待付款|已付款|受阻|阻塞|审核|"
        "审核通过|驳回|批准|通过|拒绝|合并|取消|发货|送达|签收|就绪|草稿|定稿|暂停|解决|未解决|提交|发布|付款|延期|搁置|结束|开始|"
        "未开始|搞定|处理|有效|无效|过期|失效|终止|冻结|归档|续费|激活",
        "result": "red|green|yellow|failing|passing|failed|passed|broken|"
        "红|绿|黄|红色|绿色|黄色|失败|成功|通过|没通过",
        "switch": "on|off|enabled|disabled|active|inactive|开|关|打开|关闭|开启|启用|禁用|停用|激活|未激活",
        "place": "free|taken|occupied|full|empty|busy|vacant|reserved|空|满|空着|空闲|占用|有人|没人|忙|预订",
        "door": "open|closed|shut|locked|unlocked|开|关|开着|关着|锁|锁着",
        "reach": "public|private|internal|公开|私有|保密|内部",
        "speed": "fast|slow|faster|slower|快|慢",
        "size": "big|small|large|tiny|大|小",
        "warmth": "hot|cold|warm|cool|热|冷|暖",
        "light": "dark|light|深色|浅色|暗|亮",
        "order": "clean|dirty|干净|脏",
        "colour": "red|green|yellow|blue|black|white|grey|gray|brown|orange|purple|pink|"
        "红色|绿色|黄色|蓝色|黑色|白色|灰色|棕色|橙色|紫色|粉色",
    }
)
LASTING_SCALES: Final = frozenset(("available", "progress", "result", "switch", "place", "door"))
"""The scales of progress: a word on one of them ends a word on another ("active", "has been cancelled")."""

_GROUPS: Final[dict[str, frozenset[str]]] = {}
for _scale, _words in _SCALES.items():
    for _word in _words.split("|"):
        _GROUPS[_word] = _GROUPS.get(_word, frozenset()) | {_scale}


def state_in(clause: str, speaker: str | None = None) -> State | None:
    """The state that a clause gives; None if a later clause could not replace it.

    `speaker` is the person to whom "my" and 我的 refer.
    """
    said = without_opening(" ".join(clause.split())).strip(" .!,;:。！，；：~～")
    if not said or len(said) > _LONGEST_CLAUSE:
        return None
    return next((_chinese if is_chinese(said) else _english)(said, speaker or ""), None)


def _at_home(said: str, speaker: str, chinese: bool, *, renewed: bool) -> State | None:
    """The place where a person lives or works, in any wording."""
    home = home_in(said, chinese)
    if home is None or home.attribute == WORKS_AS or not (chinese or home.value[0].isupper()):
        return None
    if chinese and f"{home.value}的" in said and "我" not in said:
        return None  # 住在三楼的邻居
    who = f"@{speaker}" if not home.who else home.who.lower()
    return State(frozenset((who, home.attribute)), home.attribute, "is", home.value.lower(), "home", renewed=renewed)


# --- English -----------------------------------------------------------------------------------------------

_NEW: Final = re.compile(
    r"\b(?:now|nowadays|these days|currently|at the moment|for now|from (?:today|now)(?: on)?|as of (?:now|today|"
    rf"(?:next |this |last )?\w+)|instead|again|by now|since (?:the|our|last|this|yesterday|{WEEKDAY})\b.*$)(?!\w)",
    re.IGNORECASE,
)
_NEUTRAL: Final = re.compile(
    r"\b(?:still|already|just|finally|always|usually|simply|all|both|only|really|actually)\b", re.IGNORECASE
)
_NO_STATE: Final = re.compile(
    r"\b(?:might|may|could|would|should|can|shall|must|perhaps|maybe|probably|possibly|if|unless|whether|"
    r"plan|plans|hope|hopes|think|thinks|suppose|suggest|consider|let's|let’s|not|never|neither|nor|cannot|none|also|"
    r"too|as well|going to|used to|no longer|except|other than|because|due to|according)\b|n['’]t\b"
)
_NAME: Final = r"(?-i:[A-Z][\w-]*(?: [A-Z][\w-]*)?)"
_WHO: Final = rf"(?P<who>{_NAME}|i|we)"
_SUBJECT: Final = r"(?P<about>[\w'’][\w'’./&#-]*(?: [\w'’./&#-]+){0,9}?)"
_PERSON: Final = (
    r"(?:\w+(?:er|or|ist|ian)|lead|head|chair|contact|admin|captain|host|president|on-call|chief|deputy|coach)"
)
_ROLES: Final = MappingProxyType(
    {"lead": "lead", "leads": "lead", "led": "lead", "manage": "manager", "manages": "manager", "managed": "manager"}
)
_MOVED: Final = (
    r"(?:changed|moved|switched|renamed|raised|lowered|increased|decreased|reduced|cut|dropped|fell|fallen|rose|risen|"
    r"went|gone|grew|grown|shrank|shrunk|climbed|jumped|postponed|pushed|delayed|brought|rescheduled|updated|upgraded|"
    r"downgraded|bumped|reset|migrated|relocated|extended|shortened|transferred|turned|slipped|expanded)"
)
_WAY: Final = r"(?: (?:up|down|back|over|forward|out|on))*"
_FROM: Final = r"(?: from (?P<old>.{1,40}?))?"
_STATING: Final = (
    r"(?:uses?|runs?|lives?|listens?|costs?|works?|sits?|meets?|starts?|begins?|ends?|closes?|opens?|holds?|has|have|"
    r"contains?|takes?|lasts?|weighs?|allows?|serves?|handles?|employs?|points? to|reports? to|deploys?|releases?|"
    r"publish(?:es)?|ships?|expires?|stands?|stores?|keeps?|goes|go|leaves?|departs?|arrives?|wants?|writes?|saves?|"
    r"logs?|sends?|push(?:es)?|reads?|pulls?|comes?|drives?|rides?|wears?|stud(?:ies|y)|teach(?:es)?|earns?|pays?|"
    r"charges?|trains?|stops?|lands?|covers?|measures?|drinks?|returns?|parks?|sleeps?|plays?|syncs?)"
)
_ENGLISH: Final = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("role", rf"{_WHO} (?:is|am|are|became|has become) (?:the|our|my) (?P<role>(?:[\w-]+ ){{0,3}}?{_PERSON})"
            r"(?: (?:of|for) (?P<about>.+))?"),
        ("role", rf"{_WHO} (?P<verb>owns?|leads?|maintains?|manages?|heads?|looks? after|takes? care of|(?:is|am|are)"
            r" (?:responsible for|in charge of)|takes over|took over|has taken over) (?P<about>.+?)"
            r"(?: from .+)?"),
        ("role", rf"{_SUBJECT} (?:(?:is|are) (?P<verb>owned|led|maintained|managed|handled) by|belongs? to|"
            r"(?:(?:is|are|was|were|has been|have been) )?(?:assigned|reassigned|handed(?: over)?|given|transferred|"
            rf"passed)(?: on| over)? to) (?P<who>{_NAME})"),
        ("moved", rf"(?:we|i|they|he|she|you|the team|{_NAME})(?:['’]ve| have| has)? (?:set|{_MOVED}) "
            rf"(?P<about>(?:the|our|my) .+?){_FROM}{_WAY} (?:to|into) (?P<value>.+)"),
        ("moved", rf"{_SUBJECT}(?:['’]s| has| have| had)?(?: been)?(?: (?:was|were|is being|are being|got))?"
            rf"(?: been)? {_MOVED}{_WAY}{_FROM}{_WAY} (?:to|into|until|till) (?P<value>.+)"),
        ("count", rf"there (?:is|are) (?P<value>\d[\d,.]*|{'|'.join(NUMBER_WORDS)}) (?P<about>.+)"),
        ("moved", rf"{_SUBJECT} (?:has |have )?(?:reached|hit) (?P<value>.+)"),
        ("moved", rf"{_SUBJECT} (?:became|has become|have become|turned|(?:was|has been) set to) (?P<value>.+)"),
        ("done", rf"{_SUBJECT} (?:(?:has|have|was|were|is|are) (?:being |been )?|got )(?P<value>[\w ]+)"),
        ("is", rf"{_SUBJECT} (?:is|are|am|remains?|stays?|will be|['’]s) (?P<value>.+)"),
        ("verb", rf"{_SUBJECT} (?P<verb>{_STATING})"
            r"(?P<prep> (?:on|in|at|from|to|under|for|with|by|every|until|as|into))? (?P<value>.+)"),
        ("label", r"(?P<about>[A-Za-z][\w-]*(?: [\w-]+){0,5}): (?P<value>\S.{0,40})"),
    )
)  # fmt: skip
# Verbs whose number is a state. Their other objects can be true of several things at once.
_COUNTING: Final = word_set("hold holds has have contain contains take takes last lasts weigh weighs allow allows "
                            "serve serves handle handles employ employs")  # fmt: skip
_NO_SUBJECT: Final = word_set("""
it this that there these those he she they you what who which here everything something nothing everyone someone a an
one some another each every any many several few no none both most either half how why where when
""")
_NO_NOUN: Final = word_set("and or that which who you he she they it i'm")
_DROPPED: Final = word_set(
    "the a an our of for in on at to with this new latest current we's is are has have been use by's"
)
_FIRST: Final = word_set("i my me mine")
_SAME_TERM: Final = MappingProxyType({"cost": "price", "costs": "price", "prices": "price"})
_ATTRIBUTE_IN_VALUE: Final = re.compile(
    r"(?P<attribute>port|version|room|gate|platform|seat|channel|line|track|level|revision) (?P<value>[\w.#-]+)"
    rf"|(?:the )?(?P<value2>{'|'.join(ORDINAL_WORDS)}|\d+(?:st|nd|rd|th)) (?P<attribute2>floor|row|shelf|hall)"
)
_VERSIONED: Final = re.compile(r"(?P<name>[A-Z][\w+#-]*) v?(?P<version>\d+(?:\.\d+)*)")
_BE_LED: Final = re.compile(
    r"(?:(?:set|fixed) (?:to|at)|called|named) |(?P<when>(?:scheduled|planned|due|booked|slated|set)(?: for| on| "
    r"at| by)?|for) |(?P<place>(?:(?:kept|stored|hosted|based|located|deployed|installed|parked|archived|saved|held|"
    r"placed|sitting|running) )?(?:in|on|at|under|near|by|behind|inside|with)) "
    r"|(?P<verb>\w+(?:ed|en|ilt|ade|lt|pt|nt|ound|ing) (?:in|on|by|with|from|of|at|for|to|as)) "
)
_ADJUNCT: Final = re.compile(
    r"(?:,| (?:because|since|as|so|but|which|who|where|when|while|after|before|until|though|although|thanks to)\b)"
    r".*$",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(
    r"(?:(?:about|around|roughly|nearly|over|exactly) )?(?P<number>[$€£¥]?\d[\d,]*(?:\.\d+)?|"
    rf"{'|'.join(NUMBER_WORDS)})(?![\w.:/-])(?P<unit>.*)",
    re.IGNORECASE,
)
_MONTH_NAME: Final = "|".join(name.capitalize() for name in MONTH_NAMES)
_WHEN: Final = re.compile(
    rf"(?:(?:on|at|by|every|each|until) )*(?:{DATE_ENGLISH.pattern}|(?:{WEEKDAY}|(?-i:{_MONTH_NAME}))s?\b|"
    r"\d{1,2}(?::\d\d)? ?(?:[ap]\.?m\b|o['’]clock)|\d{1,2}:\d\d|noon|midnight|today|tomorrow|tonight|"
    r"(?:half|a? ?quarter|(?:five|ten|twenty)) (?:past|to) \w+)",
    re.IGNORECASE,
)
_PROPER: Final = re.compile(r"[a-z]*[A-Z0-9._/@-][\w./@+#-]*", re.ASCII)
_NO_VALUE: Final = word_set("that to what how why of like so going")
_MANNER: Final = re.compile(
    r"(?:\w+(?:able|ible|ful|ous|ive|less|ish|ly|ed|ing|ical|ary|est)|good|bad|great|nice|fine|new|old|young|easy|hard|"
    r"heavy|quiet|loud|cheap|long|short|high|low|tall|rich|poor|strong|weak|safe|sick|ill|well|tired|happy|sad|sorry|"
    r"sure|right|wrong|true|false|huge|tiny|cute|lovely|friendly|funny|hungry|angry|lazy|crazy|busy|clear|simple|"
    r"important|urgent|different|same|better|worse|best|worst|worth|fun|cool|special|perfect|free|late|early|alone)"
)


def _english(said: str, speaker: str) -> Iterator[State]:
    renewed = _NEW.search(said) is not None
    said = " ".join(_NEUTRAL.sub("", _NEW.sub("", said)).split()).strip(" ,.")
    if _NO_STATE.search(said):
        return
    home = _at_home(said, speaker, False, renewed=renewed)
    if home is not None:
        yield home
    for form, pattern in _ENGLISH:
        match = pattern.fullmatch(said)
        if match is not None:
            yield from _of_match(form, match.groupdict(), speaker, renewed)


def _of_match(form: str, found: dict[str, str | None], speaker: str, renewed: bool) -> Iterator[State]:
    about, value, verb = found.get("about") or "", found.get("value") or "", (found.get("verb") or "").lower()
    if form == "role":
        role = found.get("role") or _ROLES.get(verb, "owner")
        subject = _subject(f"the {role} of {about}" if about else f"the {role}", speaker)
        who = found["who"] or ""
        if subject is not None and not any(map(str.isdigit, who)):
            new = renewed or "new " in f"{role} " or "over" in verb or not verb
            yield State(subject[0], role.split()[-1].lower(), "is", _plain(who), "name", renewed=new)
        return
    subject = _subject(about, speaker)
    if subject is None:
        return
    terms, head, definite = subject
    if head in _FIRST and form != "verb":
        return  # "I am ..." and "I went to ..." describe a mood or an errand
    renewed = renewed or form in ("moved", "done") or re.search(r"\bnew\b", about) is not None
    relation = CHANGED if form == "moved" else "is"
    value = _ADJUNCT.sub("", value).strip(" .!")
    if form == "done" and value.lower() not in _GROUPS:
        return
    if form == "count":
        terms, relation = terms | {"count"}, "count"
    elif form in ("is", "moved"):
        if value.startswith("back "):
            renewed, value = True, value.removeprefix("back ")
        led = _BE_LED.match(value)
        if led is not None and value.lower() not in _GROUPS:
            renewed = renewed or value.startswith("set to ")
            value = value[led.end() :]
            if led["place"] == "at" and value.lower() in NUMBER_WORDS and NUMBER_WORDS[value.lower()] <= 12:
                value = f"{NUMBER_WORDS[value.lower()]}:00"
            if led["verb"] and form == "is":
                relation = led["verb"].lower()
            elif led["place"] and form == "is":
                relation = "in"
    elif form == "verb":
        if verb in ("cost", "costs"):
            terms, head = terms | {"price"}, "price"
        else:
            relation = f"{verb.rstrip('s')}{found.get('prep') or ''}"
        if verb in ("use", "uses"):
            value, _, purpose = value.partition(" for ")
            if not purpose and not _VERSIONED.fullmatch(value):
                return  # one uses many things, each for something else
            terms |= _terms(purpose, speaker)
    elif form == "label" and not _ATTRIBUTE.search(head):
        return
    versioned = _VERSIONED.fullmatch(value)
    if versioned is not None:
        terms, head, value = terms | {versioned["name"].lower()}, "version", versioned["version"]
    attribute = _ATTRIBUTE_IN_VALUE.fullmatch(value)
    if attribute is not None:
        head = attribute["attribute"] or attribute["attribute2"]
        terms, value = terms | {head}, attribute["value"] or attribute["value2"]
        relation = "is" if relation != CHANGED else CHANGED
    made = _valued(terms, head, relation, value, renewed, definite)
    if made is not None and (verb not in _COUNTING or made.sort == "number"):
        yield made


def _valued(
    terms: frozenset[str], head: str, relation: str, value: str, renewed: bool, definite: bool
) -> State | None:
    lowered = value.lower()
    words = lowered.split()
    if not words or len(words) > _MOST_WORDS or words[0] in _NO_VALUE:
        return None
    groups = _GROUPS.get(lowered.removeprefix("all ").removeprefix("back "), frozenset())
    amount = _AMOUNT.fullmatch(value)
    when = _WHEN.match(value)
    sort, unit = "phrase", ""
    if groups:
        sort = "status"
        terms = frozenset(terms - {"status", "state"}) or terms
    elif when is not None:
        sort, value = "date", when.group()
        relation = CHANGED if relation == CHANGED else "is" if relation in ("is", "in") else relation.split()[0]
    elif amount is not None and not re.match(r" ?(?:to|-|–) ?\d", amount["unit"]):
        relation = "is" if relation == "in" else relation
        measured = _terms(amount["unit"].replace("%", " percent"), "")
        # "1 request" and "900 requests" have the same unit.
        sort, unit = "number", " ".join(sorted(one.removesuffix("s") if len(one) > 3 else one for one in measured))
    elif words[0] in ("a", "an"):
        sort = "kind"
    elif _MANNER.fullmatch(words[-1]) and value.islower():
        sort = "manner"
    elif len(words) <= 3 and words[0] != "the":
        sort = "name"
    return State(
        terms,
        head,
        relation,
        _plain(value),
        sort,
        unit,
        groups,
        renewed,
        definite,
        proper=sort == "name" and _PROPER.fullmatch(value) is not None,
    )


def _subject(about: str, speaker: str) -> tuple[frozenset[str], str, bool] | None:
    """The terms of a subject, its head, and whether it is one known thing; None if it is vague."""
    about = re.sub(r" (?:that )?(?:i|we) \w+$", "", about, flags=re.IGNORECASE)  # "the linter we use"
    words = about.lower().replace("’", "'").split()
    if not words or words[0] in _NO_SUBJECT or len(words) > _MOST_WORDS or _NO_NOUN & {*words}:
        return None
    terms = _terms(about, speaker)
    named = re.split(r" (?:of|for|in|on|at|to|from|with) ", about.lower())[0].split() or words
    if named[-1] in ("number", "total") and named != words:
        named = ["count"]  # about a kind of things, true of each of them
    definite = words[0] in ("the", "our", "my", "her", "his", "their", "your") or "'s" in words[0] or len(words) > 1
    return (terms, named[-1], definite) if terms else None


def _terms(text: str, speaker: str) -> frozenset[str]:
    found = set()
    for word in re.findall(r"[\w./#&-]*\w", re.sub(r"['’]s\b", "", text.lower())):
        if word in _FIRST:
            found.add(f"@{speaker}")
        elif word not in _DROPPED:
            found.add(_SAME_TERM.get(word, word))
    return frozenset(found)


def _plain(value: str) -> str:
    return re.sub(r"^(?:the|on|at|by|in|every|about|around) ", "", value.lower().strip(" .!\"'`“”‘’。！"))


# The last words of attributes with one value at a time. Other things can have several values side by side.
_ATTRIBUTE: Final = re.compile(
    r"(?:birthday|name|deadline|due date|date|release|launch|budget|rent|price|salary|income|revenue|port|version|"
    r"address|e-?mail|number|password|code|rate|timeout|limit|quota|size|age|weight|height|temperature|pressure|accuracy|"
    r"coverage|framework|language|region|timezone|zone|host|owner|lead|manager|boss|supervisor|capacity|threshold|"
    r"goal|title|status|state|start|end|duration|score|usage|interval|retention|expiry|colou?r|model|provider|vendor|"
    r"licen[cs]e|branch|mode|theme|font|maintainer|assignee|reviewer|level|priority|stage|phase|shift|schedule|time|"
    r"total|balance|speed|frequency|format|currency|endpoint|url|hostname|domain|hours|eta|default|captain|chair|contact)$"
    "|(?:预算|收入|成本|价格|费用|房租|租金|工资|薪水|生日|名字|名称|姓名|时间|日期|截止日?期?|期限|有效期|端口号?|版本号?|地址|"
    "电话|手机号?|号码|邮箱|密码|学习率|超时|上限|下限|限制|配额|额度|大小|年龄|体重|身高|体温|血压|准确率|覆盖率|使用率|框架|语言|"
    "导师|负责人|经理|主管|组长|队长|题目|标题|专业|职业|职位|状态|目标|时区|地点|阈值|容量|延迟|供应商|分数|分支|模式|主题|字体|颜色|"
    "优先级|阶段|进度|频率|格式|货币|域名|编号|数量|总数|余额|速度|维护者|联系人)$"
)


def has_one_value(state: State) -> bool:
    """Whether the subject is an attribute that has one value at a time: an owner, a limit, a branch."""
    return _ATTRIBUTE.search(state.head) is not None


# --- Chinese -----------------------------------------------------------------------------------------------

_NEW_CHINESE: Final = re.compile("现在|已经|如今|眼下|目前|今天起|从今天起|从今天开始|这周起|最近")
_SURELY: Final = "(?:已经|刚刚|刚|已|都|又|就|还|仍然|仍|依然|一直|才|终于|正式|统一|全部|正)"
_NO_STATE_CHINESE: Final = re.compile(
    "可能|也许|或许|大概会|打算|应该|考虑|希望|建议|想要?|如果|要是|假如|假设|万一|的话|准备|计划(?!表|书)|争取|是不是|能不能|"
    "[吗么呢]$|因为|由于|也|并非|不再|不(?:是|在|用|会|能|再|要|想|叫|换|改|变|打算|需)|没(?:有|在|换|改|变|用|法)|未(?:换|改|变|必)|别(?:用|改|换|再)"
)
_CHANGE_CHINESE: Final = (
    "(?:(?:改|换|变|调|升|降|切|移|挪|转|迁|搬|涨|跌|增|减|加|推迟|延期|延|提前|提高|降低|上调|下调|升级|降级|推|拖|顺延|改签|切换|调整|修改|"
    "更改|更换|变更|转移|迁移|设|设置|设定|增加|减少|缩短|延长|扩大|缩小|交接|移交|交|转交|扩容|提升|下降|上升|增长|推后|延后)"
    "(?:成|为|到|至|回|给|在|由)|改用|换用|改叫|改名[叫为成]?|更名为?|[调降升][高低]到|换|改)"
)
_CLOCK_CHINESE: Final = rf"[{CHINESE_NUMERALS}\d]{{1,3}}点(?:半|钟|[{CHINESE_NUMERALS}\d]{{1,3}}分?)?"
_CHINESE_MOMENT: Final = rf"{DATE_CHINESE.pattern}|{_CLOCK_CHINESE}|\d{{1,2}}[:：]\d\d"
_CHINESE_SUBJECT: Final = "(?P<about>[^，。：:]{1,24}?)"
_STATUS_WORDS: Final = "|".join(sorted((word for word in _GROUPS if not word.isascii()), key=len, reverse=True))
_BEGINS_OR_ENDS: Final = "结束|到期|开始|开门|关门|截止|出发|起飞|到达|发车|开会|上课|上班|下班"
_DONE_THERE: Final = (
    "上班|工作|办公|举行|召开|进行|办|开|任职|发布|发版|部署|打包|构建|测试|开发|编写|写|做|跑|运行|执行|开会|集合|上课|吃饭|训练|采购|进货|发货|"
    "备份|存放|保存"
)
_HOLDS: Final = (
    "定在|定于|设为|放在|存在|存放在|保存在|位于|运行在|跑在|部署在|住在|坐在|叫做|叫|等于|用的是|用的|使用的是|使用|监听|连接|连到|指向|"
    "剩下|剩|里?有(?![效限关些点])|为|是|在|用|每|存到|写到|写入|发到|发给|传到|送到|寄到|归档到|通向|开到"
)
_WHO_CHINESE: Final = rf"(?P<who>[{HAN}\w·]{{2,8}}?)"
_CHINESE: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("role", f"{_CHINESE_SUBJECT}{_SURELY}*(?:改|换|交|归|转)?(?:由|归|给){_WHO_CHINESE}"
            "(?:来)?(?:负责|管|管理|维护|接手)了?"),
        ("role", f"{_CHINESE_SUBJECT}{_SURELY}*(?P<verb>交|转交|移交|交接|转|派|分|指派|分配)给了?{_WHO_CHINESE}了?"),
        ("role", f"{_WHO_CHINESE}(?P<verb>负责(?!人)|接手|接管)了?(?P<about>[^，。]{{2,16}}?)(?:的工作)?了?"),
        ("role", f"{_WHO_CHINESE}是(?P<about>[^，。]{{2,16}}?)的?(?P<role>负责人|经理|主管|组长|维护者)"),
        ("moved", f"(?:我们?|咱们|他们|团队|公司)?{_SURELY}*[把将]{_CHINESE_SUBJECT}(?:从(?P<old>[^，。]{{1,14}}?))?"
            f"{_SURELY}*{_CHANGE_CHINESE}了?(?P<value>.+)"),
        ("moved", f"{_CHINESE_SUBJECT}{_SURELY}*(?:从(?P<old>[^，。]{{1,14}}?))?{_SURELY}*{_CHANGE_CHINESE}了?"
            "(?P<value>.+)"),
        ("frame", f"{_CHINESE_SUBJECT}{_SURELY}*(?P<value>每?(?:{_CHINESE_MOMENT}))(?P<tail>{_BEGINS_OR_ENDS})"),
        ("frame", f"{_CHINESE_SUBJECT}{_SURELY}*(?P<verb>从|在|用|由|跟|向|到)(?P<value>[^，。]{{1,24}}?)"
            f"(?P<tail>{_DONE_THERE}|{_BEGINS_OR_ENDS})的?"),
        ("status", f"{_CHINESE_SUBJECT}{_SURELY}*(?:处于|是|变得?|很|被)?(?P<value>{_STATUS_WORDS})(?:状态|中)?的?"),
        ("is", f"{_CHINESE_SUBJECT}{_SURELY}*(?P<verb>{_HOLDS})了?(?P<value>.+)"),
        ("label", f"(?P<about>[{HAN}A-Za-z0-9 ]{{2,14}})[：:]\\s?(?P<value>[^，。]{{1,24}})"),
    )
)  # fmt: skip
_PLAIN_TAILS: Final = ("跑", "运行", "执行")  # "running" says no more than "is"
_HELD: Final = re.compile(r"\s*(?:了|的|啦|呢|吧|啊)+$")
_NO_SUBJECT_CHINESE: Final = re.compile(
    "(?:当[时年初]|早上|上午|中午|下午|晚上|今天|昨天|前天|刚|后来|然后|所以|但|不过|其实|反正|就|那|一|还|再|又|才|只|都|很|"
    "[住放坐站来去写买订给从在把被让用养]$|如何|关于|对于|至于|其中|有的|有些|一个|一位|某|另|还有|这(?!周|个?月|季度|学期|届)|那|它|他们?$|她们?$|你|大家|谁|哪|什么|怎么|每)|.*之一|.+[和与或跟].+"
)
_AMOUNT_CHINESE: Final = re.compile(
    rf"(?P<per>每[{HAN}]{{1,2}})?(?:大约|大概|约|差不多)?(?P<number>[$€£¥]?\d[\d,]*(?:\.\d+)?(?![\w.-]*[.\-]\d)|"
    rf"[{CHINESE_NUMERALS}]+(?![{HAN}]*[敏强华]))\s?(?P<unit>[^\d]*)"
)
_WHEN_CHINESE: Final = re.compile(rf"每?(?:{_CHINESE_MOMENT}|[一二三四五六日]$)")
_PLACED: Final = MappingProxyType(
    {"放在": "in", "存在": "in", "存放在": "in", "保存在": "in", "位于": "in", "在": "in", "坐在": "in", "定在": "is"}
    | {"定于": "is", "设为": "is", "叫": "is", "叫做": "is", "等于": "is", "为": "is", "是": "is", "每": "is"}
    | {"用的是": "use", "用的": "use", "用": "use", "使用": "use", "使用的是": "use", "有": "has", "里有": "has"}
    | {"剩": "left", "剩下": "left"}
)


def _chinese(said: str, speaker: str) -> Iterator[State]:
    if _NO_STATE_CHINESE.search(said):
        return
    renewed = _NEW_CHINESE.search(said) is not None
    home = _at_home(said, speaker, True, renewed=renewed)
    if home is not None:
        yield home
        return
    said = _HELD.sub("", _NEW_CHINESE.sub("", said)).strip(" ，")
    for form, pattern in _CHINESE:
        match = pattern.fullmatch(said)
        if match is not None:
            yield from _of_chinese_match(form, match.groupdict(), speaker, renewed)


def _of_chinese_match(form: str, found: dict[str, str | None], speaker: str, renewed: bool) -> Iterator[State]:
    about, value, verb = found.get("about") or "", (found.get("value") or "").strip(), found.get("verb") or ""
    if form == "role":
        about, value = f"{about}{found.get('role') or '负责人'}", found.get("who") or ""
        renewed = renewed or verb not in ("", "负责")
    subject = _chinese_subject(about, speaker)
    versioned = _VERSIONED.fullmatch(value)
    if versioned is not None and subject is not None:
        subject, value = f"{subject}{versioned['name'].lower()}版本", versioned["version"]
    if subject is None or not value or (form != "frame" and subject in ("我们", f"@{speaker}")):
        return
    relation = CHANGED if form == "moved" else "is"
    renewed = renewed or form == "moved" or "新" in about
    if form == "frame":
        relation = f"{verb}…{'' if found.get('tail') in _PLAIN_TAILS else found.get('tail')}"
    elif form == "is":
        relation = _PLACED.get(verb, verb)
    elif form == "label" and not _ATTRIBUTE.search(subject):
        return
    made = _chinese_value(subject, relation, value, renewed)
    if made is not None and (made.relation not in ("has", "left") or made.sort == "number"):
        yield made


def _chinese_value(subject: str, relation: str, value: str, renewed: bool) -> State | None:
    value = value.strip(" “”「」")
    bare = re.sub("(?:状态|中)?的?$", "", value) or value
    groups = _GROUPS.get(bare.removeprefix("已经").removeprefix("已"), _GROUPS.get(bare, frozenset()))
    when = _WHEN_CHINESE.match(value)
    amount = _AMOUNT_CHINESE.fullmatch(value)
    sort, unit = "phrase", ""
    if groups:
        if len(subject) == 1:
            return None  # 狗又开始了
        sort, value = "status", bare
        subject = re.sub("(?:的?状态)$", "", subject) or subject
    elif when is not None:
        sort, value = "date", when.group()
        relation = relation.partition("…")[2] or (CHANGED if relation == CHANGED else "is")
    elif amount is not None:
        sort, unit = "number", (amount["per"] or "") + amount["unit"].strip()
        relation = "is" if relation in ("has", "left") else relation
    elif value.endswith("的") and relation == "is":
        sort = "manner"
    elif re.match("[一两]?[个位名种条]", value):
        sort = "kind"
    elif len(value) <= _LONGEST_VALUE_CHINESE or (value.isascii() and " " not in value):
        sort = "name"
    if len(value) > 2 * _LONGEST_VALUE_CHINESE:
        return None
    definite = _ATTRIBUTE.search(subject) is not None or len(subject) > 3
    return State(
        frozenset((subject,)),
        subject,
        relation,
        value.lower(),
        sort,
        unit,
        groups,
        renewed,
        definite,
        proper=sort == "name" and _PROPER.fullmatch(value) is not None,
    )


_LONGEST_VALUE_CHINESE: Final = 12


def _chinese_subject(about: str, speaker: str) -> str | None:
    about = about.strip()
    if not about or _NO_SUBJECT_CHINESE.match(about):
        return None
    mine = about.startswith("我") and not about.startswith("我们")
    about = re.sub("^(?:我们|咱们|我|团队|公司)的?", "", about)
    about = re.sub(r"的|\s|新(?!闻|年|人)|(?<=.)[里到于]$", "", about).lower()
    if re.search("[我你他她它]", about):
        return None
    return f"@{speaker}{about}" if mine else about or "我们"


# --- frames ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """The words of a clause without those that only mark it as new, for clauses whose verb is in no pattern."""

    words: tuple[str, ...]
    renewed: bool

    def renews(self, older: Frame) -> bool:
        """Whether this clause differs from the older one only in its value, and says that the value is new."""
        if not self.renewed or self.words == older.words:
            return False
        start = _shared(self.words, older.words)
        end = _shared(self.words[:start:-1], older.words[:start:-1])
        new, old = (words[start : len(words) - end] for words in (self.words, older.words))
        before, after = self.words[:start], self.words[len(self.words) - end :]
        if not new or not old or max(len(new), len(old)) > _LONGEST_NEW or {*new} & {*old}:
            return False  # with words in common, they differ in two places: the subjects differ
        chinese = _HAN_WORD.fullmatch(before[-1] if before else "") is not None
        return (_value_follows_chinese if chinese else _value_follows)(before, new, old, after)


_LONGEST_NEW: Final = 6
_HAN_WORD: Final = re.compile(f"[{HAN}]")
_FRAME_WORD: Final = re.compile(rf"[{HAN}]|(?:[^\W{HAN}]|[./@%#&'’-])*[^\W{HAN}]%?")
_NUMBERED: Final = re.compile(r"\d[\d.,]*%?")
_VERB: Final = re.compile(r"is|are|\w{3,}s")
_NEW_IN_FRAME: Final = re.compile(
    r"(?<=\w )(?:now|nowadays|these days|from (?:now|today)(?: on)?|as of (?:today|\w+day))\b", re.IGNORECASE
)
_DETERMINERS: Final = word_set("the our my his her their i we")
_LEADING: Final = word_set("in on at by with from to under near for as of into between")
# With these verbs, a new value is added to the old one: "we support Windows now".
_MANY_VALUED: Final = word_set(
    "has have support supports contain contains include includes like likes love loves need needs use uses depend "
    "depends sell sells offer offers serve serves know knows own owns play plays eat eats speak speaks accept accepts"
)
_VALUE_CHINESE: Final = re.compile("[是在叫用到给成为由从约放住设定跑发存付归]")
_LONGEST_AFTER_CHINESE: Final = 4
_VERBS_CHINESE: Final = frozenset("是在有的了")
_ORDINAL_CHINESE: Final = re.compile("[号步章页期楼层室班组年月日点届条款版]")


def frame_in(clause: str) -> Frame | None:
    """The frame of a clause that may give a value; None for a question, a supposition, a plan or a negation."""
    said = without_opening(" ".join(clause.split())).strip(" .!,;:。！，；：~～")
    if not said or len(said) > _LONGEST_CLAUSE:
        return None
    chinese = is_chinese(said)
    if (_NO_STATE_CHINESE if chinese else _NO_STATE).search(said):
        return None
    new = _NEW_CHINESE if chinese else _NEW
    plain = new.sub("", said) if chinese else _NEUTRAL.sub("", new.sub("", said))
    plain = _HELD.sub("", plain) if chinese else plain.lower()
    renewed = new if chinese else _NEW_IN_FRAME
    return Frame(tuple(_FRAME_WORD.findall(plain)), renewed.search(said) is not None)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return next(
        (at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), min(len(one), len(other))
    )


def _value_follows(
    before: tuple[str, ...], new: tuple[str, ...], old: tuple[str, ...], after: tuple[str, ...]
) -> bool:
    """Whether the difference comes after the subject and its verb, and is one value in place of another."""
    own = before[:1] in (("i",), ("we",))  # "we keep" has no -s
    verbs = [word for at, word in enumerate(before) if at and ((own and at == 1) or _VERB.fullmatch(word))]
    if len(before) < 3 or not verbs or before[0] not in _DETERMINERS or _MANY_VALUED & {*verbs}:
        return False
    if after and after[0] not in _LEADING and not _NUMBERED.fullmatch(new[0]):
        return False  # the following word may be the verb
    if bool(_NUMBERED.fullmatch(new[0])) != bool(_NUMBERED.fullmatch(old[0])):
        return False
    return not ({new[0], old[0]} & _LEADING)


def _value_follows_chinese(
    before: tuple[str, ...], new: tuple[str, ...], old: tuple[str, ...], after: tuple[str, ...]
) -> bool:
    if len(before) < 3 or _NO_SUBJECT_CHINESE.match("".join(before)):
        return False
    if len(after) > _LONGEST_AFTER_CHINESE or not _VERBS_CHINESE.isdisjoint(after):
        return False
    if _NUMBERED.fullmatch(new[0]) and _NUMBERED.fullmatch(old[0]) and len(new) == len(old) == 1:
        return before[-1] != "第" and bool(after) and _ORDINAL_CHINESE.match(after[0]) is None
    return _VALUE_CHINESE.fullmatch(before[-1]) is not None
