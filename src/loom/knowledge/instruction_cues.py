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
    "OF_OTHERS",
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
# Requests to an assistant, in a condition.
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
_PROJECT = (
    r"(?:project|repo(?:sitory)?|codebase|team|trip|client|customer|report|paper|course|class|app|site|website)"
)
_TOPIC = (
    rf"(?:(?:for|in|on|with) (?:the|our|my) (?:[\w'-]+ ){{1,3}}?{_PROJECT}|"
    r"(?:for|in|with|on|regarding|concerning|about|as for|during|inside) (?!the\b|this (?!project|repo|"
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
# Words after "I like" that refer to a particular thing.
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

# Words that do not begin a general instruction.
_DEFINITE = (
    r"(?:the|this|that|these|those|it|its|i|we|you|he|she|they|my|your|our|his|her|their|there|here|what|which|who|"
    r"how|why|"
    r"when|where|if|is|are|was|were|do|does|did|can|could|would|should|will|may|maybe|perhaps|some|someone|somebody|"
    r"nobody|"
    r"nothing|everyone|everybody|people|as|at|in|on|for|to|of|with|by|from|and|but|or|so|then|thanks|please|let|also|"
    r"one|"
    r"yes|no|not|now|today|might|definitely|sounds|funny|great|always|never|tomorrow|life|things|everything|"
    r"something|anything|developers|users|most|many|kids|"
    r"children)\b"
)
# Things of a kind: all of them, or in the plural and without an article.
_THINGS = (
    r"(?:(?:all|every|each|any) [\w'-]+(?: [\w'-]+){0,4}?|"
    r"[a-z][\w'-]*(?: [\w'-]+){0,2}?(?<=[a-z])s(?: (?:in|of|for|on|to|from) [\w'-]+(?: [\w'-]+)?)?)"
)
# A particular thing: a statement about it applies once.
_AT_THIS = (
    r"[^,;]*?\b(?:this (?!project|repo|codebase|team|house|company)|that\b|these\b|those\b|here\b|it\b|now\b|above\b|"
    r"below\b|"
    r"the (?:first|second|third|last|next|other|one|same|following|new|old|current|attached)\b|(?:page|line|row|step|"
    r"section|chapter|column) \d)"
)
# Words after a condition that do not begin an instruction.
_NO_ORDER = (
    r"(?:i|it|we|you|he|she|they|the|this|that|these|those|there|what|how|why|which|who|is|are|was|were|can|could|"
    r"would|"
    r"should|do|does|did|will|nothing|everything|something|someone|somebody|nobody|my|your|our|their|his|her|an?|all|"
    r"some|people|users|feel|let me|just let|then i|no|yes|maybe|in|on|at|for|to|of|as|and|but|or|so)\b"
)

# A rule that is announced as one: "House rule: no deploys on Fridays." Rules of games or of the world ("rule of
# thumb", "the rules of chess") are not rules of the user.
_OURS = (
    r"(?:house|home|team|ground|project|office|company|family|lab|shop|kitchen|repo|codebase|workshop|studio|class|"
    r"club|crew|standing|permanent|internal|hard|strict|style|coding|writing|review|naming|release|formatting)"
)
_COLON = r"(?:\s?[:–—]| -)"
_ANNOUNCED = (
    rf"^(?:(?:the|our|my|your|a|an|one|another|new|first|second|third|last|and|also|more) )*(?:{_OURS} )+"
    r"(?:rules?|polic(?:y|ies)|orders?|conventions?|guidelines?|instructions?)(?: (?:number |no\. ?)?(?:\d+|one|two|"
    rf"three))?(?:{_COLON}|,? (?:is|are)(?: that|:)?)\s*"
    r"(?!(?:not|that|fine|ok|good|clear)\b|(?:a|the|an) \w+\.?$)\S.{3}",
    rf"^(?:(?:the|our|my|a|one|another|new|first|second|last|and|also|more) )*rule{_COLON}\s*\S.{{3}}",
    rf"^(?:our|my|new) (?:\w+ )?(?:policy|convention|guideline){_COLON}\s*\S.{{3}}",
)
_OURS_CHINESE = (
    "(?:(?:我们?|咱们?)(?:家|组|团队|公司|店|部门|实验室)?里?的?|本(?:组|店|司|项目)的?|家里的?|组里的?|团队的?|项目的?|"
    "公司的?|内部的?|新的?|一条)"
)
_CHINESE_ANNOUNCED = (
    rf"^(?:{_OURS_CHINESE}|还有)*(?:家规|规矩|规定|约定|守则|铁律|纪律)(?:之?[一二三四\d])?\s?(?:[：:]|——)\s*\S.{{2}}",
    rf"^{_OURS_CHINESE}+(?:规则|规范|家规|规矩|规定|约定|守则|铁律|纪律|政策)(?:之?[一二三四\d])?\s?"
    r"(?:[：:]|——|(?:就)?是[：:，]?)\s*\S.{2}",
)

_ENGLISH_INSTRUCTIONS: Final = (
    *_ANNOUNCED,
    # Always include the tests. / ..., so never suggest nuts.
    r"^(?:always|never|under no circumstances)(?: ever)? (?!been\b|mind\b|again\b|had\b|a\b|an\b|the\b|to\b|"
    r"in\b|on\b|at\b|by\b|with\b|from\b|"
    r"really\b|thought\b|seen\b|heard\b|in my\b|would\b|too\b|been\b|fails?\b|works?\b|happens?\b|"
    r"mind\b)[a-z]+(?<!ed)\b",
    rf"(?:[,;:—–] |\b(?:and|so|but|please|then|therefore) )(?:please )?(?:always|never) (?:ever )?(?:{_VERBS})\b",
    rf"^(?:{_VERBS})\b.{{2,120}}\b(?:always(?=\s*(?:[.!,;]|$))|at all times|every time|each time|whenever)\b"
    r"(?! (?:been|was|wanted))",
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
    rf"^{_DO}.{{0,80}}\b(?:anything|everything|whatever|any \w+|every \w+|all(?: the)? \w+) (?:that )?(?:you|i|we) "
    r"(?:write|produce|create|generate|send|give|suggest|recommend|draft|make|propose|build|ask|say|quote|mention|"
    r"cite|"
    r"use|share|show|add|put|answer|touch|change|print|report|plan|book|buy|cook|run|tell|explain)\b",
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

_ENGLISH_GENERAL: Final = (
    # Commit messages must follow a form. Every migration needs a rollback.
    rf"^(?!{_DEFINITE}){_THINGS} (?:must|should|ha(?:ve|s) to|needs?(?: to)?|(?:is|are) to|shall|may only) "
    r"(?!i\b|we\b|you\b|have been\b|feel\b|look\b|seem\b)(?<!must )\w",
    rf"^(?!{_DEFINITE}){_THINGS} must (?!have\b|be (?:an?|the|so|very)\b|feel\b|look\b|seem\b)\w",
    rf"^(?!{_DEFINITE}){_THINGS} (?:never|only|always) (?:go|belong|contain|include|appear|exceed|leave|enter|start|"
    rf"end|"
    r"mention|carry|use|get|come)\b",
    # Send me listings only if they allow dogs. Whatever you draft, end it with the imprint. You may ..., but ...
    rf"^(?:{_VERBS})\b(?!{_AT_THIS})[^,;]* only (?:if|when|where)\b",
    rf"^(?:whatever|wherever|whichever|however) you \w+[^,;]*, (?!{_NO_ORDER})[a-z]+\b",
    rf"^(?:{_VERBS})\b(?!{_AT_THIS})[^,;]* (?:when|whenever|if) you (?!(?:'re|are|have|get|can|see|find|want|like|"
    rf"need|"
    r"think|know|come|leave|arrive|finish|wish)\b)\w+",
    r"^you (?:may|can|are (?:allowed|free) to) \w.*\bbut (?:\w+ing\b|not\b|never\b|only\b|always\b|leave\b|ask\b|"
    r"do not\b|"
    r"don't\b)",
    r"\b(?:with|towards?) (?:our |my |the )?\w+s,? we (?:always |never |only )?(?:stay|use|keep|write|speak|address|"
    r"call|"
    r"offer|avoid|sign|say|don't|do not)\b",
    rf"^(?:if|when) (?!(?:i|you|we|it|this|that)\b)[^,;]*\b(?:an?|any|every)\b[^,;]*, (?:then |"
    rf"please )?(?!{_NO_ORDER})"
    r"[a-z]+\b",
    rf"^(?!{_DEFINITE}){_THINGS} (?:go(?:es)?|belongs?|lives?) (?:in|into|under|next to|to) .*\b(?:never|always|"
    rf"not)\b",
    # Prefer composition over inheritance. Use pnpm, not npm.
    rf"^(?:pick|choose|use|take|favou?r)\b(?!{_AT_THIS})[^,;]* over \w",
    r"^prefer (?!not\b|the (?:first|second|other)\b)\w",
    rf"^(?:only )?(?:{_VERBS}|query|ping|message|contact|reach)\b(?!{_AT_THIS}).*?(?:,? not | and not | but not |"
    rf" never | rather than |"
    r" instead of )(?!now\b|yet\b|sure\b)\w",
    rf"^(?:only )?(?:{_VERBS}|query|ping|message|page)\b(?!{_AT_THIS}).*\bin (?:this|our|my) (?:repo(?:sitory)?|"
    rf"project|"
    r"codebase|team|company|house|kitchen|class|shop)\b",
    # Run the linter before every commit. Keep pull requests under 400 lines.
    rf"^(?:{_VERBS})\b(?!{_AT_THIS}).*\b(?:before|after|with|for|on|in|at) (?:every|each|any|all)\b(?! the\b)",
    rf"^(?:{_VERBS})\b(?!{_AT_THIS}).{{2,60}}\bbefore (?:you (?:modify|change|edit|touch|delete|run|push|deploy|send|"
    r"install|book|buy|commit|merge|overwrite|upgrade)|(?:modify|chang|edit|delet|runn|push|deploy|send|install|book|"
    r"buy|"
    r"committ|merg)ing) (?!it\b|this\b|that\b|the\b)",
    r"^keep (?!going\b|it\b|this\b|that\b|the\b|me\b|up\b|calm\b|in mind\b|trying\b|an eye\b|track\b)(?:all |my |"
    r"your )?"
    r"[a-z-]+(?: [a-z-]+)? (?:under|below|within|at|to|short|brief|concise|simple|small|formal|informal)\b",
    r"^(?:report|format|express|round|state|spell|quote|label|name|abbreviate) (?:all |every |any )?(?!it\b|this\b|"
    r"that\b|"
    r"me\b)[a-z-]+s (?:with|in|as|to|by|using|from)\b",
    # Don't use print for debugging. No emojis in commit messages.
    rf"^(?:don't|do not) (?:{_VERBS}|query|ping|message|page|"
    rf"sugarcoat)\b(?<! be)(?<! have)(?<! get)(?<! try)(?! (?:it|this|that|the|him|her|them|me the|"
    rf"these|"
    rf"those|your|too|so|just|yet|my|worry|forget|mind)\b)(?!{_AT_THIS}) \w",
    r"^no (?!problem|worr|idea|thank|doubt|one\b|way\b|need\b|luck\b|matter\b|more questions|longer\b|such\b|it\b|"
    r"i\b|we\b|"
    r"you\b|that\b|not\b|rush\b|hurry\b|clue\b|kidding\b|wonder\b|big deal)[a-z-]+(?: [a-z-]+){0,3}? (?:in|on|"
    r"for(?! me\b)|before|after|without|during|at|with)\b",
    r"\b(?:refrain from|steer clear of|stay away from) \w",
    # When a test is flaky, quarantine it. If a deploy fails, page me.
    r"^(?:when|if|once|after|before) (?:an? |any |some(?:one|thing)?\b ?|there(?:'s| is| are) |\w+ing an? |"
    r"\w+ing any )"
    rf"[^;.!?]*?, (?:then |please |always |never )?(?!{_NO_ORDER})[a-z]+\b",
    # I want every pull request to have a description. You should ask before adding a dependency.
    r"\bi (?:want|need|expect|would like|'d like) (?:every|all|each|any)\b(?! (?:of )?(?:the|this|these|that)\b)",
    r"\bi (?:don't|do not|never) want (?:any|you to|to see any|to get any|to be \w+ed)\b(?! (?:more )?(?:help|"
    r"of (?:this|"
    r"that)))",
    r"^you (?:should|must|need to|have to|are expected to) .*\b(?:before|whenever|unless|every|each|without)\b",
    # We use tabs here. Our team deploys on Tuesdays only. Let's stick with snake_case.
    rf"^(?:we|our (?:team|company|repo|project|shop|family|office|lab)) (?:always |only |all |never )?(?:{_HABITS}|"
    rf"deploys|"
    r"uses|writes|tests|meets|ships|follow|follows|ship|release|releases|log)\b.*\b(?:here|only|in this (?:repo|"
    r"project|"
    r"codebase|house|team)|by convention)\b",
    r"^let's (?:stick (?:to|with)|always|never|only|agree|keep|use|write)\b.*\b(?:all|every|each|always|from now|"
    r"never|"
    r"going forward|stick (?:to|with)|only)\b",
)
_ENGLISH_PREFERENCES: Final = (
    r"\b(?:is|are) (?:(?:very much|more|really) )?(?:my (?:thing|jam|cup of tea|style)|up my (?:street|alley))\b"
    r"|\b(?:is|are)(?:n't| not)(?: really)? (?:my (?:thing|jam|cup of tea|style)|for me)\b",
    r"\b(?:easier|better|gentler|harder|nicer) (?:on|for) (?:me|my \w+)\b|\bi get (?:more|most|a lot|"
    r"little) out of\b",
    r"\bi (?:don't|do not)(?: really| much)? care (?:for|about)\b(?! (?:this|that|it)\b)|\bi (?:usually |mostly |"
    r"tend to )?"
    r"reach for\b(?! (?:the|my|this|that)\b)",
    r"\b(?:is|are) (?:when|where|how) i (?:get|work|do|think|learn|like|concentrate|sleep|read|write)\b",
    r"^(?:[a-z-]+ ){1,4}over (?:[a-z-]+ ?){1,4}, (?:any day|always|every time|for me)\b",
    r"\bi (?:can't|cannot|can not) have (?!it\b|that\b|this\b|the\b|you\b)\w|\bi'm more of an? \w|"
    r"\bi am more of an? \w",
    r"\bi(?:'d| would) (?:really |much )?appreciate (?!it if|if you could|your help|any help|some help|help)"
    r".*\b(?:every|each|always|when(?:ever)?|in your|more|less|fewer|shorter|longer)\b",
    r"\bi(?:'d| would) (?:really |much )?(?:prefer|like|love|appreciate) (?:it )?(?:if|when) you (?:always |never )?"
    r"(?:kept|keep|used|use|avoided|avoid|stopped|stop|gave|give|wrote|write|showed|show|asked|ask|explained|explain|"
    r"answered|answer|called|call|skipped|skip|included|include)\b(?! (?:this|that|it|the)\b)",
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
    *_CHINESE_ANNOUNCED,
    rf"(?:以后|今后|往后|从现在(?:起|开始)|从今(?:天|以后|往后)?(?:起|开始)?|从此|"
    rf"此后)[，,\s]*{_NOT_A_PLAN}[^。！？!?]{{0,40}}?{_CHINESE_DO}",
    r"(?<!我)(?<!我们)(?:每次|每回|每当|每完成|每做完|每写完|每到|凡是|但凡|只要|无论|不管)[^。！？!?]{0,40}?(?:请|"
    r"你|帮我|给我|"
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

_CHINESE_WORKS = (
    "(?:图表|代码|函数|接口|变量|注释|邮件|报告|文档|表格|金额|日期|时间|数字|价格|回答|回复|答案|图片|标题|文件名?|"
    "类名|提交|日志|"
    "单位|坐标轴|例子|步骤|菜谱|行程|总结|摘要|消息|链接|测试|脚本|命名|百分比|温度|距离|周报|日报|表头|公式|货币|"
    "称呼|语气|字号|"
    "缩进|分支|密码|备份|简历|方案|计划|清单|数据|配置|SQL|sql|API|PR)"
)
_CHINESE_WORK_VERBS = (
    "(?:讲|教|查|改|画|订|买|发|选|贴|做|解|算|列|写|回答|推荐|讨论|解释|总结|翻译|安排|生成|修改|处理|执行|运行|"
    "展示|引用|部署|提交|"
    "合并|发布|上线|重构|评审|分析|介绍|说|提到|涉及|遇到|碰到|给|帮|跟|规划|预订|点|挑|汇报|排查|删除|调试)"
)
_CHINESE_GENERAL: Final = (
    rf"^(?:所有|每个|每份)?{_CHINESE_WORKS}[^，。！？!?我他她这那]{{0,4}}(?:得|应该|需要|必须)(?:写|是|用|带|有|保持|"
    rf"放|包含|标|加)",
    rf"^{_CHINESE_WORKS}(?:都)?写(?:成|全|明|上|清楚|中文|英文|大写|小写|简体|繁体)",
    r"^[^，。！？!?我他她这那]{0,8}只(?:推|给我|选|看|发|推荐|考虑|接受|订|用|查|读)(?!是|有|"
    r"了)[^，。！？!?这那]{2,16}[。！，]",
    r"^(?:给|跟|对|和|与|向)[^，。！？!?我这那]{1,8}(?:讲|说|写|聊|发|解释|汇报|沟通|"
    r"介绍)[^，。！？!?这那]{0,8}(?:要|得|别|不要|请用|直接|先|必须)"
    r"(?!吗)",
    r"^(?:每)?(?:周|星期|礼拜)[一二三四五六日天末][^，。！？!?]{0,6}(?:别|不要|不许)",
    r"^[^，。！？!?我他她它这那你]{2,10}(?:的时候|时)[，,]?(?:请|要|得|先(?!别)|别|不要|一律|务必|尽量|必须)",
    # 部署之前一定要先跑测试。改代码前先说思路。
    rf"^(?:在|请)?{_CHINESE_WORK_VERBS}[^，。！？!?我]{{1,14}}(?:之前|前)[，,]?(?:请|都|一定|必须|务必|要|得|"
    rf"你)*(?:要|得|先)",
    r"(?:没有?|未经|不经)我(?:的)?(?:同意|确认|允许|许可|批准|点头)",
    r"(?:保留|精确到|四舍五入到?)[^，。！？!?]{0,6}(?:小数|位|分|整数|个位)(?!是|吗|呢)",
    rf"^(?:所有的?|全部的?|每个|每条|每份|"
    rf"任何)?[^，。！？!?我他她它这那]{{0,8}}{_CHINESE_WORKS}[^，。！？!?我他她它这那]{{0,8}}"
    r"(?:都|一律|统一|必须|一定|务必|永远)(?:要|得|用|写|带|加|标|附|放|保|按|以|先|不|别|有|是|发|存)(?!通过|等)",
    rf"^(?:所有|每个)?{_CHINESE_WORKS}名?(?:里|中|时|前|后)?(?:的[^，。]{{1,6}})?(?:请|要)?(?:用|写成|按照?|以|采用|"
    rf"使用|保持)"
    r"(?!什么|哪|不了|得)[^，。！？!?]{1,20}(?:。|！|$|，)",
    rf"(?:^|[，。；\s])(?:在)?[^，。！？!?我他她这那]{{0,6}}?{_CHINESE_WORK_VERBS}[^，。！？!?这那]{{1,14}}(?:的时候|"
    rf"时候|时|的话)[，,]\s*"
    rf"(?:请|你|就|都)?(?:{_CHINESE_DO}|一步一步|分步|逐步|顺便|注意)",
    r"^(?:如果|要是)?(?:遇到|碰到|出现|发现)[^，。！？!?这那]{1,12}[，,](?:请|就|都|你)?(?:先|别|不要|一律|直接|马上|"
    r"要|必须|得|停)",
    r"^默认(?:的)?[^，。！？!?]{1,8}(?:是|为|用|设为)(?!什么|多少|哪)",
    r"我(?:希望|想要|想让|要求)(?:你|所有|每次|回答|回复|解释|答案|代码|报告|邮件|总结|以后)(?!帮|给我(?:看|找|发))",
    r"^(?:请|麻烦)?(?:别|不要|勿|禁止)(?:用|使用|加|写|放|出现|提|给我发|叫我|推荐|安排|打|夹|带|省略|编|猜|动|碰|改)"
    r"(?!这|那|它|了$)[^，。！？!?这那]{1,20}[。！!]?$",
    r"^(?:晚上|早上|中午|周末|工作日|节假日|[^，。]{1,8}点(?:以?后|之?前))[^，。！？!?]{0,6}(?:别|不要|不许)",
)

_HOW_MUCH = (
    "(?:个人|自己|平时|一般|通常|一向|向来|从来|总是|总|都|还是|也|比较|更|最|"
    "特别|很|非常|挺|不太|不怎么|其实|真的|一直|不|是|就|只|一般都|在家|最近)*"
)
_CHINESE_PREFERENCES: Final = (
    r"(?:合|对)我(?:的)?(?:胃口|口味|心意|意)|我(?:看着|用着|穿着|吃着|听着|坐着)(?:更|最|比较|才)?(?:舒服|顺手|顺眼|"
    r"习惯)",
    r"我(?:最|很|特别|挺)烦(?!的是|你|了)|我(?:更|最)(?:容易|愿意)|比起[^，。！？!?]{1,14}[，,]?我(?:更|还是|宁)",
    r"能[^，。！？!?]{1,8}我(?:就|都)不|我[^，。！？!?]{0,6}(?:效率|状态|精神|脑子)(?:最|更)(?:高|好|清楚)",
    r"我(?:基本|一般|通常|平时|大多|多半)(?:都|上|就)+(?:上|选|用|吃|喝|看|去|坐|买|走|挑|点)(?!的是|过|了)",
    rf"我(?:们)?{_HOW_MUCH}(?:喜欢|爱(?!人|情|好者|上)|偏好|偏爱|偏向|倾向|习惯|讨厌|受不了|反感|宁愿|宁可|看重|"
    rf"更?愿意|"
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
    """The patterns of one language: for instructions, for preferences, and for those that apply only once."""

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
    (*_ENGLISH_INSTRUCTIONS, *_ENGLISH_GENERAL),
    _ENGLISH_PREFERENCES,
    once=r"\b(?:for now|(?:so |and |then )(?:please )?(?:check|run|fix|do|send|look)\b[^.]*\bnow|"
    r"this time|this once|just once|for once|for this (?:one|task|comparison|question|file|"
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
"""The phrases in English."""

CHINESE: Final = Cues(
    (*_CHINESE_INSTRUCTIONS, *_CHINESE_GENERAL),
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
"""The phrases in Chinese."""

QUOTED: Final = re.compile(
    r"\"[^\"\n]{2,600}\"|“[^”]{2,600}”|‘[^’\n]{12,600}’|「[^」]{2,600}」|『[^』]{2,600}』|"
    r"(?<![\w'])'[^'\n]{12,600}'(?!\w)|`[^`\n]{1,300}`"
)
"""Quoted words: of others, or as the subject of the sentence."""

FOREIGN_TEXT: Final = re.compile(
    r"(?i:\b(?:translate|proofread|rewrite|paraphrase|summari[sz]e|review|grade|says?|reads?|said|wrote|writes|"
    r"states?|following|below|"
    r"e?mail|letter|message|prompt|text|sentence|quote|transcript|article|readme|docs?|page|here (?:is|are)|"
    r"here's|this is|output|log)"
    r"\b(?![^:\n]{0,90}\b(?:my|rules?|preferences?|instructions? for you)\b)[^:.!?\n]{0,90}:)[ \t]*"
    r"|(?:翻译|翻成|译成|校对|改写|润色|总结|说|写道|写着|写的|如下|以下|下面|邮件|来信|原文|提示词|文字|日志|"
    r"这是|看看|打分|网页)(?![^：:\n]{0,20}我的)[^：:。！？\n]{0,24}[：:]"
)
"""The introduction of a text that the speaker did not write; the text reaches to the end of the line or of the
turn."""

OF_OTHERS: Final = re.compile(
    r"^(?!.*\byou (?:must|should)\b)(?:write|generate|create|draft|compose|make|give me|come up with|think of|"
    r"implement|add|"
    r"build|fix|find|explain|tell me|show me) (?:me )?(?:an?|the|some|why|how|what) .*\b(?:that|which|who|where|"
    r"telling|tells|"
    r"saying|so that|why|always|never)\b(?!.*\b(?:whenever|from now on|every time|each time)\b)"
    r"|\b(?:says?|said|told (?:me|us)|according to|claims?|states?|reads?|insists?|the (?:docs?|spec|manual|policy|"
    r"readme|"
    r"guide|article|book|law))\b(?!.*\b(?:so|please)\b)"
    r"|(?:写|生成|拟|起草|编|起)[^，。：:]{0,8}(?:提示词|规则|文案|故事|标语|口号|脚本|通知|公告|段子|作文)"
    r"|(?:文档|规范|合同|公告|他|她|他们|老板|同事|网上|书上|手册|说明书|医生|老师|规定)(?:里|上|中)?(?:说|写着?|"
    r"规定|要求|提到|讲)",
    re.IGNORECASE,
)
"""A sentence that reports the words of others, or asks for a text or a program with such words."""

UNSTATED: Final = re.compile(
    r"\b(?:when|whenever|if|unless|until|once|how|what|why|where|whether|because|do|does|did|should|can|could|"
    r"would|might|may|time) $",
    re.IGNORECASE,
)
"""Words before "I prefer" if no preference is stated."""

SESSION_ONLY: Final = re.compile(
    r"\b(?:in|for|during|throughout) (?:this|the rest of (?:this|the|our)) (?:conversation|chat|session|thread|"
    r"discussion)\b"
    r"|(?:这次|本次|这个|当前)(?:对话|会话|聊天)",
    re.IGNORECASE,
)
"""Words that limit an instruction to the session in which it was given."""
