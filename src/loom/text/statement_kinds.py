"""The kind of a clause (a fix, a decision, a question, small talk...) and the weight of each kind.

The cues are data, for English and Chinese. Forms that decide alone (a question, a supposition, a request) are tested
first, then rules in order. Pure functions of the text, linear in its length, without a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, lru_cache
from operator import add
from types import MappingProxyType
from typing import Final, NamedTuple

from loom.text.date_phrases import DATE_CHARACTERS, DATE_CHINESE, DATE_ENGLISH, DATE_WORDS, MONTH, WEEKDAY
from loom.text.numerals import CHINESE_NUMERALS
from loom.text.scripts import HAN, has_han
from loom.text.words import word_set

__all__ = ["UNASSERTED", "WEIGHTS", "StatementKind", "is_question", "judge_clause", "without_opening"]


class StatementKind(StrEnum):
    FIX = "fix"
    ERROR = "error"
    CHANGE = "change"
    TEST = "test"
    DECISION = "decision"
    REASON = "reason"
    PREFERENCE = "preference"
    IDENTITY = "identity"
    PLACE = "place"
    EVENT = "event"
    NUMBER = "number"
    TOOL = "tool"
    API = "api"
    PRACTICE = "practice"
    STATE = "state"
    PLAN = "plan"
    THOUGHT = "thought"
    HYPOTHESIS = "hypothesis"
    REQUEST = "request"
    QUESTION = "question"
    SMALL_TALK = "small_talk"
    CODE = "code"


WEIGHTS: Final[Mapping[StatementKind, float]] = MappingProxyType(
    {
        StatementKind.FIX: 1.0,
        StatementKind.ERROR: 0.8,
        StatementKind.CHANGE: 0.8,
        StatementKind.TEST: 0.7,
        StatementKind.DECISION: 0.6,
        StatementKind.REASON: 0.5,
        StatementKind.PREFERENCE: 0.5,
        StatementKind.IDENTITY: 0.5,
        StatementKind.PLACE: 0.5,
        StatementKind.EVENT: 0.5,
        StatementKind.NUMBER: 0.6,
        StatementKind.TOOL: 0.5,
        StatementKind.API: 0.5,
        StatementKind.PRACTICE: 0.5,
        StatementKind.STATE: 0.5,
        StatementKind.PLAN: 0.5,
        StatementKind.THOUGHT: 0.2,
        StatementKind.HYPOTHESIS: 0.2,
        StatementKind.REQUEST: 0.2,
        StatementKind.QUESTION: 0.2,
        StatementKind.CODE: 0.2,
        StatementKind.SMALL_TALK: 0.0,
    }
)
"""The weight of a statement by its kind: the scores of the attention prompt (10, 8, 7, 6, 5, 2) divided by ten.

An error is a part of the chain problem, solution, result and is kept with it; a number weighs as much as a decision.
Lasting statements (identity, tastes, place and time, rules, interfaces) weigh as much as a state: they are kept as
facts, while a summary tells events. Small talk weighs nothing.
"""

UNASSERTED: Final = frozenset(
    {
        StatementKind.THOUGHT,
        StatementKind.HYPOTHESIS,
        StatementKind.REQUEST,
        StatementKind.QUESTION,
        StatementKind.SMALL_TALK,
        StatementKind.CODE,
    }
)
"""The kinds that assert nothing: questions, suppositions, small talk and code."""


# Words that begin a sentence without meaning. They are removed before the rest is judged.
_OPENING = re.compile(
    r"\s*(?:(?:oh|ah|hey|hi|hello|well|so|okay|ok|yes|yeah|yep|yup|nope|nah|haha+|lol|hmm+|hm|ugh|phew|aww+|"
    r"anyway|also|and|but|"
    r"actually|honestly|basically|got it|by the way|btw|fyi|for the record|one more thing|to be honest|to be "
    r"clear|i mean|you know|"
    r"in fact|as i said|good news|bad news|on the bright side|guess what|believe it or not|please note)(?![\w'’])"
    r"(?:\s*[,.!:;–—-]+\s*|\s+|$)"
    # These may be a part of the statement ("next week", "no museums"): they are an opening only before a pause.
    r"|(?:no|sure|right|great|good|cool|nice|awesome|perfect|wow|alright|then|thanks|thank you|sorry|indeed|"
    r"exactly|agreed|"
    r"understood|noted|of course|fine|true|finally|first|second|next|update|done|remember|same|lovely|"
    r"wonderful)(?![\w'’])"
    r"(?:\s*[,.!:;–—]+\s*|$)"
    r"|(?:好的?|嗯+|哦+|噢|啊|哈+|行|对了?|是的?|是啊|没错|没问题|不错|收到|明白|了解|可以|嗨|喂|那个|那么?|"
    r"所以说|其实|话说|"
    r"顺便说一下|另外|还有|然后|首先|其次|最后一点|补充一下|更新一下|说一下|先说|谢谢|抱歉|不好意思|太棒了|太好了|"
    r"真的吗|恭喜)"
    r"(?:[，,。！!～~、：:；;]+\s*|\s+|$))",
    re.IGNORECASE,
)


def without_opening(text: str) -> str:
    """Return the text without its opening words ("Oh, by the way,", 好的，另外，)."""
    start = 0
    for _ in range(4):
        match = _OPENING.match(text, start)
        if match is None or match.end() == start:
            break
        start = match.end()
    return text[start:] if start else text


_Rule = tuple[StatementKind, str, str | None]
"""A kind, its cues, and a pattern or None. A clause must contain a cue and match the pattern."""


_K = StatementKind
_NAME: Final = (
    r"(?!(?-i:It|This|That|There|They|These|Those|The|What|Which|And|But|So|If|When|Our|My|Your|His|Her|Their|"
    r"Being|Here|Some|"
    r"Watching|Things|Time|Always|Never|Moments)\b)[A-Z][a-z]+"
)
_SUBJECT: Final = rf"(?:we|i|they|he|she|you all|the team|everyone|management|{_NAME}(?: and (?:i|{_NAME}))?)"
_HAVE: Final = r"(?:'ve|’ve|'s| have| has| had)?"
_ADVERBS: Final = (
    r"(?: (?:also|just|finally|already|now|all|both|always|usually|normally|generally|mostly|only|never|really|still|"
    r"absolutely|actually|recently|eventually|definitely|simply|personally|currently|ultimately|have|been|since|"
    r"then|quickly))*"
)
_KIN: Final = (
    "(?:sister|brother|wife|husband|partner|girlfriend|boyfriend|mother|father|mum|mom|dad|son|daughter|kids?|"
    "children|"
    "twins?|cousin|aunt|uncle|grandmother|grandfather|grandma|grandpa|niece|nephew|fiancée?|boss|manager|colleague|"
    "roommate|flatmate|neighbou?r|friend|dog|cat|puppy|supervisor|advisor|professor|landlord|parents|in-laws|team "
    "lead)"
)
_WORK_VERB: Final = (
    "(?:commit|push|merge|use|run|delete|edit|touch|store|share|deploy|log|hardcode|hard-code|add|install|send|"
    "put|write|upload|"
    "download|restart|change|rename|expose|leave|skip|release|ship|rebase|squash|mix|eat|drink|drive|park|open|"
    "forget to|forget the)"
)
_JOB: Final = (
    r"(?:\w+(?:er|or|ist|ian|eer|ant|ent|yst|tect|smith)|nurse|chef|cook|coach|pilot|judge|ceo|cto|vegan|"
    r"vegetarian|widow|"
    r"student|intern|freelanc\w+|mathematician|dad|mum|mom|father|mother|parent|native|citizen|dba|sre|phd|lead)"
)
# The first rule that matches decides.
_ENGLISH: Final[tuple[_Rule, ...]] = (
    (
        _K.TEST,
        "passed pass passes passing failed green tests suite coverage benchmark benchmarks ci build",
        r"\b\d+(?:,\d{3})* (?:\w+ )?(?:tests? )?(?:passed|failed|passing|failing|green)\b|\btests? (?:all |now |"
        r"are |is )*(?:pass|passed|passes|passing|"
        r"green|failed|fails?|failing)\b|\b(?:everything|all|suite|build|ci|pipeline|"
        r"benchmark)\b.{0,30}\b(?:pass(?:es|ed)?|green)\b"
        r"|\bcoverage (?:is|went|rose|fell|dropped)\b.{0,20}\d|\bci is (?:red|green)",
    ),
    (
        _K.FIX,
        "fixed fixes fix solved solves resolved resolves patched repaired workaround mended recovered restored "
        "helped "
        "works worked rolled reverted cured solution remedy freed replaced renewed restarted restarting again "
        "cleared",
        r"\b(?:fixed|fixes|solved|solves|resolved|resolves|patched|repaired|mended|cured|recovered|restored)\b(?! "
        r"(?:price|rate|term|income|date|size|width))"
        r"|\b(?:the |a |my |our )?(?:fix|workaround|solution|remedy)(?: for \w.{0,60}?)? (?:is|was|:)"
        r"|\b(?:work(?:s|ed|ing)|runs?|fine|back up|up)(?: \w+)? (?:now|again|fine)\b|\bnow (?:it |everything "
        r")?(?:works|runs)\b"
        r"|\brolled (?:it )?back\b|\breverted\b|\bworked around\b|\bfreed (?:up )?\d|\b(?:that|which|it|ing \w+) "
        r"(?:did the trick|helped)\b"
        r"|\b(?:replaced|renewed|restarted|cleared) (?:the|my|our|it)\b.{0,60}\b(?:work|fine|gone|ok|recover)",
    ),
    (
        _K.FIX,
        "went disappeared gone trick",
        r"\b(?:error|problem|bug|issue|crash(?:es)?|warning|pain|leak|noise)\b.{0,30}\b(?:went away|disappeared|"
        r"is gone|are gone)\b|\bdid the trick\b",
    ),
    (
        _K.API,
        "endpoint api get post put delete patch returns accepts takes header payload parameter parameters param "
        "field "
        "fields webhook signature function method schema response request argument arguments json",
        r"\b(?:GET|POST|PUT|DELETE|PATCH|HEAD) +`?/[\w{}/.:-]+|(?<![\w/])/[a-z][\w{}/.-]*`? (?:endpoint|route|"
        r"returns?|takes|accepts|gives|needs|expects|requires)\b"
        r"|\b(?:endpoint|api|webhook|function|method|route|request|response|payload|call)\b.{0,40}\b(?:returns?|"
        r"accepts?|takes?|expects?|requires?|"
        r"needs|contains|carries)\b.{0,80}|`?\w+\([^()]{0,80}\)`? (?:returns?|takes|accepts|raises|gives|expects)\b"
        r"|\b(?:header|field|parameter|param|argument)s? (?:is|are|must|called|named|`|defaults?)\b",
    ),
    (
        _K.ERROR,
        "error errors exception failed fails failing failure crash crashed crashes crashing broke broken bug down "
        "timeout "
        "timed diverged nan leak leaks leaking oom outage wrong stuck corrupt corrupted missing deadlock denied "
        "refused "
        "overflow regression flaky stopped unreachable rejected problem issue incident segfault breaks loses lost "
        "expired full hangs hung freezes leaked doesn't won't couldn't could",
        r"(?<!no )(?<!without )(?<!any )(?<!zero )(?<!0 )(?<!trial and )\b(?:errors?(?! (?:handling|messages?|"
        r"codes?|rates?|logs?|pages?|"
        r"budget|bars?|tracking|reporting)\b)|exception|failed|fails|"
        r"failing|failure|crash(?:ed|es|ing)?|broke(?:n)?(?! (?:my|the) "
        r"(?:record|heart))|breaks (?:when|if|on|the|every)|(?:an?|with|got|hit|on|gateway|"
        r"request|connection|read) timeouts?(?! (?:of|is|to|option|setting|value|=))|timed out|diverged|leak(?:s|"
        r"ing|ed)?|oom|"
        r"outage|deadlock|segfault|corrupt(?:ed)?|unreachable|regression|flaky)\b"
        r"|\b(?:is|are|was|were|went|been|goes) (?:\w+ )?(?:down|stuck|broken|corrupt(?:ed)?|missing|out of "
        r"(?:memory|space|disk)|unreachable)\b(?! (?:to|for|with))"
        r"|\b(?:became|becomes|is|was|got|returned|gives) nan\b|\bstopped (?:working|responding)\b|\b(?:doesn't|"
        r"does not|won't|didn't|isn't|not) (?:work(?:ing)?|start(?:ing)?|respond|boot|compile|build|load)\b"
        r"|\b(?:bug|problem|issue|incident)\b.{0,40}\b(?:is|was|in|with|that|when|where|:)\b|\bcould(?: not|n't) "
        r"(?:connect|open|find|load|extend|read|write|reach|resolve|be)\b"
        r"|\b(?:permission|access|connection) (?:denied|refused)\b|\bno space left\b|\b(?:hangs|hung|freezes|"
        r"froze)\b|\b(?:certificate|license|token|passport|visa) (?:has |had )?expired\b|\bexpired \w+",
    ),
    (_K.ERROR, "#error", None),
    (
        _K.CHANGE,
        "created added edited modified updated deleted removed renamed wrote refactored changed bumped set moved "
        "opened "
        "merged pushed committed deployed installed raised lowered increased reduced implemented extracted split",
        r"\b(?:created|added|edited|modified|updated|deleted|removed|renamed|wrote|refactored|changed|bumped|"
        r"merged|pushed|committed|implemented|extracted|split|opened)\b"
        r".{0,80}(?:\b[\w-]+\.(?:py|js|ts|tsx|jsx|go|rs|java|c|h|cpp|md|toml|yaml|yml|json|txt|sql|sh|cfg|ini|"
        r"html|css|ipynb|tex|csv|lock|xml|rb|kt|swift|conf|env)\b|"
        r"[\w.-]+/[\w./-]+|#\d+|`[^`]+`|\b\w+_\w+\b|\bpull request\b|\bbranch\b|\bPR\b|\btable\b|\bindex\b|"
        r"\bcolumn\b)"
        r"|\b(?:set|changed|raised|lowered|increased|reduced|bumped|updated) .{2,60}? (?:from \S.{0,30}? )?to "
        r"\S*\d|\bdeployed (?:v|version )?\d|\binstalled \S+ ?(?:==|v?\d)",
    ),
    (
        _K.DECISION,
        "we'll i'll they'll go decided chose chosen agreed opted settled voted decision picked selected "
        "switched switching migrated migrating replaced "
        "dropping drop going let's use sticking stick instead longer won't approved rejected ruled keep choose "
        "dropped "
        "abandoned adopt adopted moving selling replacing buy concluded conclusion",
        rf"\b(?:{_SUBJECT}|it){_HAVE}(?:'re| are| is| was| were)?{_ADVERBS} (?:decided|chose|chosen|agreed|opted|"
        rf"settled on|voted|picked|selected|concluded|approved|rejected|"
        r"ruled out|abandoned|adopted (?:the|a|an) (?:\w+ )?(?:policy|approach|standard|process|convention|style|"
        r"rule|strategy|framework)|dropped (?:the|support|our)|switched|migrated)\b(?! (?:with you|with me|back "
        r"and))"
        r"|\b(?:the |our |my |final )?decision(?: is| was|:| to)\b|\b(?:was|were|been|is) (?:decided|agreed|"
        r"approved|chosen|settled|rejected|selected)\b"
        r"|\b(?:we|i|they)(?:'ll| will| are going to|'re going to)(?: now| all)? (?:go with|use|stick (?:with|to)|"
        r"(?:keep|take) (?:the|using|both|our)(?! (?:time|spirit|faith|chance|opportunity))|drop|switch|adopt|"
        r"choose|move to|migrate|replace)\b(?! (?:it|that) (?:off|by))"
        r"|\b(?:we|they)(?:'re| are) (?:now )?(?:going with|dropping|switching|migrating|moving (?:to|from|away)|"
        r"selling|replacing|sticking|retiring|adopting|using)\b"
        r"|\blet(?:'|’)?s (?:go with|use|stick|keep (?!\w+ing )(?:the|using|both|our|\w+ (?:for|as|in)\b)(?! "
        r"(?:spirit|faith))|drop|switch|adopt|choose|pick|move to|migrate|replace|make it|settle)\b(?! (?:each "
        r"other|together|pushing))"
        r"|\b(?:use|using|go with|choose|pick|buy|take|want) .{2,60} (?:instead of|rather than|over) \w|\bno "
        r"longer (?:use|support|need|accept|allow)"
        r"|\b(?:we|i|they)(?: will not| won't) (?:buy|use|support|ship|do|renew|go|take|add|build|hire|move)\b"
        r"|\bswitched (?:\w+ )*?(?:from|to|over)\b|\b(?:migrated|replaced) .{1,60} (?:to|with|by)\b|\b(?:is|was|"
        r"been) replaced (?:by|with)\b|\bthe conclusion (?:is|was)\b|\bfrom now on\b",
    ),
    (
        _K.PRACTICE,
        "always never must ever sure avoid practice recommended remember rule should don't forbidden required "
        "mandatory do "
        "only nobody",
        rf"^(?:please )?(?:(?:always|never) (?!\w+ed\b|had\b|been\b|was\b|happy\b|glad\b|here\b|saw\b|did\b|"
        rf"knew\b|went\b|got\b|nice\b|thought\b|felt\b|an? |the |fun\b|good\b|great\b|mind\b|give up\b|stop\b|"
        rf"say\b)[a-z]+|make sure(?! (?:you(?:rs?|'re)?|to) (?:take care|stand|rest|have fun|enjoy|are ok))|be "
        rf"sure to(?! (?:rest|enjoy))|remember to|avoid|(?:do not|don't)(?: ever)? {_WORK_VERB})\b(?!.{{0,3}}$)"
        r"|\b(?:we|you|one|everyone|nobody|people|they|code|changes|commits?|secrets?|keys?|tests?|deploys?|it) "
        r"(?:should|must)(?: all)? (?:always|never|only)\b"
        r"|\bmust (?:not|never|be \w+ed\b(?! to)|always|run|use|go through|pass|first|include|have (?:at least|a|"
        r"an|one|two|\d))\b|\bbest practice\b|\brule of thumb\b|\b(?:is|are) (?:strongly )?(?:recommended|"
        r"forbidden|required|mandatory|not allowed)\b"
        r"|\b(?:don't|do not|never) ever \w+|"
        rf"\bwe (?:always|never) {_WORK_VERB}\b|"
        r"\bthe rule is\b|\bnobody (?:may|should|runs|pushes|touches|deploys|"
        r"merges)\b|^for \w+, (?:bake|use|always)\b|\b(?:bake|roast|simmer|boil|knead|cook|steam|fry) (?:it |them "
        r"|the |for |at |until )",
    ),
    (
        _K.PREFERENCE,
        "prefer prefers preferred enjoy enjoys dislike dislikes detest detests",
        rf"\b(?:{_SUBJECT}|who)(?:'d| would)?{_ADVERBS} (?:prefers?|preferred|enjoys?|dislikes?|detests?)\b(?! "
        rf"(?:it|that|this|your?|the idea)\b)",
    ),
    (
        _K.PREFERENCE,
        "like likes love loves hate hates",
        rf"\b(?:(?:i|we|they|you all|my \w+s|kids){_ADVERBS}(?: do(?: not|n't))?(?: (?:really|much|"
        rf"particularly))? (?:like|love|hate)|(?:he|she|who|my \w+|our \w+|{_NAME}){_ADVERBS}(?: does(?: not|"
        rf"n't))?(?: (?:really|much|particularly))? (?:likes|loves|hates|(?<=n't )(?:like|love)))\b(?! "
        rf"to\b.{{0,2}}$)(?! (?:it|that|this|your?|how|what|to (?:come|see|hear|join|know|help)|the (?:idea|sound|"
        rf"way)|them)\b)",
    ),
    (
        _K.PREFERENCE,
        "preference preferences favourite favorite rather sooner allergic allergy fan vegetarian vegan teetotal "
        "stand "
        "intolerant lactose left fond into please along",
        r"\b(?:can't|cannot|can not|couldn't) stand\b|\bfavou?rite\b.{1,60}\b(?:is|are|has always|was)\b|\b(?:is|"
        r"are) (?:my|our|his|her|their) (?:\w+ )?favou?rite\b|\bpreference(?:s)? (?:is|are|would|for|:)"
        r"|\b(?:i|we|he|she|they)(?:'d| would) (?:rather|much rather|sooner)\b(?! not (?:say|know))|\ballergic "
        r"to\b|\ballergy\b|\bintolerant\b|\b(?:big|huge|not a) fan of\b|\bfond of\b"
        r"|\b(?:i'm|i am|we're|he's|she's|[A-Z][a-z]+ is|is|am)(?: a| now| still| strictly| also)* (?:vegetarian|"
        r"vegan|teetotal|left-handed|lactose)"
        r"|\bi'm (?:really |not |very )?into \w|^no \w+ please\b|\bdon't get along with\b",
    ),
    (
        _K.PREFERENCE,
        "eat eats drink drinks smoke smokes eating drinking smoking always usually normally generally mostly "
        "typically tend "
        "tends use uses",
        rf"\b(?:{_SUBJECT})(?: don't| doesn't| do not| does not| never| no longer| only| mostly| stopped) "
        rf"(?:eats?|drinks?|smokes?|eating|drinking|smoking|uses?|works? on|take sugar)\b"
        rf"|\b(?:i|we|he|she|{_NAME}) (?:always|usually|normally|generally|mostly|typically|tend to|tends to) "
        rf"(?:use|take|eat|drink|go|work|start|wear|order|write|run|buy|sleep|get up|wake|cook|walk|cycle|read|"
        rf"have|book|travel|pay|keep|do|fly|sit|test|review|shop|make)s?\b(?! (?:that|it|so|a great|such)\b)",
    ),
    (
        _K.IDENTITY,
        "name names name's call sister brother wife husband partner girlfriend boyfriend mother father mum mom "
        "dad son daughter kid kids "
        "children twins cousin boss manager professor dog cat puppy colleague supervisor advisor friend aunt "
        "uncle grandmother "
        "grandfather grandma grandpa niece nephew fiancé fiancée roommate flatmate neighbour neighbor landlord "
        "parents partner's "
        "wife's husband's called named daughters sons dogs cats beagle labrador lead",
        rf"\b(?:my|his|her|our|their|your|the dog's|[A-Z][a-z]+'s|partner's|wife's|husband's) (?:full |first |"
        rf"last |middle |maiden |{_KIN}'s )?name(?:'s| is)\b|\b(?:my name is|call me|i go by)\b"
        rf"|\b(?:my|our|his|her|their|[A-Z][a-z]+'s) (?:\w+ )?{_KIN},? (?:[A-Z][\w-]+,? )?(?:is|are|was|just|has|"
        rf"have|had|got|works?|lives?|turned|called|named|teaches|studies|starts?|runs|plays|will)\b"
        rf"|\b(?:is|are|was) (?:my|our|his|her|their|[A-Z][a-z]+'s) (?:\w+ )?{_KIN}\b|\b(?:called|named) [A-Z]"
        rf"|\b(?:i|we|they|he|she)(?: also| just| now)? (?:have|has|'ve got|adopted|got) (?:a |an |one |two |"
        rf"three |four |\d )(?:\w+ )?(?:{_KIN}|kids|children|daughters?|sons?|dogs?|cats?|beagle|labrador)\b",
    ),
    (
        _K.IDENTITY,
        "a an as",
        rf"\b(?:i'm|i am|he's|he is|she's|she is|[A-Z][a-z]+ is|who is|works? as|worked as)(?: now| also| still| "
        rf"currently)* an? (?!bit\b|little\b|lot\b|huge\b|big\b|total\b|real\b|terrible\b|bad\b|good\b|great\b|"
        rf"star\b|fan\b|genius\b|mess\b)(?:\w+[ -]){{0,3}}{_JOB}\b",
    ),
    (
        _K.IDENTITY,
        "work works working worked",
        rf"\b(?:{_SUBJECT}|who|{_KIN})(?:'m|'s| am| is| are)?(?: now| also| still| currently| just| both)* "
        rf"(?:work(?:s|ing)?|worked) (?:as|at|for|in|with)\b(?! (?:it|that|this|me|you)\b)",
    ),
    (
        _K.IDENTITY,
        "teach teaches run runs own owns manage manages lead leads studies study speak speaks play plays",
        rf"\b(?:{_SUBJECT})(?: now| also| still)? (?:teach(?:es)?|runs?|owns?|manages?|leads?|studies|study|"
        rf"speaks?|plays?) (?:a |an |the |my |our )?(?!crucial|key|big|important|huge|major|vital|part|role|"
        rf"around|into|out|away|it|that)[a-z]\w+(?! (?:into|out|late|away|role|part))",
    ),
    (
        _K.IDENTITY,
        "born studied graduated majored married engaged divorced teaching running managing leading pregnant "
        "promoted old "
        "learning studying training playing working job quit retired hired joined turned doctor asthma diabetes "
        "coeliac "
        "celiac migraine migraines arthritis disease blood started #number",
        r"\b(?:i'm|i am|he's|she's|they're)(?: now| also| still)? (?:teaching|studying|training|learning|running "
        r"a|managing|leading)\b|\b(?:got|get|getting|is|are|were|been) (?:married|engaged|divorced|pregnant|"
        r"promoted|hired)\b"
        r"|\b(?:was|were|'s) born\b|\b(?:studied|graduated|majored)\b.{0,30}\b(?:at|from|in)\b|\b(?:am|'m|is|"
        r"are|turned|'re) (?:now )?\d{1,2}(?: years old)?(?: and \d+)?(?: last| this| in| on|[.,!]|$)|\byears? "
        r"old\b"
        r"|\b(?:quit|left|lost) (?:my|his|her|the|their) job\b|\b(?:retired|joined|got promoted|started (?:a new "
        r"job|working)|was hired)\b(?! (?:us|me|you|the call))|\bi've been (?:learning|studying|playing|teaching|"
        r"working)\b"
        r"|\bdoctor (?:told|said|wants)\b|\b(?:has|have) (?:asthma|diabetes|coeliac|celiac|migraines?|arthritis|"
        r"\w+ disease|high blood)",
    ),
    (
        _K.PLACE,
        "live lives living lived based located moved relocated office offices hosted deployed stored staying "
        "stays resides from hometown "
        "grew headquarters headquartered address flat apartment house kept saved archived store server servers "
        "shop warehouse "
        "clinic party wedding meeting conference data file files backup backups key keys password log logs "
        "staging production "
        "cluster hotel school lab",
        rf"\b(?:live|lives|living|lived|resides?|based|located|headquartered|hosted|staying|stays) "
        rf"(?:in|at|on|near|with|by)\b(?! (?:fear|mind|peace)\b)"
        rf"|\b(?:{_SUBJECT}|{_KIN}){_HAVE}(?: just| recently| also)? (?:moved|relocated) (?:to|into|back to|"
        rf"from)\b|\bmoved to [A-Z]|\bgrew up in\b|\b(?:i'm|i am|he's|she's|we're|is|are|comes?|originally) from "
        rf"(?:the )?[A-Z]"
        r"|\b(?:office|headquarters|server|servers|house|flat|apartment|shop|warehouse|clinic|party|wedding|"
        r"meeting|conference|data|files?|backups?|key|keys|password|logs?|staging|production|cluster|hotel|school|"
        r"lab)s? (?:is|are|lives?|sits?|sit) (?:now |also )?(?:in|on|at|near|under|next to|behind)\b"
        rf"(?! (?:{WEEKDAY}|{MONTH}\b|\d|the \d|next\b|last\b))"
        r"|\b(?:stored|deployed|hosted|kept|saved|archived) (?:in|on|at|under)\b|\bhometown is\b|\baddress is\b|"
        r"\bstore \w+ (?:as \w+ )?in \S+",
    ),
    (
        _K.EVENT,
        "#date",
        rf"\b(?:{_SUBJECT}|it|this|that|there|who|(?:the|my|our|his|her|their|your) .{{1,50}}?)(?:'s|'re|'m|'ve| "
        rf"(?:is|are|was|were|am|has|have|had|will|starts?|begins?|ends?|opens?|closes?|leaves?|lands?|arrives?|"
        rf"departs?|takes?|goes|runs?|flys?|flies|fly|comes?|come|meets?|meet|changes?|launch\w*|expires?|turned|"
        rf"turns|got|went|met|saw|bought|sold|signed|visited|started|began|finished|moved|made|gave|took|flew|"
        rf"left|came|happened|adopted|graduated|booked|scheduled|paid|received|submitted|released|shipped|"
        rf"celebrated|lost|won|ran|broke|joined|quit|fell|called|held|\w+ed))\b"
        r"|\b(?:deadline|due|scheduled|birthday|anniversary|appointment|meeting|demo|release|launch|wedding|"
        r"flight|exam|interview|kickoff|defen[cs]e|opening|surgery|conference|starting|starts)\b",
    ),
    (
        _K.EVENT,
        "booked reserved ordered bought sold submitted signed cancelled canceled rented enrolled registered",
        rf"\b{_SUBJECT}{_HAVE}{_ADVERBS} (?:booked|reserved|ordered|bought|sold|submitted|signed|cancell?ed|"
        rf"rented|enrolled|registered)\b(?! (?:it|that|off)\b)",
    ),
    (
        _K.NUMBER,
        "#number",
        r"\b(?:is|are|was|were|has|have|had|costs?|takes?|took|reach(?:es|ed)?|expires?|listens?|grew|grows|"
        r"dropped|drops|fell|rose|paid|pays?|charged|charges|weighs?|contains?|holds?|uses?|limit|raised|lost|"
        r"gained|trained|"
        r"supports?|covers?|earns?|spent|saved|saves|measured|set|needs?|went|got|scored|scores|increased|"
        r"decreased|handles?|serves?|sold|sells|runs?|owes?|equals?|totals?|averages?|at|of|with|bought|for|"
        r"processed|completed|returned|shows?|showed|gives?|made|burns?|walked|ran|cycled|drove|sleeps?|slept)\b",
    ),
    (
        _K.TOOL,
        "use uses using used through via run runs written built with build deploy deploys manage monitor write "
        "track format store",
        r"\b(?:we|i|they|he|she|you|team|service|app|project|frontend|backend|[A-Z][a-z]+|who|\w+s)(?: now| also| "
        r"always| usually| currently| only| mostly| all| still)* (?:use|uses|used|run|runs|write|build|manage|"
        r"monitor|track|format|test|deploy|lint|draw|plot|store) (?:\S+ ){0,6}?(?:`[^`]+`|[A-Z][\w.+#-]*[\w+#]|"
        r"\w+[_.]\w+|[a-z]+ -{1,2}\w+)"
        r"|\b(?:written|built|implemented|made|done|deployed|managed|tracked|monitored|formatted|tested) (?:in|"
        r"with|using|by|via|through|on) (?:`|[A-Z])|\b(?:go|goes|works?|happens?|deployed|handled|done) "
        r"(?:through|via) (?:`|[A-Z])|\b(?:run|use|type|call|try) `[^`]+`|\bfor \w+ (?:i|we) use\b",
    ),
    (
        _K.PLAN,
        "will going plan plans planning intend intends aim aims goal i'll we'll hope",
        r"\b(?:we|i|they|he|she|[A-Z][a-z]+)(?:'re|'m|'s| are| am| is)? (?:plan(?:s|ning)? (?:to|on|a)|intends? "
        r"to|aim(?:s|ing)? to)\b|\b(?:the |our |my )?(?:goal|plan) is\b",
    ),
    (
        _K.STATE,
        "#identifier",
        r"\b(?:is|are|runs?|uses?|now|lives?|has|have|points?|takes? over|supports?|requires?|needs?|depends?)\b",
    ),
    (
        _K.REASON,
        "because reason cause caused due root why",
        r"\bbecause\b|\b(?:the |main |root |real )?(?:reason|cause)(?: for \w.{0,40}?)?(?: is| was|:)|\bcaused "
        r"by\b|\bdue to\b|\bthat(?:'s| is| was) why\b",
    ),
    (
        _K.STATE,
        "database store cache queue broker framework language orm region provider vendor backend frontend editor "
        "shell "
        "host cloud license licence timezone zone model stack",
        r"\b(?:database|store|cache|queue|broker|framework|language|orm|region|provider|vendor|backend|frontend|"
        r"editor|"
        r"shell|host|cloud|licen[cs]e|time ?zone|model|stack) (?:is|are|was) (?:now |still )?(?:[A-Z]|`)",
    ),
    (
        _K.STATE,
        "now currently enabled disabled finished completed status active live ready",
        r"\b(?:is|are) (?:now |currently )?(?:enabled|disabled|finished|completed|active|live|merged|deprecated|"
        r"frozen)\b",
    ),
)

_CHINESE: Final[tuple[_Rule, ...]] = (
    (
        _K.TEST,
        "测试 用例 通过 覆盖 跑通",
        r"(?:测试|用例|单测|回归|构建|流水线|CI).{0,12}(?:通过|失败|挂了|全绿|跑通|没过)|(?:全部|都)通过|\d+ "
        r"?个?(?:用例|测试)|覆盖率.{0,6}\d",
    ),
    (
        _K.FIX,
        "修复 修好 解决 恢复 就好 回滚 重启 补丁 绕过 已修 搞定 正常 腾出 清理 好了 换了",
        r"(?:已经?|都)?(?:修复|修好|解决|恢复|搞定)(?:了|好|完|正常|，|。|$|这|掉|之|\w)(?!方案|办法|不了)|(?:就|"
        r"又)(?:好了|正常了|恢复了|没事了|行了|能用了)|回滚|打了补丁|绕过了?|(?:问题|故障|报错)(?:没了|消失)|"
        r"恢复正常|"
        r"(?:重启|清理|换|删|关|调|加|改)\w{0,20}(?:之?后|就|，)\w{0,10}(?:好了|正常|可以了|恢复|不报)|"
        r"清理了.{0,20}腾出|修了",
    ),
    (
        _K.API,
        "接口 参数 返回 字段 端点 请求 响应 回调 /",
        r"(?:GET|POST|PUT|DELETE|PATCH)\s+`?/[\w{}/.:-]+|(?:接口|端点|API|api|函数|方法|回调|请求|"
        r"响应).{0,24}(?:返回|需要传?|接收|接受|参数|字段|传入|传|要带|包含)|(?:参数|字段|请求头)(?:是|有|叫|必须|"
        r"为|包括)|/[a-z][\w/{}-]+\s?(?:接口|会?返回)",
    ),
    (
        _K.ERROR,
        "报错 错误 失败 异常 崩溃 挂了 坏了 超时 故障 bug 工作 不能 打不 断了 溢出 泄漏 卡死 宕机 过期 丢失 出问 "
        "满了 缺少 没有 漏水 死锁 中断 泄露 用完 变成 根因 无法 不了 停机 告警 漏了 掉线 死机 冲突 乱码 NaN 连不",
        r"(?<!没有)(?<!没)(?<!无)(?:报错|错误(?!率[是为]0)|失败|异常|崩溃|崩了|挂了|坏了|超时|故障|泄漏|泄露|卡死|"
        r"宕机|死锁|死机|内存溢出|溢出|掉线|乱码|中断了|停机)|(?:有个?|出现了?|发现了?|遇到)(?:一个)?(?:bug|问题|"
        r"漏洞)|(?:证书|签证|护照|令牌|合同|token)\w{0,6}过期了?|(?:磁盘|硬盘|内存|空间|队列|连接池|pool|"
        r"池)\w{0,6}(?:满了|用完|耗尽|不足|不够)|变成了? ?NaN|出问题|断了|漏水|(?:打不开|连不上|启动不了|不能用|"
        r"用不了|无法(?:连接|启动|打开|访问|登录|加载))|漏了|数据丢失|丢了数据|用完了|缺少",
    ),
    (_K.ERROR, "#error", None),
    (
        _K.CHANGE,
        "新增 创建 修改 删除 改了 加了 加上 写入 更新 重命 改为 调到 提交 合并 新建 添加 改到 移到 重构 部署了 "
        "增加 调成 调整",
        r"(?:新增|创建|新建|修改|删除|删掉|更新|重命名|重构|添加|增加|改|加|写|提交|合并)了?.{0,40}(?:\w+\.(?:py|"
        r"js|ts|go|rs|java|md|toml|ya?ml|json|txt|sql|sh|cfg|html|css|conf|env|tsx|vue|ini)\b|[\w.-]+/[\w./-]+|"
        r"`[^`]+`|#\d+|\b\w+_\w+\b|分支|索引|字段|表)"
        r"|\w+\.(?:py|js|ts|go|rs|java|md|toml|ya?ml|json|txt|sql|sh|conf|vue|cfg|ini|html|css|env|xml|"
        r"csv)\s?(?:里|中|文件)?.{0,10}(?:加|改|"
        r"删|写|新增|更新)|把.{1,30}?(?:从.{1,16}?)?(?:改为|改成|调到|调成|改到|调整[为到]|提高到|降到|设为|设成|"
        r"重命名为)了?",
    ),
    (
        _K.DECISION,
        "决定 选定 选择 敲定 定下 拍板 确定 改用 改成 换成 采用 就用 统一 还是 不再 不换 放弃 选用 商定 同意 批准 "
        "定为 一致 弃用 切换 迁到 迁移 取消 改为 换到 选了 结论 最终 以后 从今",
        r"(?:最终|最后|一致|我们|我|大家|公司|团队|已经|会上|讨论后|经过\w{1,8})?(?<![个的该])(?:决定(?!很|真|太|"
        r"非常|比较|正确|是对|不错)|商定|敲定|拍板|议定)(?!性|权|因素|于)(?:了|要|用|在|把|从|不|去|采|使|将|先|"
        r"让|由|\s|是|：|:|\w)|(?:最终|最后|我们|统一|一律)(?:选择|选用|选定|选了|采用|用)|(?:选定|选用|选择)了\w|"
        r"确定(?:用|采用|使用|选|下来|了)|(?:改用|换成|换到|切换到|迁移到|迁到|改成用|弃用|换用)了?"
        r"|(?:还是|就|统一|一律|全部|都)(?:用|选|使用|采用)\s?[\w《]+|不再(?:用|使用|支持|采购|续|维护|做|招|提供|"
        r"接)|(?:放弃|取消)了?\w|(?:一致)?同意(?!你|吗|的|哈)(?:了|用|把|卖|买|采|将|\w)|批准了?|结论是|"
        r"采用了?\s?\w|定为\w|不换\s?\w+了",
    ),
    (
        _K.PRACTICE,
        "必须 千万 务必 不要 一定 记得 最好 禁止 规范 原则 严禁 切记 不许 不得 应该 以后 每次 前要 别忘",
        r"必须|千万(?:不要|别)|务必|一定要(?!来|幸福|去玩)|严禁|禁止|切记|不许|不得(?!不|了)|(?:规范|原则|规定|"
        r"惯例|最佳实践)(?:是|：|:|要求)|(?:每次|以后|凡是|所有).{0,20}(?:都要|先|必须|需要|要|不能|不要)|"
        r"记得(?:先|要)\w|应该(?:始终|总是|先)|不要(?:再)?(?:提交|把|直接|在|用|写|往|将|手动|使用)\w",
    ),
    (
        _K.PREFERENCE,
        "喜欢 讨厌 爱吃 爱喝 不吃 不喝 只喝 只吃 偏好 最爱 习惯 过敏 戒了 受不 宁愿 倾向 偏爱 吃素 忌口 每周 每天 "
        "每晚 每月 戒 素食 爱好 爱看 爱听 不爱 一般用 怕 常用 每年 总是 平时",
        r"(?:我|他|她|们|妈|爸|总|\w)?(?:更|最|比较|特别|非常|很|不|不太|挺|一直|也|还是|都|个人)*喜欢(?!你|这个|"
        r"那个|的话|上你)\w|(?:讨厌|厌恶|受不了|偏爱|偏好|钟爱|热爱)(?!你|的话)\w|(?:爱|只|不|不能|不要|不可以|"
        r"从不|不再|很少|常|最爱|不爱)(?:吃|喝|抽|看|听|玩)\s?(?!亏|惊|力|到|饭了|了|下)\w|过敏|(?:我|他|她|习惯|"
        r"一般|平时|通常|总是|都)(?:习惯|一般|平时|通常|总是)?(?:用|使用)\s?[A-Za-z《]|习惯(?:于|了|早|晚|先|用|"
        r"每|在)?\w|戒(?:了|掉)?(?:烟|酒|糖|咖啡|奶茶)|宁愿|宁可|更?倾向于?|吃素|素食|忌口|爱好是|最爱的?\w|(?:我|"
        r"他|她|们)每(?:天|周|晚|月|年|个月|个?周末|早).{1,20}|每(?:天|周|月|"
        r"年)\w{1,12}[一二两三四五六七八九十\d]+(?:次|遍|小时|公里|分钟)",
    ),
    (
        _K.IDENTITY,
        "我叫 名叫 叫 我是 姓 职业 当 做 教 工作 上班 任职 导师 老婆 妻子 丈夫 先生 老公 女儿 儿子 妹妹 姐姐 哥哥 "
        "弟弟 岁 毕业 结婚 订婚 离婚 怀孕 生了 是 辞职 退休 入职 医生 开了 题目 名字 患 学 养 负责 升职",
        r"(?:我|他|她|妹妹|姐姐|哥哥|弟弟|儿子|女儿|老婆|老公|丈夫|妻子|同事|老板|狗|猫|名字?|孩子|导师|经理|"
        r"朋友)(?:的名字)?(?:叫|名叫|姓)(?!我|他|她|你|了|外卖|车|人|过来|上)\s?\w|\w{1,6}姓"
        rf"[{HAN}](?![名氏])|"
        r"名字(?:是|叫)|(?:我|他|她|\w{2,3})(?:现在|之前|以前|也|还|就|今年)?是(?:一?[名位个]|做|搞|学|"
        r"教)?\w{0,8}(?:工程师|医生|护士|老师|教师|教授|律师|设计师|会计|程序员|架构师|学生|经理|厨师|司机|警察|"
        r"记者|作家|画家|歌手|演员|翻译|科学家|研究员|博士|硕士|产品|运营|总监|顾问|主任|医师|分析师|摄影师|教练|"
        r"同学|人|老板|独生子女|左撇子|素食者)(?![家们])"
        r"|(?:在|当|做|任|担任).{0,12}(?:当|做|任|担任|教)\w{0,6}(?:工程师|医生|护士|老师|教授|律师|设计师|会计|"
        r"程序员|经理|厨师|司机|警察|记者|翻译|研究员|顾问|总监|助理|实习|数学|语文|英语|物理|化学|历史|音乐|体育|"
        r"美术)|(?:在|于)[^，。]{1,14}(?:工作|上班|任职|实习|读书|上学|读研|读博|念书)|(?:我|他|她|还|现在|"
        r"一直).{0,6}教(?:数学|语文|英语|物理|化学|历史|音乐|体育|美术|\w{2}课)"
        r"|(?:导师|上司|领导|老板|经理|负责人|同事|室友|班主任|妻子|丈夫|老婆|老公|女朋友|男朋友|女儿|儿子|妹妹|"
        r"姐姐|哥哥|弟弟|妈妈?|爸爸?|母亲|父亲|爷爷|奶奶|外公|外婆|架构师)(?:是|叫|在|今年|现在|刚|上|住|姓)\w|"
        r"[一二两三四五六七八九十百\d]+ ?岁|毕业于|毕业了?$|(?:结婚|订婚|离婚|怀孕|辞职|退休|入职|升职|跳槽)了?|"
        r"生了(?:个|一|对|双)|(?:题目|专业|职业|职位|学历|网名|昵称|血型|星座)是|开了?(?:一家|家|个|一个)\w|(?:养|"
        r"领养)了?(?:一|两|三|只|条|个)|患有?|得了\w{1,6}(?:病|炎|癌)|学了?\w{1,8}(?:年|个月)了?|由\w{2,4}负责|"
        r"\w{2,3}负责",
    ),
    (
        _K.PLACE,
        "住在 搬到 搬去 位于 部署 老家 放在 存在 来自 办公 机房 迁到 住 在 坐落 地址 搬进 搬回 出生",
        r"(?:现在|目前|一直|还)?(?<![记抓站忍挡保停留拦])住在?(?!院|手|口|宿费|了[。！]?$)\s?\w|搬(?:到|去|进|回|"
        r"来)了?\s?\w|位于|坐落|(?:部署|放|存|保存|设|安装|托管|建|开)在\s?(?!一起|心上|这里|那里|眼里)\w|"
        r"老家(?:在|是)|来自(?!于)\w|出生(?:在|于)|(?:地址|地点|总部|办公室|机房|公司|服务器|环境|仓库|店|家|学校|"
        r"医院|婚礼|会议室|钥匙|密码|文件|日志|备份|聚会|考场)(?:是|在|设在|位于|都在)(?!哪|线|吗|建|忙|做)\s?\w|"
        r"^在[^，。的]{2,12}$|，在(?:[^，。的]{2,10})[。！]?$",
    ),
    (
        _K.EVENT,
        "#date",
        r"(?:是|在|定|去|到|从|开始|结束|出发|开会|截止|签|交|办|举行|发布|上线|生日|婚礼|会议|考试|面试|答辩|"
        r"开学|上学|上小学|毕业|入职|到期|发生|买|卖|见|拍|做了?|看了?|带|参加|完成|之前|以前|前|起|改到|推迟|"
        r"提前|demo|Demo|release|放假|回来|起飞|到达|过了|搬|换|订|生|结婚|手术|体检|复查|聚会|活动|旅行|出差|"
        r"开业|值班|交付|迁移|付|收|寄|领|退|启动|号|日)",
    ),
    (
        _K.EVENT,
        "订了 预订 买了 卖了 签了 取消 报名 租了 订好 买好",
        r"(?:预?订好?|买好?|卖|签|租|报名|取消)了(?!吗|没|吧)\w{2}",
    ),
    (
        _K.NUMBER,
        "#number",
        r"(?:是|为|有|达到?|达到了|花了?|共|一共|总共|增长|下降|上涨|降到|升到|涨到|降了|涨了|减少|增加|只有|需要|"
        r"要|超过|约|大约|价格|费用|预算|收入|成本|房租|工资|时长|有效期|端口|版本|上限|下限|限制|延迟|占|到|每|"
        r"用了|跑了?|卖了?|买了?|付了?|收了?|影响|来自|剩|余额|体重|身高|血压|温度|准确率|毛利率|利润|为期|省|赚|"
        r"亏|欠|存|超时|重试|缓存|平均|腾出|丢了|损失|烤|煮|炒|放|加|是在)",
    ),
    (
        _K.TOOL,
        "用 使用 通过 基于 借助 跑",
        r"(?:用|使用|通过|基于|借助|跑)\s?(?:的是\s?)?(?:`[^`]+`|[A-Za-z][\w.+#-]*)",
    ),
    (
        _K.PLAN,
        "计划 打算 准备 将要 目标 即将",
        r"(?:我们?|他们?|她|公司|团队|\w)(?:计划|打算|准备(?!好|了|工作))\w|目标是|即将\w",
    ),
    (
        _K.REASON,
        "因为 由于 原因 导致 所以 为了 根因",
        r"因为|由于|原因(?:是|在于|：|:)|根因|导致|是为了|所以才",
    ),
    (
        _K.STATE,
        "#identifier",
        r"(?:是|现在|目前|已经?|正在|运行|支持|依赖|需要|升级|启用|禁用|完成)",
    ),
)


class _Language(NamedTuple):
    """The rules of one language in order, and the rules of each cue."""

    kinds: tuple[StatementKind, ...]
    patterns: tuple[re.Pattern[str] | None, ...]
    called: Mapping[str, tuple[int, ...]]


@cache
def _languages() -> tuple[_Language, _Language]:
    """Return the rules for English and Chinese. Compiled at first use, which takes about 0.1 s."""
    return _compiled(_ENGLISH, re.IGNORECASE), _compiled(_CHINESE, re.NOFLAG)


def _compiled(rules: tuple[_Rule, ...], flags: re.RegexFlag) -> _Language:
    called: dict[str, list[int]] = {}
    patterns: list[re.Pattern[str] | None] = []
    for order, (_, triggers, pattern) in enumerate(rules):
        # A capital letter indicates a name, although the rest of the pattern ignores case.
        patterns.append(None if pattern is None else re.compile(pattern.replace("[A-Z]", "(?-i:[A-Z])"), flags))
        for trigger in dict.fromkeys(triggers.split()):
            called.setdefault(trigger, []).append(order)
    kinds = tuple(kind for kind, _, _ in rules)
    return _Language(kinds, tuple(patterns), {trigger: tuple(orders) for trigger, orders in called.items()})


_WORDS = re.compile(r"[a-z]+(?:['’][a-z]+)*|\d")
_NUMBER_CHINESE = re.compile(
    f"\\d|[{CHINESE_NUMERALS}半]{{1,6}}(?:年|个月|周|天|小时|分钟|秒|岁|元|块|万|亿|个人|台|条|位|次|公里|公斤|斤|克|米|"
    f"度|倍|楼|层|辆|套)"
)
_IDENTIFIER = re.compile(
    r"[a-z0-9]_[a-z0-9]|`|\w/\w+[/.]\w|\d\.\d|[a-z]-?\d+\b|https?:|\w\.(?:py|js|ts|md|json|ya?ml|toml|sql|sh)\b",
    re.ASCII,
)
_IDENTIFIER_MARKS: Final = ("_", "`", "/", ".py", ".js", ".ts", ".md", ".y", ".toml", ".s")
_ERROR_NAME = re.compile(r"\b\w+(?:Error|Exception)\b")

_LOOKS_WRITTEN = re.compile(r"[^\W_]")
_QUESTION_END = re.compile(r"[?？][\s\"'”’)）」~～!！]*$|(?:吗|么|呢|没有啊)[。.！!～~]*$")
_QUESTION_START = re.compile(
    r"(?:what|when|where|who|why|how|which|do|does|did|can|could|would|will|is|are|was|were|have|has|should|shall|"
    r"may|any)(?:'s|’s)?"
    r" (?:i|you|we|they|he|she|it|the|this|that|there|your|my|our|anyone|someone|everybody|everyone|about|come|"
    r"much|many|long|if)\b",
    re.IGNORECASE,
)
_HEDGE_WORDS: Final = word_set(
    "if maybe perhaps might possibly probably suppose supposing wonder wondering wish hopefully unless "
    "whether imagine could would should think guess believe feel thinking considering seems seem looks "
    "apparently supposedly theory someday sure idea know assuming hope hoping were'd may likely doubt dream "
    "kidding joking pretend tempted consider must feels i'd we'd you'd he'd she'd they'd"
)
_HEDGE = re.compile(
    r"\b(?:if|maybe|perhaps|might|possibly|probably|suppose|supposing|supposedly|wonder|wondering|wish|hopefully|"
    r"unless|whether|imagine|assuming|"
    r"someday|apparently|likely|i (?:doubt|hope|dream)|tempted to|just kidding|only joking|pretend)\b"
    r"|\b(?:could|would|i'd|we'd|you'd|he'd|she'd|they'd)\b(?! (?:rather|prefer|much rather|sooner)\b)(?!(?: not|"
    r"n't) (?:connect|open|find|load|extend|read|write|reach|resolve|be)\b)(?<!preference would)"
    r"|\bshould(?:n't| not)?\b(?! (?:always|never|only|all always))|\b(?:i|we|they) (?:also )?(?:think|guess|"
    r"believe|feel|suppose|figure)\b|\b(?:thinking|dreaming) (?:about|of)\b|\b(?:not|n't) (?:really |quite |yet "
    r")?(?:sure|know|decided)\b|\bno idea\b"
    r"|\bconsider(?:ing)?\b|\b(?:it |that )?seems?\b|\blooks? (?:like|as if|odd|good|nice)\b|\bin theory\b|\bmay "
    r"(?:be|have|need|want|well)\b|\bone day\b|\bmust (?:be|have|feel)\b(?! (?:\w+ed\b(?! to)|at least|an?\b|one|"
    r"two|\d))|\bfeels? like\b|\bhop(?:e|ing) (?:to|that|for|we|it)\b",
    re.IGNORECASE,
)
_HEDGE_CHINESE = re.compile(
    "如果|假如|要是|假设|万一|倘若|也许|(?<!不)可能(?!性)|大概(?!率| ?[\\d一二两三四五六七八九十])|或许|说不定|"
    "好像|似乎|应该(?!始终|总是|先)|考虑(?!到)|会不会|要不要|能不能|是不是|再说|"
    "我觉得|感觉|我想(?!要)|我猜|估计|不(?:太)?(?:确定|知道|清楚)|没想好|看情况|希望|但愿|的话|恐怕|难道|不如|"
    "假装|开玩笑|早知道|差点|本来想|据说|听说"
)
_UNDECIDED = re.compile(
    r"\b(?:haven't|hasn't|have not|has not|hadn't|not|didn't|did not|never|yet to|no) (?:yet |really |been |"
    r"actually )?(?:to )?"
    r"(?:decided?|chosen|choose|agreed?|picked|settled|fixed|solved|resolved|decision|happened|changed|switched)\b"
    r"|\b(?:trying|try|need|needs|want|wants|have|has|hard|tough|how|hoping|going|able) to (?:get it |be |get "
    r"them )?(?:fix|fixed|solve|resolve|repair|decide|choose)\w*\b"
    r"|(?:想|得|需要|正在|还在|尽快|赶紧|怎么|如何)(?:修复|修好|解决|恢复)|(?:还没有?|没有?|未|尚未|不曾|"
    r"并没)(?:最终|完全|真正|想好|商量|最后)?(?:决定|选定|选好|定下|敲定|确定|修复|修好|解决|恢复|改|换)",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?<!, )(?<!，)\b(?:not|never)\b(?! only)|n['’]t\b|不(?!错|过|仅|但|同|少|久|断|管|如|论|再|"
    r"是.{1,12}[，,]?(?:而)?是)|没有?(?!错|问题)|别(?!的|人)"
)
_REQUEST = re.compile(
    r"(?:(?:please|kindly|just)\s+)?(?:can you|could you|would you|will you|let me|let us|let's (?:see|not|talk|"
    r"meet|hope|do|be|have|go|get|grab|call)|give (?:me|her|him|them|us)|tell|show|send|check|look|help|wait|"
    r"remind|try|take (?:care|your|a)|"
    r"have (?:a|fun)|call me|say|don't (?:worry|mention|be|mind)|never mind|hang on|hold on|keep (?:me|it|up|"
    r"going)|ignore|forget|disregard|come|feel free|enjoy|listen|guess|i need you to|you (?:can|could|may|might|"
    r"should|are now|will))\b",
    re.IGNORECASE,
)
_REQUEST_CHINESE = re.compile(
    "(?:那|你|麻烦你?|请你?|先|就|快|再)*(?:帮我|帮忙|麻烦|请(?!假|了|客)|给我(?!的|们的)|告诉|看看|看一下|等一下|"
    "等等|等我|替我|让我|我来看|我看看|我去看|能不能|可以帮|别担心|别闹|别急|忽略|无视|忘记|别忘|来玩|说说|你先|"
    "你去|你来|记一下|提醒我)"
)
_SMALL_TALK = re.compile(
    r"(?:happy|merry|congrat\w*|see (?:you|ya)|talk (?:soon|later|to you)|bye\w*|take care|good (?:morning|night|"
    r"luck|evening|afternoon|job|to|deal|catch|point|for you|one|idea|call|work|stuff)|"
    r"sounds?|long time|no (?:way|worries|problem|kidding|rush|need)|(?:you're|you are) (?:welcome|a star|the "
    r"best|right|kidding)|welcome|my pleasure|thank\w*|love you|same here|me too|will do|"
    r"how (?:are|was|have|nice|lovely|cool|sweet)|what a|that(?:'s| is| was| would| sounds)(?: so| really| very| "
    r"pretty| just| such)? (?:a |an )?(?:great|good|nice|amazing|awesome|awful|terrible|lovely|cool|funny|fine|"
    r"sad|crazy|wild|lot|shame|pity|true|right|all|it|odd|weird|"
    r"interesting|wonderful|fantastic|perfect|impressive|sweet|hilarious|fair|okay|ok|too bad|news)|can't wait|"
    r"give (?:her|him|them) a hug|have a|well done|nice (?:to|one|work)|here(?:'s| is| are) (?:a|the|my|"
    r"some)\b.{0,20}\b(?:pic|photo|picture|video|link)|time flies|cheers|hugs|gotta|poor|lucky|fingers crossed|"
    r"i'm (?:so |really |very )?(?:happy|glad|sorry|jealous|excited|proud|tired|hungry|sleepy|bored|fine|good|"
    r"okay|off|in|back|here))\b",
    re.IGNORECASE,
)
_SMALL_TALK_CHINESE = re.compile(
    "(?:拜拜|再见|回见|晚安|早安|早上好|下午好|晚上好|大家好|大家早|你好|您好|好久不见|好久没|辛苦|加油|恭喜|哈哈|"
    "谢谢|多谢|感谢|不客气|没事|没关系|祝|生日快乐|新年快乐|先这样|回头聊|回头见|慢走|羡慕|厉害|真棒|太|好险|好的|"
    "是啊|对啊|就是|当然|不会吧|真的|天哪|我的天|呵呵|"
    "早该|随你|散会|开始吧|听得到|今天天气|时间过得|保重|放心|理解|欢迎|不错|挺好|还行|都好|有道理|原来如此|"
    "说得对|一言为定|不见不散|到时候见)"
)
_MEETING_AGAIN = re.compile("(?:明天|后天|下周|周.|到时候?|一会儿?|晚上|星期.|明早)见[。！!～~]*$")


def is_question(text: str) -> bool:
    """Whether a text ends like a question."""
    return _QUESTION_END.search(text[-16:]) is not None


# The clauses of a turn are judged up to three times: for its kind, features and facts.
@lru_cache(maxsize=128)
def judge_clause(text: str) -> tuple[StatementKind, bool]:
    """Return the kind of a clause, and whether its form (a question, a supposition, a request) decided it."""
    body = without_opening(text)
    if not body or not _LOOKS_WRITTEN.search(body):
        return _K.SMALL_TALK, False
    if is_question(text):
        return _K.QUESTION, True
    lowered = body.lower()
    ascii_only = text.isascii()
    words = set(_WORDS.findall(lowered))
    words = {word.replace("’", "'") for word in words} if not ascii_only and "’" in lowered else words
    if words and _QUESTION_START.match(body):
        return _K.QUESTION, True
    gate = _gate(body, words, ascii_only)
    if gate is not None:
        return gate, True
    found = _kind_by_rules(body, words, ascii_only)
    if (found in _DENIABLE and _DENIED.search(body)) or (found in _DONE and _UNDECIDED.search(body)):
        return _K.THOUGHT, False
    return found, False


def _gate(body: str, words: set[str], ascii_only: bool) -> StatementKind | None:
    """Return the kind that the form alone decides: small talk, a request, a supposition; else None."""
    if words and (words.isdisjoint(_PRACTICE_WORDS) or not _OPENS_PRACTICE.match(body)):
        if _SMALL_TALK.match(body):
            return _K.SMALL_TALK
        if _REQUEST.match(body):
            return _K.REQUEST
        if not words.isdisjoint(_HEDGE_WORDS) and _HEDGE.search(body):
            return _K.HYPOTHESIS
    if not ascii_only:
        if _SMALL_TALK_CHINESE.match(body) or _MEETING_AGAIN.search(body):
            return _K.SMALL_TALK
        if _HEDGE_CHINESE.search(body):
            return _K.HYPOTHESIS
        if _REQUEST_CHINESE.match(body) and not _RULE_CHINESE.search(body):
            return _K.REQUEST
    return None


_PRACTICE_WORDS: Final = word_set("always never make be remember avoid do don't should must")
_OPENS_PRACTICE = re.compile(
    r"(?:please )?(?:always|never(?! mind)|make sure|be sure to|remember to|avoid|do not|don't ever)\b|"
    r".{0,60}\b(?:should|must) (?:always|never|only)\b",
    re.IGNORECASE,
)
_RULE_CHINESE = re.compile("必须|千万|务必|一定要|严禁|禁止|不要|不许")
_DONE: Final = frozenset({_K.DECISION, _K.FIX, _K.CHANGE, _K.STATE})
_DENIABLE: Final = frozenset({_K.IDENTITY, _K.PLACE, _K.TOOL, _K.STATE, _K.PLAN})


def _kind_by_rules(body: str, words: set[str], ascii_only: bool) -> StatementKind:
    """Return the kind by the first rule that matches; in a mixed text, the weightier kind of both languages."""
    english, chinese = _languages()
    marks: set[str] = set()
    has_digit = not words.isdisjoint(_DIGITS)
    if ("Error" in body or "Exception" in body) and _ERROR_NAME.search(body):
        marks.add("#error")
    if (has_digit or any(mark in body for mark in _IDENTIFIER_MARKS)) and _IDENTIFIER.search(body):
        marks.add("#identifier")
    kind = _K.THOUGHT
    dates: list[re.Pattern[str]] = []
    if words:
        if has_digit:
            marks.add("#number")
        if has_digit or not words.isdisjoint(DATE_WORDS):
            dates.append(DATE_ENGLISH)
            marks.add("#date")
        kind = _first(english, words | marks, body, dates)
    if ascii_only or not has_han(body):
        return kind
    if has_digit or _NUMBER_CHINESE.search(body):
        marks.add("#number")
    if not DATE_CHARACTERS.isdisjoint(body):
        dates.append(DATE_CHINESE)
        marks.add("#date")
    other = _first(chinese, {*body, *map(add, body, body[1:]), *marks}, body, dates)
    return max(other, kind, key=WEIGHTS.__getitem__)


_DIGITS: Final = frozenset("0123456789")


def _first(language: _Language, cues: set[str], body: str, dates: list[re.Pattern[str]]) -> StatementKind:
    """Return the kind by the first rule that matches. `dates` find the date if a rule requires one."""
    called = language.called
    of_dates = called["#date"]
    orders = {order for cue in called.keys() & cues for order in called[cue]}
    for order in sorted(orders):
        # Dates are slow to find, and most sentences match another rule before that of events.
        if order in of_dates and not any(pattern.search(body) for pattern in dates):
            continue
        pattern = language.patterns[order]
        if pattern is None or pattern.search(body):
            return language.kinds[order]
    return _K.THOUGHT
