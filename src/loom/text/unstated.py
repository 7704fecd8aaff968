"""Recognise texts that state nothing: acknowledgements, and data or code within prose.

No fact is derived from them. Pure functions of one statement, for English and Chinese, linear in its length.
"""

from __future__ import annotations

import re
from typing import Final

from loom.text.statement_kinds import without_opening

__all__ = ["is_acknowledgement", "is_data"]

# The most characters of a statement that are examined.
_READ: Final = 600

# --- acknowledgements --------------------------------------------------------------------------------------

_RECORDED: Final = (
    r"(?:noted|saved|stored|recorded|logged|remembered|registered|memori[sz]ed|written (?:it|that|this) down|"
    r"made a note|taken note)"
)
_BARE: Final = re.compile(
    r"(?:(?:i(?:['’]ve| have|['’]ll| will)?|we(?:['’]ve| have|['’]ll| will)?|it(?:['’]s| is)|that(?:['’]s| is)|all|"
    r"your (?:\w+ ){1,2}(?:is|are|has been|have been|was))\s+)?(?:(?:now|just|already|been|all|duly) )*"
    rf"(?:{_RECORDED}|updated|added|got|understood|acknowledged|done|confirmed|remember|save|keep|make a note of|"
    r"take note of)"
    r"(?: (?:it|that|this|them|down|everything|your (?:\w+ ){0,2}\w+|(?:to|in) (?:(?:your|the|my) )?(?:memory|list|"
    r"notes?|profile|file|records?|calendar|mind)|for (?:later|you|next time)|successfully|correctly|"
    r"\d+ (?:items?|notes?|entries|records?|memor(?:y|ies)|facts?)|as (?:id |#|no\.? ?)?[\w-]*\d[\w-]*))*"
    r"\s*(?:[(\[#][^)\]\n]{0,60}[)\]]?|(?:with |under )?(?:id|no|number|ref)\b[.:]?\s*[\w-]+)?[\s.!]*",
    re.IGNORECASE,
)
_BARE_CHINESE: Final = re.compile(
    "(?:(?:我|我们|系统|这边)?(?:都|会|已经?|给您|给你|帮您|帮你|为您|为你|替您|替你)*"
    "(?:记录|记下来?|记住|记好|保存|存好|存入|存下|登记|备注|写入|更新|添加|收到|了解|明白|确认|搞定|完成)"
    "(?:了|好了|下来|完毕|成功|到记忆|到列表|到清单|到备忘录|到日历|一下)*)"
    "\\s*(?:[（(\\[#][^）)\\]\\n]{0,40}[）)\\]]?|[，,：:]?\\s*(?:编号|序号|ID|id|单号)[是为：:]?\\s*[\\w-]+)?[\\s。.！!～~]*"
)
# An assistant that confirms a note repeats the user, whose words are the source.
_REPEATED: Final = re.compile(
    rf"(?:i|we)(?:['’]ve| have|['’]ll| will)?(?: (?:now|just|already|also|duly))*(?: {_RECORDED}|"
    r" (?:remember|note down|make a note|keep in mind|keep (?:that|this|it) in mind))\b"
    rf"|{_RECORDED}(?: (?:that|it|this|your|the)\b|\s*[(\[])"
    "|(?:我|我们|系统|这边)?(?:都|会|已经?|给您|给你|帮您|帮你|为您|为你|替您|替你)+"
    "(?:记录|记下|记住|记好|保存|存好|存入|登记|备注)",
    re.IGNORECASE,
)
# The announcement of a search is not a fact; its result is.
_ANNOUNCED: Final = re.compile(
    r"(?:(?:i['’]ll|i will|i['’]m going to|i am going to|let me)(?: (?:first|now|just|quickly|then))*"
    r" (?:have a look|take a look|look|check|compare|pull|search|read|fetch|see|find|verify|dig|go through)\b"
    r"|(?:looking|checking|comparing|pulling|searching|reading|fetching|verifying)\b"
    r"|one moment|hold on|give me a (?:moment|second|minute))"
    "|(?:我|我们|这边)?(?:先|来|去|这就|马上|现在)*(?:[把将][^，。]{1,20})?(?:看|查|翻|比|拉|搜|读|找|核对)(?:一?下|下来)"
    "|[^，。]{0,20}(?:请?稍等|请稍候)",
    re.IGNORECASE,
)
_LEAD_CHINESE: Final = re.compile("(?:好的?|收到|明白|了解|嗯|行|没问题)[，,。！!\\s]*")


def is_acknowledgement(text: str, assistant: bool = False) -> bool:
    """Whether a statement only confirms that something was heard, saved or done: "Noted (31)", 已记录.

    For an `assistant`, this includes statements that repeat a note or announce a search.
    """
    said = without_opening(text[:_READ]).strip()
    lead = _LEAD_CHINESE.match(said)
    said = said[lead.end() :] if lead is not None else said
    if _BARE.fullmatch(said) or _BARE_CHINESE.fullmatch(said):
        return True
    return assistant and (_REPEATED.match(said) is not None or _ANNOUNCED.match(said) is not None)


# --- data and code -----------------------------------------------------------------------------------------

_JSON: Final = re.compile(
    r"\s*(?:[\[{]\s*(?:[\"'\[{\d]|$)|[\"'][\w .$@-]{1,60}[\"']\s*:\s*(?:[\"'\[{\d-]|true\b|false\b|null\b))"
)
_JSON_PAIR: Final = re.compile(r"[\"'][\w .$@-]{1,60}[\"']\s*:")
_CODE_LINE: Final = re.compile(
    r"\s*(?:(?:async )?def \w+\s*\(|class \w+\s*[(:{]|from [\w.]+ import |import [\w.{*]+[;,\s]*$|"
    r"(?:const|let|var|static|public|private|protected|func|fn|function|struct|enum|interface|namespace|package)"
    r" [\w$<{].*[{=(;]|#include|@\w+(?:\(|$)|return\b[^.!?]*$|(?:if|for|while|elif|else|switch|try|except|catch|"
    r"with)\b.*[{:]\s*$|[}\])]+[;,]*\s*$|</?\w+[^>]*>|//|/\*|\*/|"
    r"(?:SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE (?:TABLE|INDEX)|ALTER TABLE)\b|"
    r"[\w.$]+(?:\[[^\]\n]*\])?\s*(?:[-+*/|&:]?=(?!=)|<-)\s*\S.*$|[\w.$]+\([^()\n]*\)\s*[;{]?\s*$|.*[;{]\s*$)"
)


def is_data(text: str) -> bool:
    """Whether a statement is JSON or source code without a fence, and not a sentence."""
    text = text[:_READ]
    if _JSON.match(text) or len(_JSON_PAIR.findall(text)) >= 2:
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    code = sum(_CODE_LINE.match(line) is not None for line in lines)
    return 0 < len(lines) <= 2 * code
