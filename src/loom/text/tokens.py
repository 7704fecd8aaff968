"""Count the tokens of texts and chat messages.

`TiktokenCounter` is exact, works offline and is the default. `EstimateCounter` and `AnthropicCounter` are estimates
(`exact` is False): for a hard limit use `safe_count`, which is the exact count or else an upper bound. Budgets are
enforced elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, cast, runtime_checkable

from loom.checks import checked_list
from loom.errors import InvalidInput
from loom.text.scripts import HAN_BASIC

__all__ = [
    "IMAGE_TOKENS",
    "LOW_DETAIL_IMAGE_TOKENS",
    "TOKENS_PER_MESSAGE",
    "TOKENS_PER_NAME",
    "TOKENS_PER_REPLY",
    "TOKENS_PER_TOOL_CALL",
    "AnthropicCounter",
    "CountCache",
    "EstimateCounter",
    "TiktokenCounter",
    "TokenCounter",
    "countable_pieces",
    "counter_by_name",
    "counters_by_name",
    "default_counter",
]

Message = Mapping[str, Any]

# The framing of chat messages, as OpenAI's cookbook gives it for gpt-3.5-turbo, gpt-4 and gpt-4o.
TOKENS_PER_MESSAGE: Final = 3
TOKENS_PER_NAME: Final = 1
TOKENS_PER_REPLY: Final = 3
# The framing of tool calls and results is not published; each is counted like a message.
TOKENS_PER_TOOL_CALL: Final = 3
# The cost of a picture depends on its size, which is rarely known here: at most 85 + 8 x 170 = 1,445 with gpt-4o, and
# about 1,600 with Claude before 4.7. Other models charge more; `image_tokens` can be set for them.
IMAGE_TOKENS: Final = 1_600
LOW_DETAIL_IMAGE_TOKENS: Final = 85

_IMAGE_PARTS: Final = ("image", "image_url", "input_image")
_TOOL_PARTS: Final = ("tool_use", "tool_result")


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens. A counter needs `name`, `exact`, `margin` and `count`; the other methods derive from them.

    Counters are thread-safe and keep no content. Every method raises `InvalidInput` for another type than text, and
    for a lone surrogate, which can be neither encoded nor stored.
    """

    name: str
    """Stored beside each count and accepted by `counter_by_name`. A counter with other results needs another name."""

    exact: bool
    """Whether `count` equals the count of the model. If not, do not use it for a hard limit."""

    margin: float
    """The error of `count` on ordinary text, as a share of the true count; 0.0 if exact."""

    image_tokens: int = IMAGE_TOKENS
    """The tokens of one picture, unless it requests low detail. Can be set on a counter of your own."""

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the tokens of a text. Spellings of special tokens such as `<|endoftext|>` are plain text."""

    def count_map(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the tokens of each text, by the text. A repeated text is counted once."""
        wanted = list(dict.fromkeys(checked_list(texts, "the texts of count_map()")))
        return dict(zip(wanted, self.count_batch(wanted), strict=True))

    def count_batch(self, texts: Iterable[str]) -> list[int]:
        """Return the tokens of each text, in the given order; `count_map` returns them by text."""
        return [self.count(text) for text in checked_list(texts, "the texts of count_batch()")]

    def count_message(self, message: Message) -> int:
        """Return the tokens of a chat message with its framing, without the tokens that prime the reply.

        Every value in the message counts, because every value may be sent: role, name (and one token more), content
        as a string or as parts, tool calls (3 tokens each, and their id, name and arguments), the tool_call_id of a
        result. Pictures cost `image_tokens`. Unknown parts are counted as their JSON, never dropped.
        """
        return _message_tokens(message, self.count, self.image_tokens)

    def count_messages(self, messages: Iterable[Message]) -> int:
        """Return the tokens of a request: all messages, and the 3 tokens that prime the reply.

        Texts are counted with the precision of this counter. The framing follows the published convention; for tools
        and pictures it is our own (see `TOKENS_PER_TOOL_CALL`, `IMAGE_TOKENS`).
        """
        return sum(map(self.count_message, checked_list(messages, "the messages"))) + TOKENS_PER_REPLY

    def upper_bound(self, text: str) -> int:
        """Return an upper bound of the true count: a byte-level vocabulary uses at most one token a byte."""
        return _utf8_length(text)

    def safe_count(self, text: str) -> int:
        """Return the number to compare with a hard limit: the exact count, or else the upper bound."""
        return self.count(text) if self.exact else self.upper_bound(text)

    def limit_count(self, text: str) -> int:
        """Return the tokens that count against a limit enforced by stored counts, such as the budget of a tier.

        An exact counter returns its count. An estimate returns the larger of its count and the exact count by
        `cl100k_base`, with the margin; the bytes of the text if that vocabulary cannot be loaded, and never more.
        """
        if self.exact:
            return self.count(text)
        most, reference = _utf8_length(text), _reference_count(text)
        if reference is None:
            return most
        return min(most, math.ceil(max(self.count(text), reference) * (1 + self.margin)))

    def safe_count_messages(self, messages: Iterable[Message]) -> int:
        """`count_messages` with `safe_count` for every text. Pictures count `image_tokens`."""
        return sum(self.safe_count_each(messages)) + TOKENS_PER_REPLY

    def safe_count_each(self, messages: Iterable[Message]) -> list[int]:
        """`count_message` of each message, with `safe_count` for every text."""
        return [_message_tokens(message, self.safe_count, self.image_tokens) for message in messages]


# --- exact ---------------------------------------------------------------------------------------------


class _Encoder(Protocol):
    def count(self, text: str, /) -> int: ...

    def encode(self, text: str, /) -> list[int]: ...


_ENCODINGS: Final = ("cl100k_base", "o200k_base")
_MODELS: Final = {
    "o200k_base": re.compile(
        r"(?:ft:)?(?:gpt-5(?:\.\d+)?|gpt-4\.[15]|(?:chat)?gpt-4o|gpt-oss|o[134])(?:[-:].*)?", re.DOTALL
    ),
    "cl100k_base": re.compile(
        r"(?:ft:)?(?:gpt-4|gpt-3\.?5(?:-turbo)?|text-embedding-(?:3|ada-002)|(?:davinci|babbage)-002)(?:[-:].*)?",
        re.DOTALL,
    ),
}

# From this many characters on, a count is cached. Counting 1,024 characters of English takes about 19 us, a look-up
# 2 us, and a failed look-up adds 3 us; for shorter texts a cache would cost more than it saves.
_CACHED_FROM_CHARS: Final = 1_024
# One call holds the interpreter lock until it returns, 0.3 to 1 s for 16 MB, so long texts are counted in pieces.
_PIECE_CHARS: Final = 65_536
# Places where a text can be cut without changing its count. Both encodings split a text by a pattern before they
# merge its bytes, and no match of either has one of the characters on the right directly after a letter or digit; the
# patterns never look back, and look ahead only from white space. The Chinese range is narrower than `scripts.HAN`: it
# has only characters that are letters in every version of Unicode that a tokenizer may use.
_CUT: Final = re.compile(r"(?<=[0-9A-Za-z\u4e00-\u9fa5])(?=[ \t\r\n,.;:!?、。，；：！？])")


class CountCache:
    """Counts by content digest, in two generations, which approximates least recently used.

    When the young generation is full it becomes the old one, and unused entries of the old one are dropped. Each step
    is one operation on one dict, so threads need no lock and a forked child cannot inherit a held one. A race may
    lose entries, which are then counted again. The cache contains no text.
    """

    def __init__(self, generation_entries: int = 4_096) -> None:
        # Two generations of 4,096 entries take at most about 1.5 MB for texts of any size.
        self._generation_entries = generation_entries
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __iter__(self) -> Iterator[bytes]:
        return iter([*self._young, *self._old])

    def get(self, digest: bytes) -> int | None:
        """Return the count of the text with this digest and mark it as used; None if it is unknown."""
        tokens = self._young.get(digest)
        if tokens is None:
            tokens = self._old.get(digest)
            if tokens is not None:
                self._keep(digest, tokens)
        return tokens

    def put(self, digest: bytes, tokens: int) -> None:
        self._keep(digest, tokens)

    def _keep(self, digest: bytes, tokens: int) -> None:
        if len(self._young) >= self._generation_entries:
            self._old, self._young = self._young, {}
        self._young[digest] = tokens


class TiktokenCounter(TokenCounter):
    """Exact counts by OpenAI's `cl100k_base` or `o200k_base`, without a network.

    Name an encoding, or a model that uses it; the default is `cl100k_base`. The tables are loaded at the first count
    (about 25 ms for cl100k_base, 50 ms for o200k_base) and shared by all instances. Counts of long texts are stored
    in `cache`, by default a cache of this counter.
    """

    exact = True
    margin = 0.0

    def __init__(
        self, encoding: str | None = None, *, model: str | None = None, cache: CountCache | None = None
    ) -> None:
        if encoding is not None and model is not None:
            raise InvalidInput("name an encoding or a model, not both")
        if model is not None:
            encoding = _encoding_of_model(model)
        self.name = "cl100k_base" if encoding is None else encoding
        if self.name not in _ENCODINGS:
            raise InvalidInput(f"no encoding {encoding!r}; there are {', '.join(_ENCODINGS)}")
        self._cache = CountCache() if cache is None else cache
        # Replaced by the encoder's own method at the first call: a short text then costs 0.1 us over the
        # bare count.
        self._count: Callable[[str], int] = self._load_and_count

    def __repr__(self) -> str:
        return f"TiktokenCounter({self.name!r})"

    def __reduce__(self) -> tuple[type[TiktokenCounter], tuple[str], dict[str, int]]:
        return type(self), (self.name,), {"image_tokens": self.image_tokens}

    def count(self, text: str) -> int:
        try:
            return self._count(text) if len(text) < _CACHED_FROM_CHARS else self._count_long(text)
        except (TypeError, UnicodeEncodeError) as error:
            raise _not_a_text(text, error) from None

    def encode(self, text: str) -> list[int]:
        """Return the token ids. To get only their number, use `count`, which is faster."""
        try:
            return _encoder(self.name).encode(text)
        except (TypeError, UnicodeEncodeError) as error:
            raise _not_a_text(text, error) from None

    def _load_and_count(self, text: str) -> int:
        self._count = _encoder(self.name).count
        return self._count(text)

    def _count_long(self, text: str) -> int:
        # The key is a digest and not the text: large and forgotten texts must not remain in memory.
        digest = hashlib.sha256(text.encode()).digest()
        tokens = self._cache.get(digest)
        if tokens is None:
            tokens = sum(map(self._count, countable_pieces(text)))
            self._cache.put(digest, tokens)
        return tokens


@functools.cache
def _encoder(encoding: str) -> _Encoder:
    from rs_bpe.bpe import openai  # type: ignore[import-not-found]  # an extension module without stubs

    return cast(_Encoder, getattr(openai, encoding)())


def _encoding_of_model(model: str) -> str:
    for encoding, pattern in _MODELS.items():
        if pattern.fullmatch(model):
            return encoding
    raise InvalidInput(
        f"the encoding of model {model!r} is not known; name it yourself ({' or '.join(_ENCODINGS)}), "
        "or use an estimate"
    )


def countable_pieces(text: str, chars: int = _PIECE_CHARS) -> Iterator[str]:
    """Yield consecutive parts of a text whose counts add up to its own, most of them of about `chars` characters.

    A part is longer if there is no safe place to cut it.
    """
    start = 0
    while len(text) - start > chars:
        cut = _CUT.search(text, start + chars)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:] if start else text


# --- estimates -----------------------------------------------------------------------------------------

# In ASCII one match is about one token: up to ten letters, up to three digits, up to three punctuation characters
# with the line breaks after them, line breaks, an indentation.
_ASCII_UNITS: Final = re.compile(
    r"[A-Za-z]{1,10}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,3}[\r\n]*|[\r\n]+|[ \t]{2,}|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
# Beyond ASCII the cost of a character depends on its script: hundredths of a token in cl100k_base, measured on prose
# in each script. The classes are disjoint and complete: rare Chinese characters cost as much as all characters beyond
# the basic plane, and 々〆〇 as much as the punctuation around them.
_KANA_AND_SIGNS: Final = "\u2010-\u2027\u3000-\u30ff\uff00-\uffef"
_HANGUL: Final = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
_CYRILLIC: Final = "\u0400-\u052f"
_BEYOND_BMP: Final = "\U00010000-\U0010ffff"
_SCRIPT_HUNDREDTHS: Final = (
    (re.compile(f"[{HAN_BASIC}]+"), 115),
    (re.compile(f"[{_KANA_AND_SIGNS}]+"), 100),
    (re.compile(f"[{_HANGUL}]+"), 110),
    (re.compile(f"[{_CYRILLIC}]+"), 50),
    (re.compile(f"[{_BEYOND_BMP}]+"), 240),
    (re.compile(f"[^\0-\x7f{HAN_BASIC}{_KANA_AND_SIGNS}{_HANGUL}{_CYRILLIC}{_BEYOND_BMP}]+"), 110),
)


class EstimateCounter(TokenCounter):
    """An estimate without tables, within 15 % of `cl100k_base` on English, Chinese, mixed text and code.

    A Chinese character is 1.15 tokens and an English word about one, which is a quarter of the characters of prose.
    Long random strings (base64) cost about twice the estimate, so limits use `safe_count`. It is not faster than the
    exact count; use it if the tables are not available.
    """

    name = "estimate"
    exact = False
    margin = 0.15

    def count(self, text: str) -> int:
        _utf8_length(text)  # raises for another type than text
        return _rounded_up(_estimated_hundredths(text))

    def limit_count(self, text: str) -> int:
        """Return the exact count by `cl100k_base`, or the bytes of the text if it cannot be loaded."""
        reference = _reference_count(text)
        return _utf8_length(text) if reference is None else reference


class AnthropicCounter(TokenCounter):
    """An estimate for Claude. Its tokenizer is not public; only Anthropic's service counts exactly.

    It is `EstimateCounter` at 3.5 characters a token instead of 4. The margin is not measured: it is the reported
    growth by up to 1.35 times of the tokenizer that came with Claude Opus 4.7.
    """

    name = "anthropic-estimate"
    exact = False
    margin = 0.35

    def count(self, text: str) -> int:
        return min(_utf8_length(text), _rounded_up(_estimated_hundredths(text) * 8 // 7))

    def upper_bound(self, text: str) -> int:
        """Return the bytes of the text or of its NFKC form, whichever is more.

        Claude's last published vocabulary is byte-level and normalises first, which can lengthen a text: one Arabic
        ligature of 3 bytes becomes 33.
        """
        bound = _utf8_length(text)
        return bound if text.isascii() else max(bound, _utf8_length(unicodedata.normalize("NFKC", text)))


def _estimated_hundredths(text: str) -> int:
    if len(text) > _PIECE_CHARS:
        # In slices: all matches of 16 MB at once would take 200 MB.
        starts = range(0, len(text), _PIECE_CHARS)
        return sum(_estimated_hundredths(text[start : start + _PIECE_CHARS]) for start in starts)
    hundredths = 100 * len(_ASCII_UNITS.findall(text))
    if text.isascii():
        # A space before a word costs nothing, but a text of spaces alone does.
        return hundredths or (100 if text else 0)
    for script, weight in _SCRIPT_HUNDREDTHS:
        hundredths += weight * sum(map(len, script.findall(text)))
    return hundredths


def _reference_count(text: str) -> int | None:
    """Return the exact count by the default vocabulary; None if it cannot be loaded."""
    try:
        return default_counter().count(text)
    except ImportError:
        return None


def _rounded_up(hundredths: int) -> int:
    return -(-hundredths // 100)


# --- messages ------------------------------------------------------------------------------------------


def _message_tokens(message: Message, count: Callable[[str], int], image_tokens: int) -> int:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"a chat message must be a mapping with a role, not {type(message).__name__}")
    tokens = TOKENS_PER_MESSAGE + (TOKENS_PER_NAME if message.get("name") else 0)
    for key, value in message.items():
        if key == "content":
            tokens += _content_tokens(value, count, image_tokens)
        elif key == "tool_calls":
            tokens += _tool_calls_tokens(value, count)
        elif key == "function_call":
            tokens += _tool_call_tokens({"function": value}, count) if value else 0
        else:
            tokens += _value_tokens(value, count)
    return tokens


def _content_tokens(content: object, count: Callable[[str], int], image_tokens: int) -> int:
    if content is None or isinstance(content, str):
        return _value_tokens(content, count)
    if isinstance(content, (list, tuple)):
        return sum(_part_tokens(part, count, image_tokens) for part in content)
    raise InvalidInput(f"the content of a message must be a text or a list of parts, not {type(content).__name__}")


def _part_tokens(part: object, count: Callable[[str], int], image_tokens: int) -> int:
    if isinstance(part, str):
        return count(part)
    if not isinstance(part, Mapping):
        raise InvalidInput(f"a content part must be a text or a mapping with a type, not {type(part).__name__}")
    kind = part.get("type")
    if kind in _IMAGE_PARTS:
        image = part.get("image_url")
        detail = image.get("detail") if isinstance(image, Mapping) else part.get("detail")
        return LOW_DETAIL_IMAGE_TOKENS if detail == "low" else image_tokens
    tokens = TOKENS_PER_TOOL_CALL if kind in _TOOL_PARTS else 0
    for key, value in part.items():
        if key == "content" and isinstance(value, (list, tuple)):
            tokens += _content_tokens(value, count, image_tokens)
        elif key != "type":
            tokens += _value_tokens(value, count)
    return tokens


def _tool_calls_tokens(calls: object, count: Callable[[str], int]) -> int:
    if not isinstance(calls, list | tuple | None):
        raise InvalidInput(f"the tool calls of a message must be a list, not {type(calls).__name__}")
    return sum(_tool_call_tokens(call, count) for call in calls or ())


def _tool_call_tokens(call: object, count: Callable[[str], int]) -> int:
    if not isinstance(call, Mapping):
        raise InvalidInput(f"a tool call must be a mapping with a function, not {type(call).__name__}")
    tokens = TOKENS_PER_TOOL_CALL
    for key, value in call.items():
        if key in ("function", "custom") and isinstance(value, Mapping):
            tokens += sum(_value_tokens(inner, count) for inner in value.values())
        elif key != "type":
            tokens += _value_tokens(value, count)
    return tokens


def _value_tokens(value: object, count: Callable[[str], int]) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return count(value)
    try:
        written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a message holds a value that cannot be sent as JSON: {error}") from None
    return count(written)


# --- shared --------------------------------------------------------------------------------------------


def default_counter() -> TokenCounter:
    """Return the default counter, exact `cl100k_base`: one instance for the process."""
    return counter_by_name("cl100k_base")


@functools.cache
def counter_by_name(name: str) -> TokenCounter:
    """Return the shared counter with a name, as stores record it."""
    if name not in _COUNTERS:
        raise InvalidInput(
            f"no token counter is called {name!r}; there are {', '.join(sorted(_COUNTERS))}. "
            "Pass your own counter to open a store that was written with it"
        )
    return _COUNTERS[name]()


def counters_by_name() -> dict[str, TokenCounter]:
    """Return the counters that can be created by name alone, and so in any process."""
    return {name: counter_by_name(name) for name in _COUNTERS}


_COUNTERS: Final[Mapping[str, Callable[[], TokenCounter]]] = {
    "cl100k_base": functools.partial(TiktokenCounter, "cl100k_base"),
    "o200k_base": functools.partial(TiktokenCounter, "o200k_base"),
    EstimateCounter.name: EstimateCounter,
    AnthropicCounter.name: AnthropicCounter,
}


def _utf8_length(text: str) -> int:
    try:
        # `str.isascii`, because bytes also have `isascii` and must be rejected.
        return len(text) if str.isascii(text) else len(text.encode())
    except (TypeError, UnicodeEncodeError) as error:
        raise _not_a_text(text, error) from None


def _not_a_text(text: object, error: Exception) -> Exception:
    """Return the error for a value that cannot be counted; any other failure is returned unchanged."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput(
            f"the text has a lone surrogate at character {error.start}, which cannot be stored or sent; "
            "replace it, for example with text.encode('utf-8', 'replace').decode()"
        )
    if not isinstance(text, str):
        return InvalidInput(f"a text must be a str, not {type(text).__name__}")
    return error
