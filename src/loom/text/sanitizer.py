"""Clean a text before it is stored: remove control characters, mask sensitive values.

Records are stored verbatim unless the caller asks for this. `inspect` reports the kind and place of each masked
value, never the value, so that the report can be stored. Line breaks, code, hashes and identifiers are unchanged.
Masking covers values with a recognisable form; it does not prove that no private data is left.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from loom.errors import InvalidInput

__all__ = ["DEFAULT_KINDS", "ContentSanitizer", "Finding", "SanitizedContent", "SensitiveKind"]


class SensitiveKind(StrEnum):
    """The kinds of values that can be masked. The replacement is the value of the kind in brackets."""

    EMAIL = "EMAIL"
    PHONE = "PHONE"
    CREDIT_CARD = "CREDIT_CARD"
    API_KEY = "API_KEY"
    SECRET = "SECRET"
    URL = "URL"


# All but whole URLs, which are rarely private. Credentials inside a URL are a SECRET.
DEFAULT_KINDS: frozenset[SensitiveKind] = frozenset(SensitiveKind) - {SensitiveKind.URL}


@dataclass(frozen=True, slots=True)
class Finding:
    """One masked value: `content[start:end]` of the text as it was given."""

    kind: SensitiveKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SanitizedContent:
    """The cleaned text, the masked values in order of the text, and the number of removed characters."""

    text: str
    findings: tuple[Finding, ...] = ()
    removed: int = 0

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of masked values by kind. It can be stored beside the text."""
        return dict(Counter(finding.kind.value for finding in self.findings))


class ContentSanitizer:
    """Removes control characters and masks sensitive values. Sanitising a text twice gives the same result."""

    def __init__(self, mask_sensitive: bool = True, kinds: Iterable[SensitiveKind | str] = DEFAULT_KINDS) -> None:
        kinds = tuple(kinds)
        known = {kind.value for kind in SensitiveKind}
        unknown = sorted({str(kind) for kind in kinds} - known)
        if unknown:
            raise InvalidInput(f"cannot mask {', '.join(unknown)}; the kinds are {', '.join(sorted(known))}")
        self.mask_sensitive = mask_sensitive
        self.kinds = frozenset(SensitiveKind(kind) for kind in kinds)

    def sanitize(self, content: str, mask_sensitive: bool | None = None) -> str:
        """Return the cleaned text. `mask_sensitive` overrides the setting of the sanitizer for this call."""
        return self.inspect(content, mask_sensitive).text

    def inspect(self, content: str, mask_sensitive: bool | None = None) -> SanitizedContent:
        """Return the cleaned text with a report of the changes."""
        if not isinstance(content, str):
            raise InvalidInput(f"only text can be sanitised, not {type(content).__name__}")
        edits = [_Edit(content, _controls(content))]
        edits.append(_Edit(edits[-1].text, _stray_joiners(edits[-1].text)))
        removed = len(content) - len(edits[-1].text)
        found: list[Finding] = []
        if self.mask_sensitive if mask_sensitive is None else mask_sensitive:
            # A masked value may give its neighbour a new boundary, so the result is searched again until
            # nothing is found. The second pass is nearly always the last.
            for _ in range(_MOST_PASSES):
                masks = _non_overlapping(edits[-1].text, self.kinds)
                if not masks:
                    break
                for start, end, kind in masks:
                    for edit in reversed(edits):
                        start, end = edit.origin(start, end)
                    found.append(Finding(kind, start, end))
                edits.append(_Edit(edits[-1].text, [(start, end, f"[{kind}]") for start, end, kind in masks]))
        return SanitizedContent(edits[-1].text, _outermost(found), removed)

    def validate(self, content: object) -> None:
        """Raise `InvalidInput` for a value that cannot be stored as a text: another type, empty, broken Unicode."""
        if not isinstance(content, str):
            raise InvalidInput(f"a text is needed, not {type(content).__name__}")
        if not content or content.isspace():
            raise InvalidInput("the text is empty; there is nothing to keep")
        surrogate = _SURROGATE.search(content)
        if surrogate:
            raise InvalidInput(
                f"the text has a lone surrogate at position {surrogate.start()} and cannot be encoded; "
                "decode it again from its bytes, or replace the character"
            )


_MOST_PASSES = 16
_SURROGATE = re.compile("[\ud800-\udfff]")

Replacement = tuple[int, int, str]
Mask = tuple[int, int, SensitiveKind]


class _Edit:
    """A text with replaced spans that maps positions back to the source."""

    __slots__ = ("_places", "_replacements", "text")

    def __init__(self, source: str, replacements: list[Replacement]) -> None:
        self._replacements = replacements
        self._places: list[int] = []
        pieces: list[str] = []
        position = length = 0
        for start, end, replacement in replacements:
            self._places.append(length + start - position)
            pieces += (source[position:start], replacement)
            length += start - position + len(replacement)
            position = end
        pieces.append(source[position:])
        self.text = "".join(pieces) if replacements else source

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the text to the span of the source. A replacement maps to the whole value."""
        return self._source_of(start)[0], self._source_of(end - 1)[1]

    def _source_of(self, place: int) -> tuple[int, int]:
        index = bisect_right(self._places, place) - 1
        if index < 0:
            return place, place + 1
        start, end, replacement = self._replacements[index]
        beyond = place - self._places[index] - len(replacement)
        return (start, end) if beyond < 0 else (end + beyond, end + beyond + 1)


def _outermost(found: list[Finding]) -> tuple[Finding, ...]:
    """Sort findings by position, without those that a later pass found to be part of a larger one."""
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda finding: (finding.start, -finding.end)):
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
    return tuple(kept)


# --- control characters ------------------------------------------------------------------------------------

# Whole terminal sequences, then other control characters; bidirectional embeddings, overrides and isolates, which
# change the order in which a text is displayed; the byte order mark and other invisible characters; tag letters
# outside flags, which hide ASCII text. Tabs, line breaks, directional marks, and joiners that join (see below) stay.
_CONTROL = re.compile(
    "(?P<keep>\r\n|\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f)"
    "|(?P<line>(?:\r(?!\n)|\x85)+)"
    "|\x1b\\[[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b\\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\\\)"
    "|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]+|\x1b"
    "|[\u180e\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)
# Zero-width space, non-joiner and joiner have a function between letters of many scripts, and between emoji also
# after a variation selector. Beside ASCII characters, or several in a row, they only hide text.
_ZERO_WIDTH = re.compile("[\u200b-\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]+")
_ONE_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_ONE_JOINER = re.compile("[\ufe00-\ufe0f]?[\u200b-\u200d]")


def _controls(text: str) -> list[Replacement]:
    if text.isascii() and text.isprintable():
        return []
    return [
        (match.start(), match.end(), "\n" * len(match.group()) if match.lastgroup == "line" else "")
        for match in _CONTROL.finditer(text)
        if match.lastgroup != "keep"
    ]


def _stray_joiners(text: str) -> list[Replacement]:
    if text.isascii():
        return []
    return [
        (match.start(), match.end(), "")
        for match in _ZERO_WIDTH.finditer(text)
        if not _ONE_SELECTOR.fullmatch(match.group())
        and not (
            _ONE_JOINER.fullmatch(match.group())
            and match.start() > 0
            and text[match.start() - 1] > "\x7f"
            and text[match.end() : match.end() + 1] > "\x7f"
        )
    ]


# --- masks -------------------------------------------------------------------------------------------------


def _non_overlapping(text: str, kinds: frozenset[SensitiveKind]) -> list[Mask]:
    """Find the masks in order of the text. Of two that overlap, the one of the earlier detector is used."""
    taken: list[Mask] = []
    for needed, detect in _DETECTORS:
        if needed.isdisjoint(kinds):
            continue
        found = [mask for mask in detect(text) if mask[2] in kinds and not _MASKED.fullmatch(text, *mask[:2])]
        if found:
            taken = _merged(taken, found)
    return taken


def _merged(taken: list[Mask], found: list[Mask]) -> list[Mask]:
    starts = [start for start, _, _ in taken]
    free: list[Mask] = []
    last = -1
    for start, end, kind in sorted(found):
        before = bisect_right(starts, start) - 1
        is_after = start >= last and (before < 0 or taken[before][1] <= start)
        if is_after and (before + 1 == len(taken) or taken[before + 1][0] >= end):
            free.append((start, end, kind))
            last = end
    return sorted(taken + free)


_MASKED = re.compile(rf"\[(?:{'|'.join(SensitiveKind)})\]")

# Boundaries are ASCII: a Chinese character may be directly beside a number or an address.
_URL = re.compile(r"""(?<![A-Za-z0-9])(?:https?|ftp|wss?)://[^\s<>"'`\[\]{}|\\^，。；！？（）【】《》、]++""")
_URL_END = ".,;:!?)*_~"


def _urls(text: str) -> Iterator[Mask]:
    for match in _URL.finditer(text):
        yield match.start(), match.start() + len(match.group().rstrip(_URL_END)), SensitiveKind.URL


_KEY_BLOCK = re.compile("-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_END = re.compile("-----END (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_LINES = re.compile(r"(?:(?:\s|\\n|\\r){0,4}[A-Za-z0-9+/=]{16,}+)*+")


def _private_keys(text: str) -> Iterator[Mask]:
    """Find whole blocks, and the available lines of a truncated block."""
    position = 0
    ends = [match.end() for match in _KEY_BLOCK_END.finditer(text)]
    for match in _KEY_BLOCK.finditer(text):
        if match.start() < position:
            continue
        following = bisect_right(ends, match.end())
        if following < len(ends):
            position = ends[following]
        else:
            lines = _KEY_BLOCK_LINES.match(text, match.end())
            position = lines.end() if lines else match.end()
        yield match.start(), position, SensitiveKind.SECRET


_URL_PASSWORD = re.compile(r"(?<=://)[^\s/@:?#]{0,256}+:([^\s/?#]{1,2048})(?=@)")


def _found(pattern: re.Pattern[str], kind: SensitiveKind, text: str, group: int = 0) -> Iterator[Mask]:
    """The matches of a pattern, or of one group in it."""
    return ((*match.span(group), kind) for match in pattern.finditer(text))


# Formats that the issuers document, or that any of their keys shows. `_DIGIT` requires a digit among the next
# characters, which kebab-case words do not have.
_DIGIT = r"(?=[A-Za-z_\-]{0,200}[0-9])"
_API_KEY = re.compile(
    r"(?<![A-Za-z0-9_\-])(?:"
    rf"sk-{_DIGIT}[A-Za-z0-9_\-]{{16,}}+"
    r"|[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}+|whsec_[A-Za-z0-9+/=]{16,}+"
    r"|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+"
    rf"|gl(?:pat|dt|rt|ptt)-{_DIGIT}[A-Za-z0-9_\-]{{16,}}+"
    rf"|xox[abeoprs]-{_DIGIT}[A-Za-z0-9\-]{{10,}}+|xapp-{_DIGIT}[A-Za-z0-9\-]{{10,}}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|AIza[A-Za-z0-9_\-]{30,}+|ya29\.[A-Za-z0-9_\-]{20,}+"
    rf"|(?:hf|npm|gsk|r8)_{_DIGIT}[A-Za-z0-9]{{20,}}+|(?:xai|pplx|nvapi|tvly|pypi)-{_DIGIT}[A-Za-z0-9_\-]{{20,}}+"
    r"|SG\.[A-Za-z0-9_\-]{16,64}\.[A-Za-z0-9_\-]{16,}+|dop_v1_[a-f0-9]{32,}+|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32,}+"
    r"|eyJ[A-Za-z0-9_\-]{8,}+\.eyJ[A-Za-z0-9_\-]{8,}+(?:\.[A-Za-z0-9_\-]*+)?"
    r"|[0-9]{8,10}:AA[A-Za-z0-9_\-]{30,}+"
    r")"
)
_BEARER = re.compile(
    r"(?i:(?<![A-Za-z0-9_])bearer[ \t]{1,4}|(?<![A-Za-z0-9_])authorization[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
    r"(?:basic|token|digest)[ \t]{1,4})(?=[A-Za-z+/._~=\-]{0,200}[0-9])([A-Za-z0-9+/._~=\-]{16,}+)"
)


# name = value. The name determines the rules for the value; see `_assigned_values`.
_ASSIGNMENT = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=[a-z])(?=[A-Z]))"
    r"(?i:(?P<password>password|passwd|passphrase|pwd)"
    r"|(?P<key>(?:api|secret|access|private|encryption|signing|auth|account)[_\- ]?key|client[_\- ]?secret|apikey"
    r"|(?:access|auth|refresh|bot|api|id|session|bearer)[_\- ]?token)"
    r"|(?P<weak>token|secret|credential))"
    r"(?:[0-9]{1,2})?(?P<assign>[\"']?[ \t]{0,8}(?:=>|:=|[:=：])[ \t]{0,8}|[ \t]is[ \t])"
    r"|--(?P<flag>password|passwd|passphrase|token|api-key|secret)[ \t]{1,4}"
    r"|(?P<chinese>密[码碼]|口令|密[钥鑰]|金[钥鑰]|令牌|权杖|權杖|通行[码碼])(?:[ \t]{0,4}(?:[:：=]|是|为)[ \t]{0,4})"
)
_QUOTED_VALUE = re.compile(r"""(?P<quote>["'`])(?P<value>[^"'`\n]{4,}+)(?P=quote)""")
# An ampersand belongs to the value unless the next parameter of a query string follows. Only the first part is
# examined: a name that is repeated many times must not be read to the end each time.
_PLAIN_CHARACTER = r"""(?:[^\s"'`,;()\[\]{}<>&，。；、（）「」]|&(?![A-Za-z0-9_.\-]{1,32}=))"""
_HEAD_CHARS = 256
_PLAIN_VALUE = re.compile(f"{_PLAIN_CHARACTER}{{4,{_HEAD_CHARS}}}+")
_PLAIN_REST = re.compile(_PLAIN_CHARACTER + "*+")
_CHINESE_VALUE = re.compile(r"""[!#-&*+\-./0-:=?-Z\\^_a-z|~@]{4,}+""")
# Placeholders of values: types, empty values, names of variables and templates.
_NO_VALUE = re.compile(
    r"(?i:str|string|text|bytes|int|integer|bool|boolean|none|null|nil|true|false|optional|required|any|object|"
    r"undefined|password|passwd|secret|token|hidden|redacted|masked|empty|missing|unset|changed)"
    r"|[A-Z]+(?:_[A-Z0-9]+)+|[$%<{].*|(.)\1*"
)
_STRONG_SIGN = re.compile("[0-9!@#$%^&*+~]")
_LETTER_AND_DIGIT = re.compile("(?=.{0,256}?[A-Za-z])(?=.{0,256}?[0-9])[^ ]{8,}")


def _assigned_values(text: str) -> Iterator[Mask]:
    """Find the values of `password: ...`, `api_key=...` and similar names, without their quotes.

    A quoted value of a password or key is always a secret. A bare value must contain a digit or a special character,
    because `password: str` and `api_key = settings.api_key` are code; `password=letters` at the end of a word is a
    setting. "Token" and "secret" also have other meanings: their values must contain letters and digits.
    """
    last = 0
    for name in _ASSIGNMENT.finditer(text):
        if name.start() < last:
            continue
        if name["chinese"]:
            value = _CHINESE_VALUE.match(text, name.end())
            if value:
                last = value.end()
                yield name.end(), last, SensitiveKind.SECRET
            continue
        kind = SensitiveKind.SECRET if name["password"] or name["weak"] or name["flag"] else SensitiveKind.API_KEY
        quoted = _QUOTED_VALUE.match(text, name.end())
        value = quoted or _PLAIN_VALUE.match(text, name.end())
        if value is None:
            continue
        start, end = value.span("value") if quoted else value.span()
        if not quoted:
            end = start + len(text[start:end].rstrip(".:!?"))
        if not _is_secret(name, text[start:end], text[end : end + 1], quoted is not None):
            continue
        if not quoted and value.end() - start == _HEAD_CHARS:
            rest = _PLAIN_REST.match(text, value.end())
            end = rest.end() if rest else end
        last = end
        yield start, end, kind


def _is_secret(name: re.Match[str], value: str, following: str, quoted: bool) -> bool:
    if _NO_VALUE.fullmatch(value) or following in ("(", "["):
        return False
    if name["weak"]:
        return _LETTER_AND_DIGIT.fullmatch(value) is not None
    if quoted or _STRONG_SIGN.search(value):
        return True
    setting = name["password"] and name["assign"] == "="
    return bool(setting and value.isalpha() and following in ("", " ", "\n", "&", ";"))


_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-])(?!git@)[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63}+@"
    r"(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9_\-])"
)


# A separate number: not a part of a word, a decimal, a path, a colour or an issue.
_NUMBER_START = r"(?<![A-Za-z0-9_.\-/#])(?<![0-9],)"
_NUMBER_END = r"(?![A-Za-z0-9_]|[\-.,:/][0-9A-Za-z])"
# A lookahead, so that a rejected candidate does not hide one that begins inside it.
_CARD = re.compile(
    rf"{_NUMBER_START}(?=([0-9]{{13,19}}{_NUMBER_END}"
    rf"|[0-9]{{4}}([ \-])[0-9]{{4}}\2[0-9]{{4}}\2[0-9]{{4}}(?:\2[0-9]{{3}})?{_NUMBER_END}"
    rf"|[0-9]{{4}}([ \-])[0-9]{{6}}\3[0-9]{{4,5}}{_NUMBER_END}))"
)
# The first digits of each issuer, with the lengths of its numbers.
_CARD_NUMBER = re.compile(
    "4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"
    "|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"
    "|3[47][0-9]{13}|3(?:0[0-5]|[689][0-9])[0-9]{11}|35(?:2[89]|[3-8][0-9])[0-9]{12}"
    "|6(?:011|4[4-9][0-9]|5[0-9]{2}|2[0-9]{2})[0-9]{12,15}|(?:50|5[6-9]|6[0-9])[0-9]{14}"
)


def _cards(text: str) -> Iterator[Mask]:
    last = -1
    for match in _CARD.finditer(text):
        start, end = match.span(1)
        digits = match[1].replace(" ", "").replace("-", "")
        if start >= last and _CARD_NUMBER.fullmatch(digits) and _passes_luhn(digits):
            last = end
            yield start, end, SensitiveKind.CREDIT_CARD


def _passes_luhn(digits: str) -> bool:
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


# Forms that are telephone numbers in any context: with +country code, Chinese mobile and landline numbers, North
# American numbers with punctuation.
_PHONE = re.compile(
    r"(?<![A-Za-z0-9_.\-/#+])(?:"
    rf"(?:(?:\+|00)?86[ \-]?)?1[3-9][0-9]([ \-]?)[0-9]{{4}}\1[0-9]{{4}}{_NUMBER_END}"
    rf"|\+[1-9][0-9]{{0,2}}(?:[ .\-]?\(?[0-9]{{2,5}}\)?){{2,5}}{_NUMBER_END}"
    rf"|0[1-9][0-9]{{1,2}}-[0-9]{{4}} ?[0-9]{{3,4}}{_NUMBER_END}"
    rf"|(?:1[ .\-])?\([2-9][0-9]{{2}}\)[ \-]?[0-9]{{3}}[ .\-][0-9]{{4}}{_NUMBER_END}"
    rf"|(?:1[.\-])?[2-9][0-9]{{2}}([.\-])[0-9]{{3}}\2[0-9]{{4}}{_NUMBER_END}"
    r")"
)
_DATE_OR_ADDRESS = (
    r"(?!(?:19|20)[0-9]{2}[.\-][0-9]{1,2}[.\-][0-9]{1,2}(?![0-9])|[0-9]{1,2}[.\-][0-9]{1,2}[.\-](?:19|20)[0-9]{2}(?![0-9])"
    r"|(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]))"
)
# Any digits after a word for telephone.
_SAID_PHONE = re.compile(
    r"(?:(?i:(?<![A-Za-z])(?:tel|phone|telephone|mobile|cell|call|fax|whatsapp)(?:[ \t](?:me|us|him|her|them))?"
    r"(?:[ \t](?:no\.?|number))?(?:[ \t](?:is|at|on))?)|[电電][话話]|手[机機]|座机|传真|傳真|联系方式|致电|拨打)"
    r"(?:号码?|號碼?)?(?:是|为)?[ \t]?[:：.]?[ \t]?"
    rf"{_DATE_OR_ADDRESS}(\+?\(?[0-9](?:[ .()\-]{{0,2}}[0-9]){{6,14}}{_NUMBER_END})"
)
_SAID_IDENTIFIER = re.compile(
    r"(?i:(?<![A-Za-z])(?:order|invoice|ticket|issue|id|uid|sku|serial|tracking|ref|reference|case|batch|timestamp)"
    r"(?:[ \t_](?:id|no\.?|number|nr))?|订单号?|單號|单号|编号|編號|流水号|序列号|序号|工号|时间戳|[$€£¥￥])"
    r"[ \t]{0,2}(?:[:：=#]|is|是|为)?[ \t]{0,2}$"
)
_CONTEXT_CHARS = 32


def _phones(text: str) -> Iterator[Mask]:
    yield from _found(_SAID_PHONE, SensitiveKind.PHONE, text, 1)
    for match in _PHONE.finditer(text):
        start = match.start()
        digits = sum(character.isdigit() for character in match.group())
        if 9 <= digits <= 15 and not _SAID_IDENTIFIER.search(text, max(0, start - _CONTEXT_CHARS), start):
            yield start, match.end(), SensitiveKind.PHONE


_DETECTORS: tuple[tuple[frozenset[SensitiveKind], Callable[[str], Iterator[Mask]]], ...] = (
    (frozenset({SensitiveKind.URL}), _urls),
    (frozenset({SensitiveKind.SECRET}), _private_keys),
    (frozenset({SensitiveKind.SECRET}), lambda text: _found(_URL_PASSWORD, SensitiveKind.SECRET, text, 1)),
    (
        frozenset({SensitiveKind.API_KEY}),
        lambda text: chain(
            _found(_API_KEY, SensitiveKind.API_KEY, text), _found(_BEARER, SensitiveKind.API_KEY, text, 1)
        ),
    ),
    (frozenset({SensitiveKind.SECRET, SensitiveKind.API_KEY}), _assigned_values),
    (
        frozenset({SensitiveKind.EMAIL}),
        lambda text: _found(_EMAIL, SensitiveKind.EMAIL, text) if "@" in text else iter(()),
    ),
    (frozenset({SensitiveKind.CREDIT_CARD}), _cards),
    (frozenset({SensitiveKind.PHONE}), _phones),
)
