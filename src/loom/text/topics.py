"""The topic of a wish or request: its terms without the words that express wishes ("always use", 以后都用).

Two wishes with the same topic concern the same thing. A question meets a condition if they share the topic.
"""

from __future__ import annotations

import re

from loom.text.words import content_terms, word_set

__all__ = ["topic_terms"]

# In their plain spelling; their stems are left out.
_ENGLISH = word_set("""
always never ever use using please ask asking asked say said tell told talk mention when whenever if want need prefer
like love enjoy hate dislike avoid try keep make sure remember note stop start instead longer anymore again only also
from now on forward future time every each all any anything everything something thing things get give given show
provide include including add put write written do done does answer answers reply replies respond response responses
request requests question questions about regarding concerning case general default rule policy instruction
preference favourite favorite usually generally normally typically really much more most rather better best would
should must could can let lets us me my mine our ours your yours you we it its one two way kind sort lot bit please
thanks thank help look looking find right new good great nice just still even though while first last next know
""")
_STOPS = frozenset(term for word in _ENGLISH for term in content_terms(word)) | word_set("alway instead")
_CHINESE = re.compile(
    r"以后|今后|往后|从现在(?:起|开始)?|从今(?:天|往后)?(?:起|开始)?|每次|每当|每回|凡是|但凡|一律|始终|永远|总是|一直|默认|"
    r"统一|请|务必|记住|记得|别忘了|不要再|不要|不用再|不用|不必|别再|千万|绝对|必须|应该|我(?:们)?|你|您|喜欢|更喜欢|习惯|"
    r"希望|想要|讨厌|偏好|宁愿|宁可|的时候|时候|的话|问(?:你|到|起)?|让|帮|给|使用|采用|用|都|要|得|别|再|了|时|吧|关于|涉及|"
    r"之前|以前|刚才|上次|说过?的?|提过?的?|要求|规定|规则|回答|回复|尽量|一下|可以|能|能不能|怎么|什么|哪些|哪个|如何|有|没有|"
    r"是|和|与|或|对|把|被|在|里|中|也|就|还|很|比较|最|更"
)


def topic_terms(text: str) -> frozenset[str]:
    plain = text if text.isascii() else _CHINESE.sub(" ", text)
    return frozenset(term for term in content_terms(plain) if term not in _STOPS)
