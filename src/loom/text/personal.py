"""Lasting statements of people about themselves: health, diet, name, occupation, home and contact data.

Such a statement is kept regardless of its context. Tastes and relatives are excluded: in conversations, most
sentences about them are stories. Pure functions of one statement, for English and Chinese.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_personal"]

_READ: Final = 300
_ENGLISH: Final = re.compile(
    r"\b(?:i am|i['’]m|i was|my \w+ is|my \w+['’]s|we['’]re|we are) (?:also |now |both |very |severely |highly |"
    r"mildly |slightly |badly )?(?:allergic to|intolerant|(?:a )?(?:vegan|vegetarian|pescatarian|diabetic|"
    r"coeliac|celiac|asthmatic)\b|lactose|gluten|colou?r-?blind|left-handed|pregnant|dyslexic|deaf|blind\b)"
    r"|\bmy (?:\w+ )?allerg(?:y|ies)\b.{0,20}\b(?:to|is|are)\b|\bi(?:['’]ve| have)(?: got)? (?:an? )?(?:\w+ )?"
    r"(?:allergy|allergies|diabetes|asthma|epilepsy|hypertension|migraines?)\b|\bi was diagnosed with\b"
    r"|\bi(?: really)? (?:can['’]t|cannot|don['’]t|do not|never|no longer) (?:eat|drink|tolerate)\b"
    r"|\bmy (?:full |first |last |sur)?name(?:['’]s| is) (?-i:[A-Z])|\bcall me (?-i:[A-Z])|\bi go by (?-i:[A-Z])"
    r"|\bi(?:['’]m| am)(?: now| currently)? an? (?:\w+ ){0,2}(?:engineer|developer|designer|teacher|nurse|doctor|"
    r"chef|cook|student|lawyer|accountant|architect|writer|editor|journalist|researcher|scientist|manager|consultant|"
    r"electrician|plumber|carpenter|driver|pilot|farmer|baker|dentist|pharmacist|librarian|musician|translator|analyst|"
    r"programmer)\b"
    r"|\bi(?:['’]m| am)? (?:now |currently )?work(?:ing)? (?:as an? |at (?-i:[A-Z])|for (?-i:[A-Z]))"
    r"|\bi (?:now |currently )?live (?:in|at|near|on) "
    r"|\bi(?:['’]ve| have)?(?: just| recently)? (?:moved|relocated) to (?-i:[A-Z])"
    r"|\bi(?:['’]m| am) originally from (?-i:[A-Z])|\bi grew up in (?-i:[A-Z])"
    r"|\bmy (?:blood type|shoe size|date of birth|birthday) (?:is|was)\b"
    r"|\b(?:my|our) (?:(?:new|home|postal|work|office|private) )?(?:address|e-?mail(?: address)?|phone(?: number)?|"
    r"mobile(?: number)?) is(?! not\b)",
    re.IGNORECASE,
)
_CHINESE: Final = re.compile(
    "(?:我|我们|本人)[^，。！？；]{0,6}(?:对[^，。]{1,12}过敏|乳糖不耐|有(?:糖尿病|高血压|哮喘|癫痫|心脏病|胃病|偏头痛)|确诊|怀孕|"
    "吃素|是素食|不能吃|不吃|不能喝|不喝|忌口|是左撇子|是色盲|的血型)"
    "|我(?:的名字|的姓名)?(?:叫|姓)(?!他|她|你|它|上|人|醒|车|外卖|了)"
    "|我(?:现在|目前|本人)?(?:是|在做|当)(?:一?[名个位])?[^，。！？；的]{0,10}(?:工程师|程序员|设计师|老师|教师|医生|护士|厨师|律师|"
    "会计|记者|编辑|研究员|学生|研究生|博士生|经理|翻译|司机|药师)(?=[，。！；]|$)"
    "|我们?(?:家|公司)?的?新?(?:家庭|收货)?(?:地址|住址|邮箱|电话|电话号码|手机号码?)(?:现在|已经)?(?:是|为|[：:])"
    "|我(?:现在|目前)?在[^，。]{2,12}(?:上班|工作|任职)|(?:我|我们)(?:家)?(?:现在|目前|刚|已经)*(?:住在|搬到|搬去)"
)


def is_personal(text: str) -> bool:
    """Whether a statement of users states who they are, what they cannot have, or where they live or work."""
    text = text[:_READ]
    return _ENGLISH.search(text) is not None or (not text.isascii() and _CHINESE.search(text) is not None)
