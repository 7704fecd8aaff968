"""The complexity of a task, estimated from its words in English and Chinese, and the rule for dividing it.

The design documents give the module its name.
"""

from __future__ import annotations

import re

from loom.fractal.budget import task_description
from loom.fractal.pieces_of_work import pieces_of_work
from loom.protocol import Task
from loom.settings import FractalConfig, GrowthTrigger
from loom.text.scripts import han_characters, has_han

__all__ = ["estimate_task_complexity", "should_use_fractal"]

_LENGTH_WEIGHT, _JOINING_WEIGHT, _STEP_WEIGHT = 0.3, 0.4, 0.3
# Each part counts in full from this amount: a long paragraph, four joints, three steps.
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
    chinese = _NOT_JOINING.sub("、", text)
    joints = len(_JOINING.findall(lowered)) + len(_JOINING_CHINESE.findall(chinese))
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
