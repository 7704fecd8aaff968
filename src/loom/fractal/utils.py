"""The complexity of a task, estimated from its words in English and Chinese, and the rule for dividing it.

The design documents give the module its name.
"""

from __future__ import annotations

import re
from typing import Final

from loom.fractal.budget import task_description
from loom.protocol import Task
from loom.settings import FractalConfig, GrowthTrigger
from loom.text.scripts import han_characters, has_han
from loom.text.words import word_set

__all__ = ["estimate_task_complexity", "pieces_of_work", "should_use_fractal"]

_LENGTH_WEIGHT, _JOINING_WEIGHT, _STEP_WEIGHT = 0.3, 0.4, 0.3
# Each part counts in full from this amount: a long paragraph, four conjunctions, three steps.
_MANY_WORDS, _MANY_JOINTS, _MANY_STEPS = 60.0, 4.0, 3.0
# The complexity by the number of pieces of work. Three reach the default threshold.
_BY_PIECES = (0.0, 0.0, 0.35, 0.7, 0.8, 0.9, 0.95)
# Characters in a Chinese word, on average in running text.
_CHARACTERS_PER_WORD = 1.5

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")

_JOINING = re.compile(
    r"\b(?:and|then|also|plus|while|meanwhile|furthermore|additionally|moreover|afterwards|as well as|in addition|"
    r"along with|followed by)\b"
)
_STEP = re.compile(r"\b(?:first|firstly|secondly|third|thirdly|fourth|finally|lastly|next|steps?|phase)\b")
# At the start of a line or after punctuation: "1." "2)" "- " and the Chinese 一、 （二）. The skipped space holds no
# line break, where another match begins, so the time is linear.
_NUMBERED = re.compile(
    r"(?:^|[\n;；。:：])[^\S\n]*+(?:\(?\d{1,2}[.)、](?!\d)|[-*•]\s|[（(]?[一二三四五六七八九十]{1,2}[、）)])"
)

# Words in which a joining character joins nothing. They are removed before counting.
_NOT_JOINING = re.compile(
    "和平|和谐|和解|和气|和睦|和蔼|和尚|温和|柔和|缓和|饱和|总和|求和|之和|平和|随和|共和|中和|调和|附和|和声|和弦|"
    "参与|与会|与其|与否|给与|与众不同|合并|并非|并不|并没|并未|并发|并行|一并|吞并|并购|归并|兼并|并列|并存|"
    "普及|及时|及格|涉及|提及|波及|危及|顾及|触及|来得及|来不及|同时代|不同时"
)
_JOINING_CHINESE = re.compile("以及|并且|而且|然后|接着|随后|同时|另外|此外|还要|还有|之后再|再把|再将|[和与及并]")
_STEP_CHINESE = re.compile("首先|其次|再次|最后|最终|步骤|第[一二三四五六七八九十\\d]+步|阶段|下一步")


def estimate_task_complexity(task: Task | str) -> float:
    """Estimate the complexity of a task from 0 to 1, by its length, its conjunctions and its steps.

    A task with three or more pieces of work (`pieces_of_work`) is complex even if it is short.
    """
    text = task_description(task)
    words = sum(not has_han(word) for word in _WORD.findall(text))
    characters = len(han_characters(text))
    lowered = text.casefold()
    joints = len(_JOINING.findall(lowered)) + len(_JOINING_CHINESE.findall(_NOT_JOINING.sub("、", text)))
    steps = len(_STEP.findall(lowered)) + len(_STEP_CHINESE.findall(text)) + len(_NUMBERED.findall(text))
    by_form = (
        _LENGTH_WEIGHT * _share(words + characters / _CHARACTERS_PER_WORD, _MANY_WORDS)
        + _JOINING_WEIGHT * _share(joints, _MANY_JOINTS)
        + _STEP_WEIGHT * _share(steps, _MANY_STEPS)
    )
    return max(by_form, _BY_PIECES[min(pieces_of_work(text), len(_BY_PIECES) - 1)])


def should_use_fractal(task: Task | str, config: FractalConfig | None = None, *, requested: bool = False) -> bool:
    """Return whether to divide a task among children. MANUAL divides only if `requested` is True."""
    rule = FractalConfig() if config is None else config
    if rule.growth_trigger is GrowthTrigger.ALWAYS:
        return True
    if rule.growth_trigger is GrowthTrigger.MANUAL:
        return requested
    if rule.growth_trigger is GrowthTrigger.COMPLEXITY:
        return estimate_task_complexity(task) >= rule.complexity_threshold
    return False


def _share(amount: float, many: float) -> float:
    return min(1.0, amount / many)


# --- pieces of work ----------------------------------------------------------------------------------------
#
# A piece of work is an order: a clause that begins with a verb and has no subject. Items of a list ("milk, eggs")
# and the background of a question do not count. Runs in linear time.

# Only the beginning of a longer task is read, in characters. It is enough to decide.
_READ: Final = 20_000

# --- English -----------------------------------------------------------------------------------------------

_SENTENCE: Final = re.compile(r"[^.!?;\n。！？；]+[.!?。！？]?")
_JOINT: Final = re.compile(
    r"[,，、:：]|\b(?:and|then|plus|afterwards|also)\b|\bas well as\b"
    "|然后|接着|随后|同时|以及|并且|(?<=[^合吞归兼一])并(?![非不没未发行购列存])|之后再?",
    re.IGNORECASE,
)
_OPENING: Final = re.compile(
    r"(?:\s|[-*•(]|\d{1,2}[.)]|\b(?:please|first|firstly|second|secondly|third|thirdly|next|finally|lastly|and|then|"
    r"also|(?:could|can|would|will) you(?: please)?|(?:i|we)(?:['’]d like you to| want you to| need you to| need to|"
    r" have to| should| must)|let['’]?s|your task is to|you should|you must|try to|make sure to|remember to|"
    r"help me(?: to)?|to)\b)*",
    re.IGNORECASE,
)
_FIRST: Final = re.compile(r"([a-z]+(?:-[a-z]+)?)(?:\s+([\w'’-]+))?", re.IGNORECASE)
# Verbs of orders with a bare object ("print badges"). Before an article any word may be the verb ("dust the shelf").
_VERBS: Final = word_set("""
add adjust analyse analyze announce answer apply approve archive arrange ask assemble assess assign audit automate
back bake benchmark book brief build buy calculate call cancel check choose clean clear close cluster code collect
combine compare compile compose compute configure confirm contact convert cook copy count crawl create debug decide
define delete deliver deploy describe design determine develop discuss document download draft draw edit email
estimate evaluate examine explain export extract fetch file fill filter find finish fix format gather generate get
give group handle hire hold host identify implement import improve index inform insert inspect install integrate
interview introduce investigate invite invoice label launch learn list load log look mail make map measure merge
migrate model monitor move negotiate notify open optimise optimize order organise organize outline pack paint parse
pay perform pick plan plot post predict prepare present price print prioritise prioritize process produce profile
program propose prove provide publish pull push put rank read rebuild recommend reconcile record redirect reduce
refactor register release remove rename repair replace reply report request rerun research reserve reset resolve
restart restore review rewrite roll run sand scan schedule scrape search secure select sell send separate set share
ship show sign simulate sketch solve sort split start stop store study submit suggest sum summarise summarize switch
sync tag tell test tidy track train transcribe transfer translate triage tune turn update upgrade upload validate
verify visit wait warn wash watch water weigh wire wrap write
""")
_NO_VERB: Final = word_set("""
a an the this that these those it its he she they we you i my our your his her their who which what when where why how
if because while although since though than as is are was were be been has have had do does did will would can could
may might must in on at by with for from of about into over under between during through or nor but not no nobody
everyone there here all both each every some any many much more most few less one two three so too very just only even
still yet already once again maybe perhaps either neither such same other another yes
""")
_OBJECT_BEFORE: Final = word_set("""
the a an my our your their its his her this that these those all each both every it them me us him two three four five
""")
_WANTED: Final = re.compile(r"\s*(?:we|i) (?:need|want|would like|['’]d like)\b(?! (?:to|you)\b)", re.IGNORECASE)
_DONE: Final = re.compile(
    r"\b\w{2,}(?:ed|ten|ilt|ade|ught|own|one)\b(?: (?:up|out|in|down|over|back))?", re.IGNORECASE
)


def _is_order(part: str) -> bool:
    opening = _OPENING.match(part)
    first = _FIRST.match(part, opening.end() if opening is not None else 0)
    if first is None:
        return False
    verb, after = first[1].lower(), (first[2] or "").lower()
    if verb in _NO_VERB or verb.endswith(("ed", "ing")):
        return False
    return (verb in _VERBS and bool(after)) or after in _OBJECT_BEFORE


# --- Chinese -----------------------------------------------------------------------------------------------

_VERBS_CHINESE: Final = (
    "备份|迁移|更新|通知|发布|部署|观察|监控|检查|安排|调研|比较|对比|起草|准备|编写|撰写|修复|修好|修改|分析|补充|收集|整理|核对|"
    "列出|打扫|清洗|清理|浇水|翻译|总结|汇总|扫描|提取|提醒|归档|打磨|粉刷|更换|换掉|安装|搬|访谈|采访|归纳|试用|展示|演示|搭建|"
    "搭好|导入|导出|查找|找出|找到|重跑|设计|接入|接上|跳转|合并|解压|下载|上传|生成|发送|测试|评估|预测|训练|标注|统计|计算|"
    "审核|确认|联系|预订|预约|购买|采购|支付|报销|写|画|做|买|卖|订|请|排|印|读|洗|换|装|修|加|跑|发|查|搭|取|寄|刷|录|拍|建|拆|"
    "联调|压测|优化|重构|部署|回滚|验收|培训|招聘|面试|签|开通|注册|申请|制定|撤销|回复|处理|解决|复盘|研究|比对|校对|排版|打印|装修"
)
_ORDER_CHINESE: Final = re.compile(f"(?:{_VERBS_CHINESE})(?!了|过|完了|得|是|的)[^了过]{{1,}}$|(?:{_VERBS_CHINESE})$")
_AIMED_CHINESE: Final = re.compile(
    f"[给把将替为向][^，。、]{{1,16}}?(?:{_VERBS_CHINESE})|和[^，。、]{{1,10}}?(?:{_VERBS_CHINESE})"
)
_LEAD_CHINESE: Final = re.compile(
    "(?:\\s|[-*•（(]?\\d{1,2}[.、)）]|[（(]?[一二三四五六七八九十]{1,2}[、）)]|请你?(?=帮|完成|把|[^嘉客人])|麻烦你?|帮我|首先|其次|先|再|最后|"
    "最终|还要|另外|还有|需要|周[一二三四五六日末天]|今天|明天|[上下中]午|早上|晚上|要|也|都|完成)*"
)


def _is_order_chinese(part: str) -> bool:
    if "了" in part or "过" in part:
        return False
    part = part.strip(" \t。！!.;；")
    bare = part[len(_LEAD_CHINESE.match(part)[0]) :]  # type: ignore[index]
    return any(_ORDER_CHINESE.match(one) or _AIMED_CHINESE.match(one) for one in dict.fromkeys((part, bare)))


def pieces_of_work(text: str) -> int:
    """Count the orders in a text."""
    return sum(_orders(sentence) for sentence in _SENTENCE.findall(text[:_READ]))


_ASKED: Final = re.compile(r"\s*(?:please\s+)?(?:can|could|would|will) you\b", re.IGNORECASE)


def _orders(sentence: str) -> int:
    if sentence.rstrip()[-1:] in ("?", "？") and _ASKED.match(sentence) is None:
        return 0
    wanted = _WANTED.match(sentence) is not None  # "we need a page designed, the copy written"
    return sum(_is_asked_for(part, wanted) for part in _JOINT.split(sentence))


def _is_asked_for(part: str, wanted: bool) -> bool:
    if has_han(part):
        return _is_order_chinese(part)
    return _is_order(part) or (wanted and _DONE.search(part) is not None)
