"""The wordings by which people give standing instructions and state preferences, in English and Chinese.

English patterns are matched against a sentence in lower case without its opening words ("so, please ..."), Chinese
ones against the sentence as it is. `loom.knowledge.instructions` decides with them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CHINESE",
    "ENGLISH",
    "FOREIGN_TEXT",
    "MAY_INSTRUCT",
    "QUOTED",
    "SESSION_ONLY",
    "UNSTATED",
    "Cues",
]

_VERBS = (
    "add|address|answer|apply|ask|assume|avoid|be|begin|break|bring|build|call|check|choose|cite|comment|"
    "compare|confirm|"
    "consider|convert|correct|cover|create|default|define|describe|document|double-check|draft|end|ensure|"
    "exclude|explain|"
    "express|flag|focus|follow|format|generate|get|give|group|handle|highlight|hold|ignore|include|indent|"
    "indicate|insert|"
    "keep|label|lead|leave|limit|link|list|log|make|mark|mention|merge|name|note|notify|offer|omit|open|order|"
    "phrase|pick|"
    "place|plan|point|prefer|prefix|present|propose|provide|push|put|quote|recommend|refer|remember|remind|"
    "remove|reply|"
    "report|respond|restrict|return|reveal|review|round|run|save|say|schedule|send|separate|set|share|show|sign|"
    "simplify|"
    "skip|sort|speak|specify|spell|split|start|state|stay|stick|stop|store|structure|suggest|summari[sz]e|"
    "supply|take|talk|"
    "tell|test|translate|treat|try|update|use|verify|wait|warn|wrap|write|delete|touch|change|book|email|deploy|"
    "commit|"
    "install|invent|guess|repeat|apologi[sz]e|discuss|maintain|preserve|respect|rely|reference|print|render|"
    "number|wake"
)
_DO = rf"(?:please |just |kindly |only )*(?:(?:{_VERBS})\b|don't\b|do not\b|never\b|always\b|no \w|stop \w)"
_TOLD = (
    rf"(?:{_DO}|(?:i|we) (?:want|need|expect|would like|'d like|prefer)\b|i'd (?:like|prefer|rather)\b|"
    r"you (?:should|must|need|have|can|may|are)\b|let's\b|(?:all|every|any|your) )"
)
# What an assistant is asked for, in a condition.
_ASKED = (
    "ask|request|want|say|tell|give|send|paste|share|mention|bring|write|need|talk|inquire|enquire|post|upload|"
    "type|make|"
    "speak|sound|seem|forget|discuss|describe|show|refer|question|look|call"
)
_ANSWERS = (
    r"(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|summar(?:y|ies)|outputs?|suggestions?|emails?|"
    r"comments?|commits?|code|examples?|recommendations?|drafts?|texts?|reports?|lists?)"
)
_STANDING = (
    r"(?:from (?:now|here|today|this point|this moment) (?:on(?:wards?)?|forward)|(?:going|moving) forward|"
    r"henceforth|"
    r"in (?:the )?future(?: \w+)?|for (?:all )?future \w+|until (?:i (?:say|tell)|further)[^,;]*|"
    r"as a (?:general )?rule(?: of thumb)?|by default|in general|at all times|without exception|no matter what[^,;]*|"
    r"(?:every(?: single)?|each|any) ?time(?: (?:you|i|we)\b[^,;]*)?|whenever (?:you|i|we|there|something|a|an|"
    r"the)\b[^,;]*|"
    r"(?:for|with|in|on) (?:any|all|every|each)(?:thing|one)?\b[^,;]*)"
)
_TOPIC = (
    r"(?:(?:for|in|with|on|regarding|concerning|about|as for|during|inside) (?!the\b|this (?!project|repo|"
    r"codebase|team)"
    r"|that\b|these\b|those\b|now\b|example\b|instance\b|me\b|a\b|an\b|today\b|fact\b|short\b|case\b|addition\b|"
    r"particular\b)"
    r"[^,;:]{2,60}|when it comes to [^,;]{2,80})"
)
_OFTEN = (
    r"(?:really |generally |usually |strongly |much |mostly |also |personally |still |definitely |certainly |"
    r"actually |"
    r"always |typically |normally |do |tend to |would |honestly |greatly |highly )*"
)
# What follows "I like" where something at hand is meant.
_AT_HAND = (
    r"(?! (?:the\b|this\b|that\b|it\b(?! when)|these\b|those\b|"
    r"your\b|you\b|how (?!\w+ing)|what\b|to (?:know|see|ask|book|thank)\b|both\b))"
)
_HABITS = (
    "use|eat|drink|work|write|choose|go|take|buy|travel|read|avoid|prefer|keep|wear|pay|cook|sleep|run|train|"
    "pick|stick|"
    "start|type|code|test|deploy|commit|review|put|play|listen|watch|order|walk|fly|drive|bike|cycle|shop|bring|"
    "build|"
    "store|save|plan|schedule|meet|opt|lean|aim|trust|want|stay|favou?r|learn|study|invest|handle|format|name|sign"
)

_ENGLISH_INSTRUCTIONS: Final = (
    # Always include the tests. / ..., so never suggest nuts.
    r"^(?:always|never|under no circumstances)(?: ever)? (?!been\b|mind\b|again\b|had\b|a\b|an\b|the\b|to\b|"
    r"in\b|been\b|"
    r"really\b|thought\b|seen\b|heard\b|in my\b|would\b|too\b|been\b|fails?\b|works?\b|happens?\b|"
    r"mind\b)[a-z]+(?<!ed)\b",
    rf"(?:[,;:—–] |\b(?:and|so|but|please|then|therefore) )(?:please )?(?:always|never) (?:ever )?(?:{_VERBS})\b",
    rf"^(?:{_VERBS})\b.{{2,120}}\b(?:always|at all times|every time|each time|whenever)\b(?! (?:been|was|wanted))",
    rf"^{_STANDING}(?:[,:] {_TOLD}| (?:{_DO}|i (?:want|need|expect|would like)\b|i'd (?:like|prefer|rather)\b|"
    rf"you (?:should|must)\b))",
    rf"^{_DO}.{{2,160}}(?:^|[ ,]){_STANDING}",
    # If I ask you for an email, keep it short. / Use lists when I ask for options.
    rf"^(?:when|if|once) (?:i|we) (?:{_ASKED})\b[^;.!?]*?[,;] (?:then )?{_TOLD}",
    rf"^(?:when|if) you(?:'re| are)? (?!done|finished|ready|can\b|could|want|like\b|need\b|think|know|have\b|"
    rf"get\b|see\b|find\b"
    rf"|don't|agree|would|run into|'ve)[^;.!?]*?[,;] (?:then )?{_DO}",
    rf"^(?!let me know|tell me (?:when|if)|ping|call me|what|show me (?:what|how)){_DO}.{{3,160}}\b(?:when|if) "
    rf"(?:i (?:{_ASKED})|you "
    r"(?:write|give|show|answer|explain|generate|produce|suggest|recommend|summari[sz]e|send|create|make|reply|"
    r"respond|draft|"
    r"build|plan|propose|present|code|quote|cite|talk|teach|review|list|use|provide|help))\b",
    # Before you delete anything, ask me. / Don't push without asking.
    rf"^(?:before|after) (?:you\b[^,;]*|\w+ing\b[^,;]*|any\b[^,;]*|every\b[^,;]*)\b(?:any\w*|every\w*|each|ever|"
    rf"all)\b[^,;]*[,;] {_DO}",
    rf"^{_DO}.{{2,80}}\bbefore (?:you )?\w+(?:ing)?\b.{{0,60}}\b(?:any|anything|ever|every|each)\b",
    r"^(?:don't|do not)\b.*\b(?:ever\b|again\b|any ?more\b|any\b|anything\b|anyone\b|anybody\b|unless i\b|"
    r"without (?:asking|my\b|checking|telling|first))",
    # For SQL, use upper case. / In my stories, don't use adverbs.
    rf"^{_TOPIC}[,:] (?:please )?(?:{_DO}|you (?:should|must))",
    rf"\b(?:in|for|on|at) (?:this|our|my) (?:project|repo(?:sitory)?|codebase|team|company|house(?:hold)?|"
    rf"family|office|shop|class"
    rf"|lab|workspace|firm|department)\b[^.;]*?\bwe (?:always |never |only |all |don't |do not |do "
    rf")*(?:{_VERBS}|{_HABITS})\b",
    r"\bour (?:convention|rule|policy|standard|house style) (?:is|says)\b",
    # All SQL you produce should be formatted.
    r"\b(?:all|every|each|any)\b[^,.;?]{0,40}\b(?:you|i ask|we)\b[^,.;?]{0,40}\b(?:should|must|needs? to|ha(?:s|"
    r"ve) to|shall|is to|"
    r"are to|can't|cannot|may not)\b",
    rf"^{_DO}.{{0,80}}\b(?:in|of|to|with|from) (?:all |any |every )?(?:of )?your {_ANSWERS}\b",
    rf"^{_DO}.{{0,80}}\b(?:anything|everything|whatever|any \w+|every \w+|all(?: the)? \w+) (?:that )?(?:you|i|we)\b",
    r"^(?:keep|make) (?:all )?(?:of )?(?:your |the |my )?(?:answers|replies|responses|explanations|messages|"
    r"summaries)\b",
    rf"\b(?:your|all) (?:\w+ )?{_ANSWERS} (?:should|must|need to|have to|ought to)\b",
    r"^(?:stop|quit|cease) (?:\w+ing)\b(?! (?:the|this|that) (?:server|service|process|script|job))",
    r"^no more \w+",
    r"^avoid\b.*\b(?:in (?:your|my|our|all|any)|whenever|altogether|at all)\b",
    # Remember that I'm allergic.
    r"^(?:remember|keep in mind|bear in mind|don't forget|do not forget|note|be aware|for the record)[,:]? (?:that )?"
    r"(?:i(?:'m|'ve|'d)?|we(?:'re)?|my|our|to always|to never|you (?:should|must)|when(?:ever)?) \w",
    r"\byou (?:must|shall|are to|need to|have to|should) (?:always|never|only|not) (?!worry|be (?:surprised|"
    r"afraid))\w|"
    r"\byou (?:mustn't|may not|are not (?:allowed|to)) \w",
    r"\bi (?:want|need|expect|would like|'d like) (?:you|it|this|all|every|each|your)\b.*\b(?:always|never|"
    r"every|whenever|each time|"
    r"only|from now on)\b|\bi'd like you to (?:always|never|only)\b",
    rf"\bi (?:want|expect|need) (?:all |every |each )?(?:of )?(?:your )(?:\w+ )?{_ANSWERS}\b",
    r"^(?:make|be) sure\b.*\b(?:always|never|only|every time|each time|whenever|ever)\b",
    r"^(?:call|address) me (?!when|if|back|at|on|in|tomorrow|later|as soon|about)\w|\bmy pronouns are\b",
    r"^(?:answer|reply|respond|write|talk|speak)(?: to me| me)? (?:only |always )?in (?:english|chinese|french|"
    r"german|spanish|"
    r"italian|portuguese|japanese|korean|russian|dutch|plain|simple|short|full|bullet|markdown)\b",
    r"^treat\b.*\b(?:confidential|secret|off[- ]limits|read-only)\b",
)

_ENGLISH_PREFERENCES: Final = (
    rf"\b(?:i|we) {_OFTEN}(?:prefer|favou?r)\b(?! the (?:first|second|third|last|other|former|latter)| (?:this|"
    rf"that|these|those)\b)",
    rf"\bi {_OFTEN}(?:like|love|enjoy|adore|appreciate|hate|dislike|detest|loathe|despise)\b{_AT_HAND}",
    r"\bi (?:can't|cannot|can not) (?:stand|bear|eat|drink|tolerate|afford)\b(?! (?:this|that|it)\b)",
    rf"\bi (?:don't|do not) (?:really |particularly |usually )?(?:like|enjoy|eat|drink|use|trust)\b{_AT_HAND}",
    r"\bi(?:'d| would) (?:much |far )?(?:rather|sooner|prefer)\b(?! (?:not say|the (?:first|second|third|last)|"
    r"this|that)\b)",
    r"\bmy (?:\w+ )?(?:preference|favou?rite|preferred|default|go-to|habit|principle|rule)s?\b(?! (?:is|was) "
    r"(?:the (?:first|second)|this|that))",
    r"\b(?:is|are) my (?:favou?rite|preferred|default|usual|go-to)\b",
    rf"\b(?:i|we) (?:always|usually|generally|typically|normally|mostly|tend to|try to|never|only|rarely)(?: "
    rf"just| only)? (?:{_HABITS})\b",
    r"\b(?:suits?|fits?) me\b|\bworks? (?:best|better|well) for me\b|\b(?:easier|better|best) for me\b",
    r"\bi (?:learn|understand|think|work|remember|concentrate|follow) (?:things )?(?:best|better|faster|most|"
    r"more easily)\b",
    r"\b(?:for me|to me|i think)\b.{0,60}\bmatters?\b|\bmatters? (?:more|most|a lot) to me\b|\bimportant to me\b",
    r"\bi (?:care (?:about|more|most|a lot|deeply)|value|prioriti[sz]e|insist on|opt for|lean (?:to|towards?)|"
    r"gravitate|"
    r"stick (?:to|with)|avoid|steer clear|go for)\b(?! (?:the|this|that)\b)",
    r"\bi(?:'m| am) (?:a |an |more of an? |not (?:really )?an? |very much an? )(?:\w+[ -]){0,3}person\b",
    r"\bi(?:'m| am) (?:a |an )?(?:strict |mostly |a strict )?(?:vegetarian|vegan|pescatarian|allergic|lactose|"
    r"gluten|intolerant|"
    r"colou?r-?blind|left-handed|dyslexic|diabetic|coeliac|celiac|kosher|halal)\b",
    r"\bi(?:'m| am) (?:not )?(?:a |that |really |very |very much |particularly |all that |too )*(?:(?:big |huge "
    r"|great )?fan of|"
    r"comfortable with|fond of|keen on|drawn to|partial to|in favou?r of|big on|picky about|used to \w+ing)\b",
    r"\b(?:i|we)(?:'m|'re| am| are)? (?:always )?(?:trying|try|want|aim|need|hope|'d like|would like)(?: hard)? "
    r"to (?:keep|avoid|stay|"
    r"stick to|stick with|minimi[sz]e|limit)\b(?! (?:up|in touch|going|track))|\bi'd like to (?:keep|avoid|"
    r"stick|stay|minimi[sz]e)\b",
    r"\bi want (?:it|everything|things|my \w+|our \w+) to (?:feel|look|stay|sound|remain)\b",
    r"\b(?:like|as|which|what) i prefer\b|\bmy preference for\b|\bi(?:'d| would) like (?:to (?:take|implement|"
    r"follow|use) )?an? (?:\w+ )?approach\b",
)

_CHINESE_DO = (
    "(?:请|要|用|别|不要|不许|不准|不得|不能|禁止|必须|务必|得|应该|一律|都|先|给|带|加|写|放|附|保持|控制|避免|"
    "改|换|标|注明|记得|"
    "说明|解释|回答|回复|列|叫|称|按|遵守|优先|尽量|少|多|只|提醒|告诉|推荐|使用|采用|省略|跳过|让我|等我|把|"
    "统一|默认|直接|千万)"
)
_NOT_A_PLAN = r"(?!我(?!让|叫|要你|请|问|说|发|提|给你|写|需要|的|跟你|一)|他|她|它|咱|离|就|会|还|再说|有机会)"

_CHINESE_INSTRUCTIONS: Final = (
    rf"(?:以后|今后|往后|从现在(?:起|开始)|从今(?:天|以后|往后)?(?:起|开始)?|从此|"
    rf"此后)[，,\s]*{_NOT_A_PLAN}[^。！？!?]{{0,40}}?{_CHINESE_DO}",
    r"(?:每次|每回|每当|每完成|每做完|每写完|每到|凡是|但凡|只要|无论|不管)[^。！？!?]{0,40}?(?:请|你|帮我|给我|"
    r"把|务必|别|不要|不能|记得|"
    r"先[^。]{1,20}再|先(?:问|给|让|跟|把)|就在|都(?:把|用|附|写|解释|得|先|给|加|带|列|标|要(?:写|带|附|加|用|"
    r"先|给|说|列|解释|注明|检查|确认|更新))|"
    r"必须|一律|附上|解释|注明|再找)",
    r"一律|千万(?:别|不要|不能|不可)|永远(?:不要|别|不许|不能|用|先|以)|绝对?不(?:要|许|准)|绝对(?:不能|别)|"
    r"不许|不准(?!确)|严禁|禁止",
    r"(?:别|不要|不用|不必)再(?!次|说|见)",
    r"务必(?:先|都|每|始终|总)|始终(?:用|保持|要|以|把|先)|总是(?:用|先|把|给我|要)|默认(?:用|使用|采用|以|按)|"
    r"(?:统一|统统)(?:用|使用|采用|按)",
    r"在我(?:说|喊|叫)[^，。]{1,8}(?:之前|以前|前)|除非我[^，。]{1,12}[，,]?(?:否则|不然)?|(?:没有|未经|"
    r"不经)我(?:的)?(?:同意|允许|许可|确认|批准|点头)",
    rf"(?:当?我(?:让|叫|要|请|问|说|发|提到|需要|跟你|找)[^，。！？!?]{{0,24}}(?:时候|时|的话)|(?:给我|帮我|"
    rf"为我|替我)[^，。！？!?]{{0,20}}(?:时候|时|的话))"
    rf"[，,\s]*[^。！？!?]{{0,6}}?{_CHINESE_DO}",
    rf"(?:^|[，。；\s])(?:在)?(?:涉及|关于|遇到|碰到|提到|谈到|说到|写|回答|推荐|讨论|解释|总结|翻译|安排|生成|"
    rf"修改|处理|执行|运行|展示|引用|做)"
    rf"[^，。！？!?]{{0,20}}(?:时候|时|的话|问题上?|操作|内容)[，,\s]*[^。！？!?]{{0,16}}?{_CHINESE_DO}",
    r"(?:不要|别|不能)[^，。！？!?]{0,20}(?:任何|一切|所有)|(?:任何|所有|一切|"
    r"全部)[^，。！？!?]{0,20}(?:都(?:要|得|用|不|必须|请)|不要|别|必须)",
    r"(?:你(?:写|给|发|做|生成|推荐|用)的|给我(?:看|写|发|推荐|用)?的|你的)[^，。！？!?]{0,16}?(?:都|一律|要|"
    r"不要|别|控制|尽量|必须|请|统一|四舍五入)",
    r"^[^，。]{0,6}(?:回答|回复|答案|答复|解释|讲解|讲题|总结|摘要|注释|代码|邮件)(?:时|的时候|里|中)?(?:请|要|"
    r"都|尽量|控制在|不要|别|保持|一律|简短|简洁|先|统一)(?!怎么)",
    r"(?:请)?(?<!还)(?<!不)(?:记住|记好|牢记|别忘了|记得)[，,：:]?\s*(?:我|我们|要|每次|以后|不要|别)(?!吗)",
    r"(?:推荐|挑|找|选|订)[^，。！？!?]{0,12}(?:只要|只能|只推荐|必须)|对[^，。]{1,8}保密",
    r"(?:这个|我们(?:的)?|本)(?:项目|仓库|团队|公司|部门|家)(?:里|中|内)?[^。！？!?]{0,20}(?:都用|一律|都要|"
    r"只用|不用|统一|规定)",
    r"(?:请)?(?:叫|称呼)我(?!一?声|过|去|来|起床)|(?:请)?(?:一直|都|只)用(?:中文|英文|英语|法语|日语|德语|"
    r"普通话|粤语|简体|繁体)(?:回答|回复|跟我)?|^用(?:中文|英文|英语|法语|日语|德语)(?:回答|回复)我",
)

_HOW_MUCH = (
    "(?:个人|自己|平时|一般|通常|一向|向来|从来|总是|总|都|还是|也|比较|更|最|"
    "特别|很|非常|挺|不太|不怎么|其实|真的|一直|不|是|就|只|一般都|在家|最近)*"
)
_CHINESE_PREFERENCES: Final = (
    rf"我(?:们)?{_HOW_MUCH}(?:喜欢|爱(?!人|情|好者|上)|偏好|偏爱|偏向|倾向|习惯|讨厌|受不了|反感|宁愿|宁可|看重|"
    rf"在意|注重|在乎|避免|追求|"
    r"吃素|过敏|信不过|信任|信得过|接受不了|推崇)(?!第|这|那|它|你|上面|刚才|的是|过|了)",
    r"我(?:们)?(?:平时|一般|通常|一向|从来|从|基本|尽量|总是|都|只|早就|就|也)*不(?:吃|喝|用|碰|坐|看|买|"
    r"想(?!明白|通|知道|起来|到|出)|想(?:要|用|看|再)|开会|住)(?!了|到|懂|完|过)",
    r"我(?:们)?(?:平时|一般|通常|一向|从来|总是|只|都)+(?:选|用|吃|喝|看|去|坐|买|读|走|穿|写|住|挑)(?!的是|过|了)",
    r"我是[^，。！？!?]{1,10}(?:型|派|控|党)(?:的人)?|我对[^，。！？!?]{1,12}过敏|我不太能|我不能(?:吃|喝|接受|碰)",
    r"对我来说[^。！？!?]{0,24}(?:更|最|比)[^。！？!?]{0,10}(?:重要|合适|要紧|方便|好)|(?:更|最|比较)?适合我|"
    r"我的(?:偏好|习惯|原则|口味|风格)",
    r"我(?:希望|想要?|想让|要|们希望|更?希望)[^，。！？!?]{0,12}(?:简单|简洁|轻量|安静|低调|干净|清爽|感觉|风格|"
    r"保持|尽量|省事|少一点)|我(?:希望|想要)(?:尽量|保持|一切|所有)",
    r"我在(?:哪|任何|所有|每)[^，。]{0,10}都(?:用|是)|(?:晚上|早上|中午|周末|平时|白天)我们?(?:都|一般|从|尽量|"
    r"基本)*(?:不|只)",
    r"我们?(?:尽量|一般|通常)(?:不|选|用|去|坐|吃|在|避免)",
)


class Cues:
    """The patterns of one language: what instructs, what states a preference, what makes either hold for once."""

    def __init__(
        self,
        instructions: tuple[str, ...],
        preferences: tuple[str, ...],
        once: str,
        lasting: str,
        condition: str,
        asks: str,
    ) -> None:
        self.instructions = tuple(re.compile(one, re.IGNORECASE) for one in instructions)
        self.preferences = tuple(re.compile(one, re.IGNORECASE) for one in preferences)
        self.once = re.compile(once, re.IGNORECASE)
        self.lasting = re.compile(lasting, re.IGNORECASE)
        self.condition = re.compile(condition, re.IGNORECASE)
        self.asks = re.compile(asks, re.IGNORECASE)


ENGLISH: Final = Cues(
    _ENGLISH_INSTRUCTIONS,
    _ENGLISH_PREFERENCES,
    once=r"\b(?:for now|this time|this once|just once|for once|for this (?:one|task|comparison|question|file|"
    r"email|case)|right now|"
    r"at the moment|for the moment|today|tonight|tomorrow|yet|this (?:one|afternoon|morning|evening|week))\b",
    lasting=rf"{_STANDING}|\b(?:always|never|ever)\b",
    condition=rf"\b(?:when(?:ever)?|if|any ?time|every time|each time) (?:i|you|we)\b[^,;.!?]*|\bbefore (?:you "
    rf")?\w+[^,;.!?]*"
    rf"|\bwhen it comes to [^,;.!?]*|^{_TOPIC}(?=[,:])|^(?:for|in|with|on) (?:any|all|every|"
    rf"each)(?:thing)?\b[^,;]*(?=,)",
    asks=r"(?:^|[,;] |\b(?:and|so|but) )(?:so |and |but |then )?(?:should|would|could|can|do|does|did|is|are|"
    r"was|were|will|what|which|how|why|who|"
    r"whether|where|when (?:should|do|does|is|can))\b[^,;]*$",
)
"""What is said in English."""

CHINESE: Final = Cues(
    _CHINESE_INSTRUCTIONS,
    _CHINESE_PREFERENCES,
    once=r"这次|这一次|这回|先别|先不要|先不|暂时|眼下|今天|今晚|目前|现在(?!起|开始)|那时|以前(?=我|的|他|每|"
    r"都|总|老)|过去|曾经|小时候",
    lasting=r"以后|今后|往后|从现在(?:起|开始)|从今|每次|每当|凡是|一律|永远|始终|总是",
    condition=r"(?:当?我(?:让|叫|要|请|问|说|发|提到|需要|跟你)|给我|帮我|为我|替我|涉及|关于|遇到|碰到|提到|"
    r"谈到|说到|凡是|只要|每次|每当|每完成|"
    r"写|回答|推荐|讨论|解释|总结|翻译|安排|做)[^，。！？!?；]{1,24}(?:时候|时|的话|操作|问题|，)|(?:凡是|只要|"
    r"每次|每当|每完成|涉及|以后|今后)[^，。！？!?；]{2,24}(?=，)",
    asks=r"(?:吗|呢|？|\?|是真的吗|对吗|对吧|是不是|能不能|怎么|什么)[？?]?$",
)
"""What is said in Chinese."""

MAY_INSTRUCT: Final = re.compile(
    r"\b(?:always|never|ever|from (?:now|here|today|this)|forward|henceforth|future|until|rule|default|time|"
    r"when|whenever|if|before|"
    r"after|without|don't|do not|for|in|all|every|any|each|your|stop|quit|avoid|no more|remember|mind|forget|"
    r"note|must|should|want|"
    r"need|expect|sure|call|address|pronouns|answer|reply|respond|treat|keep|prefer|favou?r|like|love|enjoy|"
    r"adore|appreciate|hate|"
    r"dislike|detest|loathe|despise|can't|cannot|rather|sooner|preference|favou?rite|usually|generally|"
    r"typically|normally|mostly|"
    r"tend|try|trying|only|rarely|suits?|fits?|works?|best|better|matters?|important|care|value|insist|opt|lean|"
    r"person|vegetarian|"
    r"vegan|allergic|fan|comfortable|fond|keen)\b|[一-鿿]",
    re.IGNORECASE,
)
"""Whether a text can hold an instruction at all: one pass over it, before it is split into sentences."""

QUOTED: Final = re.compile(
    r"\"[^\"\n]{2,600}\"|“[^”]{2,600}”|‘[^’\n]{12,600}’|「[^」]{2,600}」|『[^』]{2,600}』|"
    r"(?<![\w'])'[^'\n]{12,600}'(?!\w)|`[^`\n]{1,300}`"
)
"""The words of others, or words that are spoken about."""

FOREIGN_TEXT: Final = re.compile(
    r"(?i:\b(?:translate|proofread|rewrite|paraphrase|summari[sz]e|review|grade|says?|reads?|said|wrote|writes|"
    r"states?|following|below|"
    r"e?mail|letter|message|prompt|text|sentence|quote|transcript|article|readme|docs?|page|here (?:is|are)|"
    r"here's|this is|output|log)"
    r"\b(?![^:\n]{0,90}\b(?:my|rules?|preferences?|instructions? for you)\b)[^:.!?\n]{0,90}:)[ \t]*"
    r"|(?:翻译|翻成|译成|校对|改写|润色|总结|说|写道|写着|写的|如下|以下|下面|邮件|来信|原文|提示词|文字|日志|"
    r"这是|看看|打分|网页)(?![^：:\n]{0,20}我的)[^：:。！？\n]{0,24}[：:]"
)
"""What introduces a text that the speaker did not write: up to the end of the line, or of the turn."""

UNSTATED: Final = re.compile(
    r"\b(?:when|whenever|if|unless|until|once|how|what|why|where|whether|because|do|does|did|should|can|could|"
    r"would|might|may|time) $",
    re.IGNORECASE,
)
"""What stands before "I prefer" where no preference is stated."""

SESSION_ONLY: Final = re.compile(
    r"\b(?:in|for|during|throughout) (?:this|the rest of (?:this|the|our)) (?:conversation|chat|session|thread|"
    r"discussion)\b"
    r"|(?:这次|本次|这个|当前)(?:对话|会话|聊天)",
    re.IGNORECASE,
)
"""What binds an instruction to the session it was given in."""
