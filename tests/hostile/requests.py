"""Hostile requests: questions, filters and settings of any kind and type."""

from __future__ import annotations

import functools
import math
import os
import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import loom
from loom.errors import LoomError
from loom.everyday import Memory
from loom.settings import SETTINGS
from tests.hostile.texts import hostile_text, word

__all__ = ["filters", "questions", "settings"]

IDS = [f"id-{number}" for number in range(30)]


@functools.cache
def memory() -> Memory:
    opened = loom.open(embedder="none", derive=False, index_tail_records=8)
    for number, name in enumerate(IDS):
        opened.remember(
            f"{word(number)} was said in the harbour",
            id=name,
            session_id=f"s{number % 3}",
            role="user",
            metadata={"number": number, "tags": ["a", "b"]},
        )
    opened.flush()
    return opened


def assert_untouched() -> None:
    assert {record.id for record in memory().list(limit=100).records} == set(IDS)


def questions(chance: random.Random, folder: Path) -> None:
    """Any question has an answer of true hits, within its limit, or is refused."""
    question: Any = hostile_text(chance, chance.choice([0, 1, 5, 60, 5000]))
    if chance.random() < 0.15:
        question = chance.choice([None, 7, b"bytes", ["list"], "\ud800", {"a": 1}, object(), float("nan")])
    elif chance.random() < 0.3:
        question = f"{question} {word(chance.randrange(30))}"
    limit = chance.choice([1, 3, 10, 0, -1, 10**9, 2**70, None, "3", 2.5, True])
    options: dict[str, Any] = {"limit": limit} if chance.random() < 0.5 else {}
    if chance.random() < 0.3:
        options["diversity"] = chance.choice([0, 0.5, 1, -1, 2, math.nan, math.inf, "x", None])
    if chance.random() < 0.2:
        options["explain"] = chance.choice([True, False, None, "yes"])
    budget: Any = chance.choice([64, 1000, 0, -5, 2**70, "x", 1.5])
    verbs: list[Callable[[], object]] = [
        lambda: memory().recall(question, **options),
        lambda: memory().context(question, budget=budget),
        lambda: memory().facts(question, limit=options.get("limit", 5)),
        lambda: memory().get(question),
        lambda: memory().history(question),
        lambda: memory().feedback(question, chance.choice([*IDS, "no such id"]), helpful=True),
    ]
    with suppress(LoomError):
        answer = chance.choice([verbs[0], *verbs])()
        if isinstance(answer, list) and answer and hasattr(answer[0], "score"):
            assert all(hit.id in IDS for hit in answer)
            assert len(answer) <= options.get("limit", 10)
    assert_untouched()


_NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _value(chance: random.Random, depth: int = 0) -> Any:
    many = chance.choice([0, 1, 3, 999, 1000, 10_000, 40_000])
    choices: list[Callable[[], Any]] = [
        lambda: chance.choice([None, True, False, 0, -1, 2**63, 2**80, 1e308, math.nan, math.inf, -0.0]),
        lambda: chance.choice(
            ["", "s1", "user", "L1", "l9", "nonsense", "\0", "'; DROP TABLE records; --", "%", "港"]
        ),
        lambda: hostile_text(chance, 30),
        lambda: chance.choice(["\ud800", b"bytes", object(), str, 1j, Path("/"), range(3), ...]),
        lambda: chance.choice(
            [
                _NOW,
                _NOW.replace(tzinfo=None),
                datetime.max.replace(tzinfo=UTC),
                datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
            ]
        ),
        lambda: [f"v{number}" for number in range(many)],
        lambda: set(range(many)),
        lambda: iter(["s1", "s2"]),
    ]
    if depth < 3:
        choices += [
            lambda: [_value(chance, depth + 1) for _ in range(3)],
            lambda: {hostile_text(chance, 5): _value(chance, depth + 1), "number": _value(chance, depth + 1)},
            lambda: {f"key {number}": number for number in range(many)},
            lambda: {7: "a key that is no text"},
        ]
    return chance.choice(choices)()


def filters(chance: random.Random, folder: Path) -> None:
    """Any filter narrows to records that are there, or is refused; forgetting takes no more than it lists."""
    names = [one.name for one in fields(loom.Filter)] + ["where", "where", "unknown", "limit ", "tier "]
    given = {chance.choice(names): _value(chance) for _ in range(chance.choice([1, 1, 2, 4]))}
    with suppress(LoomError):
        answer = memory().recall("harbour", **given)
        assert all(hit.id in IDS for hit in answer)
    with suppress(LoomError):
        page = memory().list(limit=chance.choice([1, 50]), **given)
        assert all(record.id in IDS for record in page.records)
    assert_untouched()
    if chance.random() < 0.3:
        # What forgetting by this filter would take is what listing by it shows, derived or not.
        with loom.open(embedder="none", derive=False) as small:
            small.remember([{"id": name, "content": name} for name in ("one", "two")], session_id="s1")
            try:
                shown = {record.id for record in small.list(**given).records}
                gone = set(small.forget(**given).ids)
            except LoomError:
                gone, shown = set(), set()
            assert gone <= {"one", "two"}
            assert shown <= gone
            assert {record.id for record in small.list().records} == {"one", "two"} - gone


_SETTING_TEXTS = [
    *("", "0", "-1", "1", " 7 ", "7_0", "true", "nan", "inf", "1e400", "9" * 400, "none", "fake", "l1", "[]", "{}"),
    *("http://127.0.0.1:1#m", "港", "x" * 5000, "\udced\udca0\udc80", "\x1b[2J", "../../etc/passwd", "~", "$HOME"),
]


PARTS = ("embedder", "token_counter", "event_bus", "sanitizer", "clock")
"""Options of `open` that are objects."""


def settings(chance: random.Random, folder: Path) -> None:
    """Settings of any kind open a store that works, or are refused before anything is made."""
    names = [*SETTINGS, *SETTINGS, *PARTS, "no_such_setting", "L2_TOKEN_BUDGET", "", "x" * 300]
    sane = {"embedder": "none", "derive": "false"}
    environment = {f"LOOM_{name.upper()}": value for name, value in sane.items()}
    config = folder / "settings.toml"
    given: dict[str, Any] = {}
    for name in chance.choices(names, k=chance.choice([1, 1, 3])):
        if name in ("busy_timeout_s", "close_timeout_s"):
            continue  # a right value may ask to wait for hours
        text = chance.choice(_SETTING_TEXTS)
        match chance.choice(["environment", "file", "argument"]):
            case "environment":
                environment[f"LOOM_{name.upper()}".replace("\0", "")] = text.replace("\0", "")
            case "file":
                with open(config, "a", encoding="utf-8", errors="surrogateescape") as file:
                    shown = chance.choice([text, f'"{text}"', f"[{text}]", "{a = 1}", "1979-05-27T07:32:00Z", "nan"])
                    file.write(f"{name or chance.choice(['[', '=', '[[a]]', 'a.b.c'])} = {shown}\n")
            case "argument":
                given[name or "empty"] = _value(chance)
    if config.exists() and chance.random() < 0.2:
        config.write_bytes(
            config.read_bytes() + chance.choice([b"\xff\xfe", b"\0", b"[" * 5000, b"a=" + b"[" * 5000])
        )
    path = folder / "agent.loom"
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with loom.open(path, config=config if config.exists() else None, **given) as opened:
                with suppress(LoomError):  # a budget or an embedder that refuses this very text
                    opened.remember("the harbour is open", id="one")
                    assert opened.get("one") is not None
                opened.settings.explain()
    except LoomError:
        pass
    finally:
        os.environ.clear()
        os.environ.update(before)
    if path.exists():
        loom.open(path, embedder="none", reconfigure=True).close()
