"""The text analyser: it splits English and Chinese text into terms, for records and questions alike.

`terms` is for the index, `query_terms` for the question; both use the same analysis, so every term of a question can
be found. Pure functions of the text. Code that stores terms must store `ANALYZER_VERSION` beside them and rebuild
them when it differs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Set
from functools import cache
from hashlib import blake2b
from itertools import chain
from operator import add
from string import ascii_letters, digits
from typing import NamedTuple, TypeVar

from loom.text.scripts import UNSPACED, is_han

__all__ = [
    "ANALYZER_VERSION",
    "MAX_TERM_CHARS",
    "Known",
    "Token",
    "content_terms",
    "half_width",
    "irregular_beginnings",
    "is_function_word",
    "query_terms",
    "simplified",
    "simplified_in_place",
    "spelled",
    "spoken",
    "terms",
    "tokens",
    "word_set",
]

# Increase this number with every change of terms, of records or of questions.
ANALYZER_VERSION = 1

# Longer words are replaced by a digest (`#` and 24 hex digits), so only their exact value is found.
MAX_TERM_CHARS = 64

# The weights of a question's terms; see `query_terms`.
_PART_WEIGHT = 0.5
_FUNCTION_WEIGHT = 0.1
_LIGHT_WEIGHT = 0.3
_CHARACTER_WEIGHT = 0.5

# A longer Chinese question has enough bigrams; its characters would only cost time.
_CHARACTER_LIMIT = 16

# Raw tokens are analysed once. Cleared when full: cheaper than tracking use, and refilled within milliseconds.
CACHE_TOKENS = 32_768
_CACHE_TOKEN_CHARS = 40


def word_set(words: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(words.split())


def spoken(name: str | None, content: str) -> str:
    """Return the searched text of a record: its speaker and its words."""
    return f"{name}: {content}" if name else content


def terms(text: str) -> list[str]:
    """Return the terms of a text, with repetitions, in the order of its words.

    A compound (`memory_manager`, `src/loom/core.py`, `v1.2.3`) has the terms of its whole form and then of its parts,
    each once; a run of Chinese, Japanese or Korean characters has its bigrams and then its characters. Names that
    begin with a dot (`.env`) come last.
    """
    if text.isascii():
        if len(text) < _BLOB_CHARS:
            found = list(chain.from_iterable(map(TOKEN_TERMS.__getitem__, _ASCII_TOKEN.findall(text))))
            if "." in text:
                found += _dotted_names(text)
            return found
    else:
        text = _fold_width(text)
    found = []
    for piece, digest in _without_blobs(text):
        if piece.isascii():
            found += chain.from_iterable(map(TOKEN_TERMS.__getitem__, _ASCII_TOKEN.findall(piece)))
        else:
            tokens_of, is_unspaced = _beyond_ascii()
            for token in tokens_of(piece):
                if token[0] < _FIRST_UNSPACED or not is_unspaced(token):
                    found += TOKEN_TERMS[token]
                else:
                    run = token if _TRADITIONAL.isdisjoint(token) else token.translate(_TO_SIMPLIFIED)
                    # Bigrams find words. The characters serve a question of one character, which bigrams alone
                    # cannot answer.
                    found += map(add, run, run[1:])
                    found += run
        if "." in piece:
            found += _dotted_names(piece)
        if digest:
            found.append(digest)
    return found


def content_terms(text: str) -> list[str]:
    """Return the content terms of a text, each once, without function words and single characters.

    Coarser than `query_terms`, but takes a tenth of its time in Chinese: bigrams with a function character are left
    out.
    """
    return [
        term
        for term in dict.fromkeys(terms(text))
        if len(term) > 1 and term not in _FUNCTION_WORDS and (term.isascii() or _FUNCTION_SIGNS.isdisjoint(term))
    ]


class Token(NamedTuple):
    """A word of a text with its terms, the whole form first; or a simplified run of an unspaced script, without
    terms."""

    text: str
    terms: tuple[str, ...]
    is_unspaced: bool
    is_function: bool
    """Whether questions drop this word."""


def tokens(text: str) -> list[Token]:
    """Return the words of a text in order, without encoded data."""
    if not text.isascii():
        text = _fold_width(text)
    found: list[Token] = []
    for piece, _ in _without_blobs(text):
        if piece.isascii():
            found += map(_TOKENS.__getitem__, _ASCII_TOKEN.findall(piece))
            continue
        tokens_of, is_unspaced = _beyond_ascii()
        for token in tokens_of(piece):
            if token[0] >= _FIRST_UNSPACED and is_unspaced(token):
                run = token if _TRADITIONAL.isdisjoint(token) else token.translate(_TO_SIMPLIFIED)
                found.append(Token(run, (), True, False))
            else:
                found.append(_TOKENS[token])
    return found


def spelled(text: str, wanted: Set[str]) -> list[str]:
    """Return the words of a text that have one of these terms, in their spelling, each once.

    In an unspaced run, these are the parts that the terms cover.
    """
    found: dict[str, str] = {}
    for token in tokens(text):
        if token.is_unspaced:
            found.update((stretch, stretch) for stretch in _covered(token.text, wanted))
        elif not wanted.isdisjoint(token.terms):
            found.setdefault(token.text.casefold(), token.text)
    return list(found.values())


def _covered(run: str, wanted: Set[str]) -> Iterator[str]:
    """Yield the parts of a run in which each bigram is a term, and single characters that are terms."""
    start = 0
    for place in range(1, len(run) + 1):
        if place == len(run) or run[place - 1 : place + 1] not in wanted:
            if place - start > 1 or run[start] in wanted:
                yield run[start:place]
            start = place


@cache
def irregular_beginnings(letters: int) -> dict[str, frozenset[str]]:
    """Map the first letters of plain English words (bu, for buy) to those of their irregular forms (bo)."""
    found: dict[str, set[str]] = {}
    for form, plain in _IRREGULAR.items():
        found.setdefault(plain[:letters], set()).add(form[:letters])
    return {beginning: frozenset(others) for beginning, others in found.items()}


def query_terms(text: str) -> dict[str, float]:
    """Return the terms of a question with their weights, in the order of the question.

    Question words and function words are dropped, unless nothing else is left. A whole word weighs 1, a part of a
    compound less, and a Chinese bigram with a function character (的, 了, 是) much less: it is noise, unless the
    character belongs to an unknown word. The characters of a short Chinese question count half, so 结婚 finds 婚礼. A
    repeated term weighs more.
    """
    weights: dict[str, float] = {}
    characters = ""
    if not text.isascii():
        text = _fold_width(text)
    capitals_mean_names = not text.isupper()
    for piece, digest in _without_blobs(text):
        for token in _ASCII_TOKEN.findall(piece) if piece.isascii() else _beyond_ascii()[0](piece):
            if token[0] >= _FIRST_UNSPACED and _beyond_ascii()[1](token):
                run = token if _TRADITIONAL.isdisjoint(token) else token.translate(_TO_SIMPLIFIED)
                characters += _add_unspaced(run, weights)
            elif not is_function_word(token, capitals_mean_names):
                weight = 1.0
                for term in TOKEN_TERMS[token]:
                    weights[term] = weights.get(term, 0.0) + weight
                    weight = _PART_WEIGHT
        for name in _dotted_names(piece):
            weights[name] = weights.get(name, 0.0) + 1.0
        if digest:
            weights[digest] = weights.get(digest, 0.0) + 1.0
    if len(characters) <= _CHARACTER_LIMIT:
        for character in characters:
            weights.setdefault(character, _CHARACTER_WEIGHT)
    return weights or dict.fromkeys(terms(text), 1.0)


# --- folding -----------------------------------------------------------------------------------------------

# Invisible characters inside words that are not a part of them.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufe00-\ufe0f\ufeff]")
_LONG_MARK_RUN = re.compile(r"([^\w\s]{64})(?=[^\w\s])")


def _fold_width(text: str) -> str:
    """Convert to half width and remove invisible characters. Case and accents are folded by token."""
    return half_width(_INVISIBLE.sub("", text))


def half_width(text: str) -> str:
    """Convert full width to half width, compatibility forms to plain ones, and all apostrophes to one."""
    # Nearly every Chinese text contains these. Without them a text is usually in normal form, which takes 0.1 us
    # to check; normalising 46 characters takes 11 us.
    text = text.replace("，", ",").replace("：", ":").replace("？", "?").replace("！", "!").replace("；", ";")
    text = text.replace("（", "(").replace("）", ")").replace("’", "'")
    if unicodedata.is_normalized("NFKC", text):
        return text
    if len(text) > 4096:
        # Sorting combining marks is quadratic in their number; no language has 64 in a row.
        text = _LONG_MARK_RUN.sub(r"\1 ", text)
    return unicodedata.normalize("NFKC", text)


def simplified(text: str) -> str:
    """Convert full width to half width, and traditional characters to simplified ones."""
    text = _fold_width(text)
    return text if _TRADITIONAL.isdisjoint(text) else text.translate(_TO_SIMPLIFIED)


def simplified_in_place(text: str) -> str:
    """Convert full-width letters and digits, and traditional characters, without changing offsets."""
    return text.translate(_TO_PLAIN) if not text.isascii() and _folded_in_place().search(text) else text


@cache
def _folded_in_place() -> re.Pattern[str]:
    """Return the pattern of the characters that `simplified_in_place` changes; nine times as fast as a set."""
    return re.compile(f"[{''.join(map(re.escape, sorted(map(chr, _TO_PLAIN))))}]")


def _fold_letters(word: str) -> str:
    """Remove accents of Latin letters and convert the decimal digits of all scripts to 0-9."""
    if word.isascii():
        return word
    letters: list[str] = []
    latin = False
    for character in unicodedata.normalize("NFD", word):
        if character.isdecimal():
            letters.append(str(unicodedata.decimal(character)))
        elif not (latin and "\u0300" <= character <= "\u036f"):
            letters.append(character)
            latin = character < "\u0250"
    return unicodedata.normalize("NFC", "".join(letters))


# --- tokens ------------------------------------------------------------------------------------------------

# No character below this one is of an unspaced script, which quickly excludes most tokens.
_FIRST_UNSPACED = "\u0e01"

# Vowel signs and similar characters: parts of a word that Python does not count as word characters. From Devanagari
# to Sinhala, the blocks contain mostly letters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u07eb-\u07f3\u07fd"
    "\u0816-\u082d\u0859-\u085b\u0898-\u089f\u08ca-\u08e1\u08e3-\u0963\u0971-\u09fb\u09fe\u0a01-\u0a75"
    "\u0a81-\u0aef\u0afa-\u0b6f\u0b82-\u0bf2\u0c00-\u0c6f\u0c80-\u0c83\u0c85-\u0cf3\u0d00-\u0d6f\u0d81-\u0df3"
)

# A word, and further words joined by one character: memory-manager, a.b, src/loom, ana@example.com, don't, 12:30,
# 1,000. The underscore is a word character. C++ and C# keep their endings.
_JOINED = r"(?:[.\-/@']{word}|(?<=[0-9]):[0-9]++|(?<=[0-9]),[0-9]{{3}}(?![0-9]))*+(?:(?:\+\+|\#)(?![A-Za-z0-9_]))?"
_ASCII_WORD = "[A-Za-z0-9_]++"
_WORD = rf"[^\W{UNSPACED}]++(?:[{_MARKS}]++[^\W{UNSPACED}]*+)*+"
_ASCII_TOKEN = re.compile(_ASCII_WORD + _JOINED.format(word=_ASCII_WORD))
_EMOJI = "\u2600-\u27bf\U0001f300-\U0001faff"


@cache
def _beyond_ascii() -> tuple[Callable[[str], list[str]], Callable[[str], re.Match[str] | None]]:
    """Return two functions: one splits a text into tokens, one matches a run of an unspaced script.

    Compiled at first use, which takes 9 ms.
    """
    token = re.compile(f"[{UNSPACED}]++|{_WORD}{_JOINED.format(word=_WORD)}|[{_EMOJI}]")
    return token.findall, re.compile(f"[{UNSPACED}]").match


# .NET, .env: a term with the dot, in addition to the one without.
_DOTTED_NAME = re.compile(r"(?<![\w.)\]])\.[A-Za-z]\w{0,62}")
_DOT_OPENERS = (" .", "`.", "(.", "/.", "\n.", '".', "'.")


def _dotted_names(text: str) -> list[str]:
    if text[0] == "." or any(opener in text for opener in _DOT_OPENERS):
        return [_bounded(name.casefold()) for name in _DOTTED_NAME.findall(text)]
    return []


# Encoded data (base64, hex) in one piece or in lines of at least 60 characters is one term: 1 MB of it would
# otherwise have tens of thousands of terms that no question contains.
_BLOB_CHARS = 128
_BLOB = re.compile(
    rf"(?<![A-Za-z0-9+/_\-])(?:[A-Za-z0-9+/_\-]{{{_BLOB_CHARS},}}+"
    r"|[A-Za-z0-9+/_\-]{60,}+(?:\r?\n[A-Za-z0-9+/_\-]{60,}+)++)"
)
_BLOB_SEPARATOR = re.compile(r"[+/_\-\n]")
# Between two separators, base64 has 32 characters on average, words in a long path about six.
_BLOB_PIECE_CHARS = 14


def _without_blobs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text in pieces, each with the digest of the encoded data after it, or an empty string."""
    start = 0
    if len(text) >= _BLOB_CHARS and any(text.find(" ", i, i + 60) < 0 for i in range(0, len(text) - 59, 60)):
        for blob in _BLOB.finditer(text):
            value = blob.group()
            if len(value) >= _BLOB_PIECE_CHARS * (1 + len(_BLOB_SEPARATOR.findall(value))):
                if start < blob.start():
                    yield text[start : blob.start()], _digest(value)
                else:
                    yield " ", _digest(value)
                start = blob.end()
    if start < len(text):
        yield text[start:] if start else text, ""


def _digest(value: str) -> str:
    return "#" + blake2b(value.casefold().encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


_Read = TypeVar("_Read")


class Known(dict[str, _Read]):
    """A bounded map from raw tokens to their analysis, filled on demand."""

    def __init__(self, read: Callable[[str], _Read]) -> None:
        self._read = read

    def __missing__(self, token: str) -> _Read:
        found = self._read(token)
        if len(token) <= _CACHE_TOKEN_CHARS:
            if len(self) >= CACHE_TOKENS:
                self.clear()
            self[token] = found
        return found


# --- words -------------------------------------------------------------------------------------------------

_CLITICS = frozenset(("s", "m", "re", "ve", "ll", "d"))
_SEGMENT = re.compile("[/@:]")
_CAMEL = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ACRONYM_PLURAL = re.compile("[A-Z]{2,}s")
# A hyphen or underscore counts only between digits: memory_manager, memory-manager and MemoryManager are one name,
# but 1-2 is not 12.
_SILENT_JOINER = re.compile("(?<![0-9])[-_']+|[-_']+(?![0-9])")
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LONG_HEX = re.compile("(?=[a-fA-F]*[0-9])[0-9a-fA-F]{20,64}")


def _analyse(token: str) -> tuple[str, ...]:
    """Return the terms of a token, the whole form first, each once."""
    word = _fold_letters(token)
    if word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
        return (_stem(word.casefold()),)
    if word[-1] in "+#":
        base = word.rstrip("+#")
        return _distinct([_bounded(word.casefold()), *_analyse(base)])
    segments = _SEGMENT.split(word.replace(",", ""))
    if len(segments) == 1:
        return _distinct(_dotted_terms(segments[0]))
    whole = _SILENT_JOINER.sub("", word).casefold()
    return _distinct([_bounded(whole), *chain.from_iterable(map(_dotted_terms, dict.fromkeys(segments)))])


# The index needs only the terms, of every word of every text; the whole form comes first.
TOKEN_TERMS = Known(_analyse)
_TOKENS = Known(lambda token: Token(token, TOKEN_TERMS[token], False, is_function_word(token)))


def _distinct(found: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, found)))


def _bounded(term: str) -> str:
    return term if len(term) <= MAX_TERM_CHARS else _digest(term)


def _dotted_terms(segment: str) -> list[str]:
    """Return the terms of `a.b.c` as a whole and in parts, of `U.S.A` as one word, of `v1.2` also without its v."""
    names = segment.split(".")
    if len(names) == 1:
        return _name_terms(segment)
    if all(len(name) == 1 and name.isalpha() for name in names):
        return [_bounded("".join(names).casefold())]
    whole = _SILENT_JOINER.sub("", segment).casefold()
    found = [_bounded(whole)]
    if whole[0] == "v" and whole[1:2].isdigit():
        found.append(_bounded(whole[1:]))
    found += chain.from_iterable(map(_name_terms, dict.fromkeys(names)))
    return found


def _name_terms(name: str) -> list[str]:
    """Return the terms of a name in snake, kebab or camel case, with digits or an apostrophe."""
    host, apostrophe, clitic = name.rpartition("'")
    if apostrophe and clitic.casefold() in _CLITICS:
        name = host
    elif apostrophe and clitic in "tT" and host[-1] in "nN":
        return [_bounded((host + clitic).replace("'", "").casefold())]
    if _UUID.fullmatch(name):
        return [name.replace("-", "").casefold(), *name.casefold().split("-")]
    whole = _SILENT_JOINER.sub("", name).casefold()
    if len(whole) > MAX_TERM_CHARS:
        found = [_digest(whole)]
    else:
        found = [_stem(whole)]
        if _LONG_HEX.fullmatch(whole):
            # Commits are cited by their first seven or eight digits.
            return [*found, whole[:7], whole[:8]]
    pieces = re.split("[-_']+", name.strip("-_'"))
    for piece in pieces:
        if len(pieces) > 1:
            found.append(_stem(piece.casefold()))
        found += _camel_parts(piece)
    return found


def _camel_parts(piece: str) -> list[str]:
    """Split `HTTPServer2` into http, server, 2, httpserver; nothing for a plain word or a serial number."""
    if not piece.isascii() or len(piece) > MAX_TERM_CHARS or piece.isdigit():
        return []
    if piece.isalpha() and (piece.islower() or piece.istitle() or piece.isupper()):
        return []
    parts = _CAMEL.findall(piece)
    digits = sum(part.isdigit() for part in parts)
    if digits > 1 or _ACRONYM_PLURAL.fullmatch(piece):
        return []
    # A single letter between other parts (iPhone, 3d) has no meaning by itself.
    found = [_stem(part.casefold()) for part in parts if len(part) > 1 or part.isdigit()]
    if len(parts) > 2 and parts[-1].isdigit():
        found.append(_stem("".join(parts[:-1]).casefold()))
    return found


# --- English -----------------------------------------------------------------------------------------------

_VOWELS = frozenset("aeiouy")
_CONSONANTAL_Y = re.compile("^y|(?<=[aeiouy])y")
_REGION = re.compile("[aeiouy][^aeiouy]")
_SHORT_SYLLABLE = re.compile("(?:^[aeiouy][^aeiouy]|[^aeiouy][aeiouy][^aeiouywxY]|^past)$")


def _stem(word: str) -> str:
    """Return the Porter2 stem of a lower-case English word, irregular forms first; other words are unchanged.

    Measured on the LoCoMo development half, turn text and caption (evidence recall@5/@10, k1 1.2, b 0.75): no
    stemming 48.8/56.1, plural s only 48.8/56.2, inflections only 49.8/58.7, Porter2 50.2/58.8, with irregular
    forms 51.3/59.4.
    """
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return _bounded(word)
    if len(word) > MAX_TERM_CHARS:
        return _digest(word)
    word = _IRREGULAR.get(word, word)
    if word in _STEM_AS_IS:
        return word
    if "y" in word:
        word = _CONSONANTAL_Y.sub("Y", word)
    first, second = _regions(word)
    word = _without_plural(word)
    if word in _AS_IS_WITHOUT_PLURAL:
        return word
    word = _without_past_and_gerund(word, first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _without_suffix(word, _STEP_2, first, second)
    word = _without_suffix(word, _STEP_3, first, second)
    word = _without_suffix(word, _STEP_4, second, second)
    if word[-1] == "e":
        if len(word) > second or (len(word) > first and not _SHORT_SYLLABLE.search(word[:-1])):
            word = word[:-1]
    elif word[-2:] == "ll" and len(word) > second:
        word = word[:-1]
    return word.lower()


def _regions(word: str) -> tuple[int, int]:
    """Return the offsets at which Porter2's R1 and R2 begin: after the first consonant that follows a vowel, and
    again."""
    if word.startswith(_REGION_PREFIXES):
        first = next(len(prefix) for prefix in _REGION_PREFIXES if word.startswith(prefix))
    else:
        match = _REGION.search(word)
        first = match.end() if match else len(word)
    match = _REGION.search(word, first)
    return first, match.end() if match else len(word)


def _without_plural(word: str) -> str:
    if word[-1] not in "sd":
        return word
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ies", "ied")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word[-1] == "s" and word[-2] not in "us" and not _VOWELS.isdisjoint(word[:-2]):
        return word[:-1]
    return word


def _without_past_and_gerund(word: str, first: int) -> str:
    if word[-1] not in "dgy":
        return word
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + "ee" if len(base) >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if _VOWELS.isdisjoint(base):
                return word
            if base.endswith(("at", "bl", "iz")):
                return base + "e"
            if base[-1:] == base[-2:-1] and base[-1] in "bdfgmnprt" and base not in _DOUBLED_AS_IS:
                return base[:-1]
            if len(base) <= first and _SHORT_SYLLABLE.search(base):
                return base + "e"
            return base
    return word


def _without_suffix(word: str, rules: dict[str, str], region: int, second: int) -> str:
    """Replace the longest suffix that has a rule, if it is in the region."""
    if word[-2:] not in _SUFFIX_ENDINGS:
        return word
    for length in range(min(7, len(word) - 1), 1, -1):
        suffix = word[-length:]
        replacement = rules.get(suffix)
        if replacement is None:
            continue
        base = word[:-length]
        if len(base) < region or (suffix == "ative" and len(base) < second):
            return word
        if suffix in _NEEDS_BEFORE and base[-1] not in _NEEDS_BEFORE[suffix]:
            return word
        return base + replacement
    return word


_REGION_PREFIXES = ("gener", "commun", "arsen", "past", "univers", "later", "emerg", "organ", "inter")
_STEM_AS_IS = frozenset(
    ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes", "early", "only", "ugly", "singly")
)
_AS_IS_WITHOUT_PLURAL = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed")
)
_DOUBLED_AS_IS = frozenset(("add", "egg", "odd", "ebb", "err", "off"))
_STEP_2 = {
    "tional": "tion", "enci": "ence", "anci": "ance", "abli": "able", "entli": "ent", "izer": "ize",
    "ization": "ize", "ational": "ate", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al",
    "alli": "al", "fulness": "ful", "ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive",
    "biliti": "ble", "bli": "ble", "ogi": "og", "ogist": "og", "fulli": "ful", "lessli": "less", "li": "",
}  # fmt: skip
_STEP_3 = {
    "tional": "tion", "ational": "ate", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic", "ful": "",
    "ness": "", "ative": "",
}  # fmt: skip
_STEP_4 = {
    "al": "", "ance": "", "ence": "", "er": "", "ic": "", "able": "", "ible": "", "ant": "", "ement": "",
    "ment": "", "ent": "", "ism": "", "ate": "", "iti": "", "ous": "", "ive": "", "ize": "", "ion": "",
}  # fmt: skip
_SUFFIX_ENDINGS = frozenset(suffix[-2:] for suffix in (*_STEP_2, *_STEP_3, *_STEP_4))
_NEEDS_BEFORE = {"ogi": "l", "li": "cdeghkmnrt", "ion": "st"}

# The plain form, then the irregular ones. A form that is also another word (found, left, saw) counts as the verb,
# which is its usual meaning in memories and questions. Forms that usually are another word (bit, rose, lives) are
# left out.
_IRREGULAR_FORMS = """
arise arose arisen; awake awoke awoken; bear borne; beat beaten; become became; begin began begun;
bend bent; bind bound; bite bitten; bleed bled; blow blew blown; break broke broken; breed bred;
bring brought; build built; burn burnt; buy bought; catch caught; choose chose chosen; come came; creep crept;
deal dealt; dig dug; do did done does; draw drew drawn; dream dreamt; drink drank drunk; drive drove driven;
eat ate eaten; fall fell fallen; feed fed; feel felt; fight fought; find found; flee fled; fly flew flown;
forbid forbade forbidden; forget forgot forgotten; forgive forgave forgiven; freeze froze frozen;
get got gotten; give gave given; go went gone goes; grow grew grown; hang hung; have has had; hear heard;
hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lay laid; lead led; leap leapt;
learn learnt; leave left; lend lent; light lit; lose lost; make made; mean meant; meet met; pay paid;
ride rode ridden; ring rang rung; rise risen; run ran; say said; see saw seen; seek sought; sell sold;
send sent; shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung;
sink sank sunk; sit sat; sleep slept; slide slid; speak spoke spoken; spend spent; spin spun; stand stood;
steal stole stolen; stick stuck; sting stung; strike struck; strive strove; swear swore sworn; sweep swept;
swim swam swum; swing swung; take took taken; teach taught; tear tore torn; tell told; think thought;
throw threw thrown; understand understood; wake woke woken; wear wore worn; weave wove woven; weep wept;
win won; withdraw withdrew withdrawn; write wrote written; die dying; lie lying; tie tying; ski skis;
child children; foot feet; goose geese; man men; mouse mice; person people; tooth teeth; woman women;
wife wives; knife knives; shelf shelves; half halves; wolf wolves; loaf loaves;
thief thieves; index indices; matrix matrices; vertex vertices; analysis analyses; criterion criteria;
diagnosis diagnoses; hypothesis hypotheses; crisis crises; phenomenon phenomena
"""
_IRREGULAR = {
    form: plain for plain, *forms in (entry.split() for entry in _IRREGULAR_FORMS.split(";")) for form in forms
}

# Dropped from questions. Words that restrict a question (before, after, only, same) stay, and so does may, which is a
# month.
_FUNCTION_WORDS = word_set("""
what when where which who whom whose why how much many
a an the this that these those there here
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
am is are was were be been being do does did doing done have has had having
can could would should will shall might must cannot
and or but if so nor than then because while as of at by for with about into to from in on off out up
not no dont didnt doesnt isnt arent wasnt werent hasnt havent hadnt wont wouldnt cant couldnt shouldnt
please
""")
# These are names if they are in capitals within a question that is not: the IT team, the US, WHO.
_FUNCTION_ACRONYMS = frozenset(("IT", "US", "WHO", "AM", "OR", "IN", "IS", "AS", "SO", "NO", "HIS", "CAN"))


def is_function_word(token: str, capitals_mean_names: bool = True) -> bool:
    """Whether a question drops this word, in this spelling."""
    word = token.casefold()
    if "'" in word:
        host, _, clitic = word.rpartition("'")
        word = host if clitic in _CLITICS else word.replace("'", "")
    return word in _FUNCTION_WORDS and not (capitals_mean_names and token in _FUNCTION_ACRONYMS)


# --- Chinese -----------------------------------------------------------------------------------------------

# Content words that contain a function character.
_CHINESE_CONTENT = """
目的 的确 的士 了解 了不起 是非 在线 存在 现在 实在 内在 所在 在职 在乎 潜在 和平 和谐 温和 总和 饱和 和解
共和 与会 参与 自我 我国 迷你 你好 其他 其它 吉他 他人 都市 首都 成都 京都 就业 成就 就职 就医 就读 就诊
也许 着急 着手 着装 着火 着陆 穿着 执着 着重 着凉 把握 把手 拖把 被子 棉被 被告 被动 普及 涉及 及时 及格
请假 申请 邀请 请求 请客 请教 聘请 所有 拥有 有效 有限 有趣 有机 有关 酒吧 网吧 贴吧 几乎 几何 茶几 哪吒
谁知
"""
# Question words and function words of at least two characters, and single ones that are rarely a part of another
# word. A bigram across them is never asked for.
_CHINESE_FUNCTION_WORDS = """
为什么 什么时候 什么地方 什么样 什么 怎么样 怎么办 怎么 怎样 如何 为何 何时 何地 何处 哪里 哪儿 哪个 哪些
哪种 哪位 哪天 哪年 哪 谁 几个 几点 几次 几 多少 多久 是否 是不是 有没有 能不能 可不可以 会不会 要不要
请问 告诉 吗 呢 吧 啊 呀 嘛 我们 你们 他们 她们 它们 咱们 这个 那个 这些 那些 这里 那里 这儿 那儿 这样
那样 这么 那么 这种 那种 时候 以及 或者 还是 因为 所以 但是 如果 的话 一下 一些 一个 可以 已经 关于 对于
"""
# Words of manner or time beside the subject of a question. They count little.
_CHINESE_LIGHT_WORDS = """
最后 最终 终于 后来 然后 当初 起初 原来 本来 以前 从前 之前 以后 之后 将来 现在 目前 如今 当时 那时 平时 最近
打算 准备 计划 想要 需要 应该 应当 必须 能够 可能 也许 大概 觉得 认为 以为 知道 希望 开始 继续 进行 使用 通过
起来 出来 下来 上来 过来 回来 进来 出去 下去 上去 过去 东西 事情 情况 方面 有关 相关 具体 主要 一般 通常 经常
曾经 一直 总是 真的 确实 特别 非常 比较 一起 一共 总共 大约 左右 自己 别人 大家 有人 某个 各个 每个 另外 其中
"""
_CHINESE_FUNCTION_CHARACTERS = "的了是在和与我你他她它您这那也都就着很把被之请及有"
_FUNCTION_SIGNS = frozenset(_CHINESE_FUNCTION_CHARACTERS + "吗呢吧啊呀嘛什么怎哪谁几个")
_CHINESE_WORDS = re.compile(
    f"({'|'.join(_CHINESE_CONTENT.split())})"
    f"|({'|'.join(_CHINESE_FUNCTION_WORDS.split())})"
    f"|({'|'.join(_CHINESE_LIGHT_WORDS.split())})"
    f"|[{_CHINESE_FUNCTION_CHARACTERS}]"
)
_CONTENT, _FUNCTION_CHARACTER, _FUNCTION_WORD = 0, 1, 2


def _add_unspaced(run: str, weights: dict[str, float]) -> str:
    """Add the bigrams of a run of a question, and its isolated characters.

    Return its other Han characters that are not function words.
    """
    characters = ""
    kinds = bytearray(len(run))
    for match in _CHINESE_WORDS.finditer(run):
        if match.lastindex is None:
            kinds[match.start()] = _FUNCTION_CHARACTER
        elif match.lastindex == 2:
            kinds[match.start() : match.end()] = bytes([_FUNCTION_WORD]) * len(match.group())
        elif match.lastindex == 3:
            kinds[match.start() : match.end()] = bytes([_FUNCTION_WORD]) * 2
            weights[match.group()] = weights.get(match.group(), 0.0) + _LIGHT_WEIGHT
    alone = True
    for place, kind in enumerate(kinds):
        following = kinds[place + 1] if place + 1 < len(run) else _FUNCTION_WORD
        if kind + following <= _FUNCTION_CHARACTER:
            bigram = run[place : place + 2]
            weights[bigram] = weights.get(bigram, 0.0) + (_FUNCTION_WEIGHT if kind + following else 1.0)
        if kind == _CONTENT:
            if alone and following != _CONTENT:
                weights[run[place]] = weights.get(run[place], 0.0) + 1.0
            elif is_han(run[place]):
                characters += run[place]
            alone = following != _CONTENT
        else:
            alone = True
    return characters


# Pairs of a traditional and a simplified character: the most frequent ones that differ. Records and questions are
# folded alike, so where one simplified character stands for several (后, 发, 里), only their difference is lost.
CHARACTER_PAIRS = (
    "們们個个為为來来時时會会說说這这國国過过對对學学後后發发經经與与現现開开還还無无長长從从動动機机關关"
    "種种進进實实樣样頭头間间電电問问題题業业點点話话應应當当義义產产氣气書书車车東东見见馬马門门員员聲声"
    "讓让給给樂乐嗎吗麼么誰谁請请謝谢認认識识記记憶忆訊讯號号碼码資资訂订單单雙双幾几師师帶带歲岁圖图寫写"
    "讀读聽听視视覺觉觀观親亲愛爱戀恋媽妈爺爷孫孙兒儿歡欢憂忧慮虑懷怀恆恒願愿態态慣惯慶庆錢钱銀银鐵铁鐘钟"
    "鍾钟錯错鏡镜鎖锁鋼钢錄录針针釣钓鈴铃鑰钥鍵键鏈链銷销鋒锋銅铜鍋锅錶表鑽钻鎮镇鮮鲜買买賣卖價价費费貴贵"
    "賬账帳帐貨货購购貿贸貸贷賀贺賓宾賞赏賠赔賴赖賺赚質质賽赛贈赠贊赞贏赢財财責责貧贫敗败販贩貼贴負负頁页"
    "頂顶項项順顺須须預预領领頻频顆颗額额顏颜顧顾顯显類类顛颠頓顿頒颁頌颂頸颈飛飞飯饭飲饮餓饿館馆飽饱餅饼"
    "飾饰養养饒饶饑饥馮冯駕驾駐驻騎骑騙骗驗验驚惊驅驱駛驶騰腾驟骤魚鱼鳥鸟鳳凤鳴鸣鴨鸭鵝鹅鷹鹰雞鸡鷄鸡鹽盐"
    "麗丽麥麦麵面黃黄齊齐齒齿齡龄龍龙龜龟龐庞語语訓训計计討讨設设許许訪访證证評评詞词試试詩诗詳详該该誠诚"
    "誤误課课調调談谈論论諸诸講讲謀谋謂谓護护譯译議议變变讚赞譽誉諾诺訴诉診诊詢询誕诞誘诱諒谅諮咨謎谜謙谦"
    "譜谱訝讶註注紅红約约級级紀纪純纯紙纸組组細细終终結结絕绝統统絲丝維维網网綠绿緊紧線线練练緣缘編编縣县"
    "總总績绩織织續续繼继纖纤紹绍絡络綜综綱纲緒绪縮缩繳缴繪绘紛纷納纳紐纽繩绳緩缓綁绑縫缝縱纵繞绕軍军軟软"
    "較较載载輕轻輛辆輪轮輸输轉转軌轨輔辅輯辑輩辈輝辉轟轰連连週周遊游運运達达違违遠远適适選选遲迟遷迁邊边"
    "邏逻遺遗郵邮鄉乡鄰邻鄭郑鄧邓醫医醬酱釀酿釋释裡里裏里裝装複复製制補补褲裤襯衬襲袭閉闭閱阅閒闲閃闪闆板"
    "闊阔闖闯隊队階阶際际隨随險险隱隐陳陈陽阳陰阴陸陆雖虽難难離离雜杂雲云霧雾靈灵靜静韓韩響响韻韵風风颱台"
    "飄飘體体髮发鬥斗鬧闹鬆松鬱郁術术衛卫衝冲蘋苹藥药藝艺蘭兰蘇苏萬万葉叶著着蓋盖薦荐蕭萧薩萨藍蓝莊庄華华"
    "萊莱蔣蒋蟲虫蝦虾蟻蚁蠟蜡螞蚂蠻蛮虛虚虧亏處处獲获獨独獎奖獸兽獻献狀状猶犹獅狮豬猪貓猫貝贝瑪玛環环瓊琼"
    "畫画異异畢毕療疗瘋疯癥症癢痒盡尽監监盤盘盧卢眾众矚瞩矯矫碩硕確确礎础礙碍禮礼禍祸禪禅稱称穩稳積积穀谷"
    "窮穷竊窃競竞筆笔節节範范築筑簡简簽签籃篮籌筹籤签糧粮糾纠係系繫系罰罚羅罗羨羡習习聖圣聞闻聯联聰聪職职"
    "聾聋肅肃腦脑腳脚膚肤膠胶臉脸臘腊臟脏臨临臺台舊旧艦舰艙舱興兴舉举亞亚亂乱倉仓倫伦偉伟側侧偵侦傑杰傘伞"
    "備备傳传債债傷伤傾倾僅仅僑侨僕仆儀仪億亿儘尽優优儲储內内兩两冊册凍冻淨净凱凯別别則则剛刚創创劃划劇剧"
    "劉刘劍剑劑剂勁劲務务勝胜勞劳勢势勵励勸劝勛勋匯汇區区協协卻却廠厂厲厉參参叢丛吳吴呂吕啟启啓启喪丧喬乔"
    "嘗尝嚐尝嘆叹嘔呕嚇吓嚮向嚴严囑嘱團团園园圍围圓圆壓压壞坏壇坛場场塊块塗涂墳坟墜坠壘垒壯壮壺壶壽寿夠够"
    "夢梦夾夹奪夺奮奋奧奥婦妇嬰婴嬸婶寧宁審审寬宽寵宠寶宝將将專专尋寻導导屆届屬属層层岡冈島岛峽峡崗岗嶺岭"
    "嶽岳幣币幫帮庫库廁厕廂厢廢废廣广廳厅彈弹彌弥彎弯彙汇徑径徹彻復复徵征恥耻悅悦悶闷惡恶惱恼憐怜憑凭憲宪"
    "懇恳懶懒懸悬懼惧戰战戲戏戶户拋抛掃扫掛挂採采捨舍揀拣揮挥損损搖摇搶抢擁拥擇择擊击擋挡擔担據据擬拟擴扩"
    "擺摆擾扰攜携攝摄攤摊攬揽敵敌數数斷断於于晝昼暫暂暈晕曆历歷历曉晓曬晒朧胧殺杀條条極极楊杨榮荣構构槍枪"
    "樓楼標标樞枢樹树橋桥橫横檔档檢检檯台櫃柜權权欄栏歐欧歸归殘残毀毁氫氢決决沒没況况湊凑測测湯汤準准溝沟"
    "溫温滅灭滾滚滿满漁渔漢汉漲涨漸渐潔洁潛潜潤润澤泽濃浓濕湿濟济濤涛濱滨濾滤瀏浏瀟潇灑洒灘滩灣湾災灾煉炼"
    "煙烟煩烦熱热營营燈灯燒烧燙烫爐炉爛烂爭争爾尔牆墙牽牵犧牺瑣琐畝亩疊叠痺痹皺皱盜盗睏困瞭了矽硅砲炮祕秘"
    "稅税稈秆窩窝竄窜箏筝簾帘紮扎緻致罷罢脈脉脅胁腫肿膽胆舖铺艱艰蔔卜蘿萝規规覽览觸触豐丰貢贡賢贤趕赶趙赵"
    "趨趋跡迹蹟迹踐践躍跃辦办辭辞農农遙遥遜逊遞递遼辽邁迈郟郏醜丑鈔钞鋪铺錦锦鍛锻鐳镭閣阁閻阎霑沾韋韦飼饲"
    "駱骆驕骄鬚须魯鲁鯨鲸鴻鸿鵬鹏鶴鹤黨党鼴鼹齋斋佔占佈布併并並并侶侣俠侠偽伪傢家傭佣兇凶凈净剎刹勻匀匱匮"
    "厭厌吶呐啞哑喚唤嘯啸噴喷噸吨嚨咙囂嚣囉啰執执堅坚報报塵尘墊垫夥伙妝妆姍姗娛娱嫵妩孿孪宮宫尷尴屜屉屍尸"
    "嶄崭巒峦帥帅幀帧幹干彥彦惻恻愜惬慘惨慚惭慫怂憤愤憊惫戧戗挾挟捲卷掙挣揚扬換换攔拦撐撑撥拨撫抚撲扑擠挤"
    "擲掷擱搁攏拢斃毙斬斩昇升晉晋暢畅殼壳氈毡淚泪淺浅淵渊渦涡滬沪滲渗澆浇澀涩瀆渎瀋沈瀝沥煥焕犢犊狹狭獄狱"
    "獵猎瑤瑶璽玺甌瓯瘡疮瘧疟癒愈癮瘾盞盏睜睁瞞瞒磚砖磯矶禦御秈籼稜棱窺窥竅窍筍笋簫箫籠笼粵粤絨绒絞绞綢绸"
    "綿绵緝缉緬缅縛缚縷缕罵骂聳耸聶聂膩腻臍脐"
)
_TRADITIONAL = frozenset(CHARACTER_PAIRS[::2])
_TO_SIMPLIFIED = str.maketrans(CHARACTER_PAIRS[::2], CHARACTER_PAIRS[1::2])
_HALF_WIDTH = {code + 0xFEE0: code for code in map(ord, ascii_letters + digits)}
_TO_PLAIN = _TO_SIMPLIFIED | _HALF_WIDTH
