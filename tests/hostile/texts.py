"""Hostile texts: stored, found again, put into prompts; and the work that any of them causes, at two sizes."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import random
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

import loom
from loom.context.truncation import SmartTruncator
from loom.errors import InvalidInput, LoomError, OverBudget
from loom.models.embedders import FakeEmbedder

__all__ = ["growth", "hostile_text", "stored_texts", "word"]

_LETTERS = "bcdfghjklmnpqrstvwxz"


def word(number: int) -> str:
    """A word that no other number has, and that no stemmer touches."""
    letters = ""
    while number or not letters:
        number, rest = divmod(number, 20)
        letters = _LETTERS[rest] + letters
    return f"xu{letters}ok"


# --- what they are made of ------------------------------------------------------------------------------------

PIECES = [
    *("a", "A", "é", "的", "。", "\u0301", "\u200d", "\ufeff", "😀", "👩‍👩‍👧", "가", "ß", "İ", "𝔘"),
    *(" ", "\n", "\t", "\r\n", "\u3000", "\x00", "\x1b[31m", "\x9b", "\u202e", "\u2066", "\u2028", "\x7f"),
    *(
        "0",
        "1.",
        "1,",
        "-",
        "_",
        ".",
        "/",
        "\\",
        "'",
        '"',
        "(",
        ")",
        "[",
        "](",
        "{",
        "<",
        ">",
        "&",
        "%",
        "#",
        "*",
        "`",
    ),
    *("a ", "a.", "a@", "a-", "A b ", "ab ab ", "is ", "I am ", "not ", "我是", "他说：", "http://", "www.", "C:\\"),
    *("```\n", "- a\n", "1. a\n", "# a\n", "| a |\n", "a: a\n", "\n\n", "<think>", "<|im_start|>", "</system>"),
    *("2026-01-", "12:", "$1", "1e", "0x", "sk-", "Bearer ", "AKIA", "key=", "yesterday ", "next Monday ", "三月"),
    *('{"a":', "[[", '"a",', "def a(", "import ", "Error: ", "  at a.b(", "because ", "but ", "and then ", "，", "“"),
    *("Ana said ", "my name is ", "I live in ", "I like ", "prefer ", "remember that ", "don't ", "Mr. ", "U.S. "),
]
"""Each is repeated alone, in pairs and after others: where a pattern may go back, one of them makes it."""


def hostile_text(chance: random.Random, size: int) -> str:
    """About `size` characters of one, two or many pieces."""
    match chance.choice(["one", "one", "two", "then", "mixed"]):
        case "one":
            text = chance.choice(PIECES) * size
        case "two":
            text = (chance.choice(PIECES) + chance.choice(PIECES)) * size
        case "then":
            text = chance.choice(PIECES) * (size - 2) + chance.choice(PIECES)
            return text[-size:]
        case _:
            text = "".join(chance.choices(PIECES, k=size))
    return text[:size]


# --- storing --------------------------------------------------------------------------------------------------


def stored_texts(chance: random.Random, folder: Path) -> None:
    """Texts of any kind are kept as they are, found by a word that was put into them, and break no prompt."""
    texts = {}
    with loom.open(folder / "agent.loom", embedder=FakeEmbedder(dimensions=16), index_tail_records=3) as memory:
        for number in range(3):
            text = f"{word(number)} {hostile_text(chance, chance.choice([0, 3, 40, 400, 4000]))}"
            role = chance.choice(["user", "assistant", "tool", "system", None])
            if chance.random() < 0.1:
                refused = text + chance.choice(["\ud800", "\udfff tail"])
                assert isinstance(_error_of(memory.remember, refused), InvalidInput)
            memory.remember(text, id=f"id-{number}", role=role, session_id="s", metadata={"text": text[:50]})
            texts[f"id-{number}"] = text
        memory.flush()
        memory.facts()
        memory.facts(chance.choice(list(texts.values())))
        budget = chance.choice([64, 300, 4000])
        with suppress(OverBudget, InvalidInput):  # a question that is empty, or alone larger than the budget
            prompt = memory.context(hostile_text(chance, 100), session_id="s", budget=budget)
            assert prompt.tokens <= budget
            assert prompt.explain()
        for number, (name, text) in enumerate(texts.items()):
            record = memory.get(name)
            assert record is not None
            assert record.content == text
            assert name in [hit.id for hit in memory.recall(word(number))], f"{text!r} is not found by its word"
        name = chance.choice(sorted(texts))
        memory.update(name, hostile_text(chance, 200) + "x")
        assert memory.forget(name)
        assert memory.get(name) is None
        assert memory.check().ok


def _error_of(step: Callable[[str], object], text: str) -> Exception | None:
    try:
        step(text)
    except Exception as error:
        return error
    return None


# --- work -----------------------------------------------------------------------------------------------------

SMALL, LARGE = 6_000, 24_000
"""Characters. Linear work takes four times as long for the larger, quadratic work sixteen times."""

MOST_TIMES = 9.0
LEAST_S = 0.08
"""Less CPU time than this for the larger size says nothing."""

_FAMILIES = ("loom.text", "loom.knowledge", "loom.context", "loom.fractal", "loom.index", "loom.recall")


@functools.cache
def text_functions() -> dict[str, Callable[[str], object]]:
    """Every public function that takes one text, and the verbs of a memory that do."""
    found: dict[str, Callable[[str], object]] = {
        "remember and derive": _remembered,
        "recall": lambda text: _asked().recall(text, limit=3),
        "context": lambda text: _asked().context(text, budget=1000),
        "context of a session": _in_a_prompt,
        "facts": lambda text: _asked().facts(text, limit=3),
        "truncation": lambda text: SmartTruncator().score({"role": "user", "content": text}),
    }
    for family in _FAMILIES:
        package = importlib.import_module(family)
        names = [f"{family}.{one.name}" for one in pkgutil.iter_modules(package.__path__) if one.name[0] != "_"]
        for module in map(importlib.import_module, [family, *names]):
            for thing in (getattr(module, name) for name in getattr(module, "__all__", ())):
                for function in filter(_takes_one_text, _functions_of(thing)):
                    found[f"{function.__module__}.{function.__qualname__}"] = function
    return found


def _functions_of(thing: object) -> list[Any]:
    """The function itself, or the public methods of what a class makes without arguments."""
    if inspect.isfunction(thing):
        return [thing]
    if inspect.isclass(thing) and not issubclass(thing, BaseException | Enum):
        with suppress(TypeError, LoomError):
            return [method for name, method in inspect.getmembers(thing(), inspect.ismethod) if name[0] != "_"]
    return []


def _takes_one_text(function: Callable[..., object]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    needed = [
        one
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    takes_text = len(needed) == 1 and "str" in str(needed[0].annotation).replace(" ", "").split("|")
    return takes_text and needed[0].kind is not needed[0].KEYWORD_ONLY and not inspect.iscoroutinefunction(function)


@functools.cache
def _asked() -> loom.Memory:
    memory = loom.open(embedder="none")
    memory.remember(["I moved to Lisbon in March.", "We chose the authorization-code flow.", "我住在上海。"])
    memory.flush()
    return memory


def _remembered(text: str) -> None:
    with loom.open(embedder="none") as memory:
        memory.remember(text + "x", role="user")
        memory.flush()
        memory.facts()


def _in_a_prompt(text: str) -> None:
    with loom.open(embedder="none", derive=False) as memory:
        memory.remember(
            [{"role": "user", "content": text + "x"}, {"role": "assistant", "content": "ok"}], session_id="s"
        )
        memory.context("What was said?", session_id="s", budget=600)


def growth(chance: random.Random, folder: Path) -> None:
    """Four times the text takes at most about four times the work, in each of a few functions."""
    functions = text_functions()
    seed = chance.random()
    for name in chance.sample(sorted(functions), 6):
        small, large = (hostile_text(random.Random(seed), size) for size in (SMALL, LARGE))
        measured = [(_cpu_s(functions[name], small), _cpu_s(functions[name], large)) for _ in range(1)]
        while len(measured) < 4 and measured[-1][1] > max(LEAST_S, MOST_TIMES * measured[-1][0]):
            measured.append((_cpu_s(functions[name], small), _cpu_s(functions[name], large)))
        assert len(measured) < 4, (
            f"{name} of {large[:30]!r}...{large[-10:]!r} takes {measured[-1][0]:.3f} s for {SMALL} characters and "
            f"{measured[-1][1]:.3f} s for {LARGE}"
        )


def _cpu_s(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    with suppress(LoomError):
        function(text)
    return time.process_time() - start
