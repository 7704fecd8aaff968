"""The roles of the child processes of the crash and stress tests: `python -m tests.crash.children <role> <json>`.

Every role opens a store like a program would. `armed` makes the process send itself a signal before or after
the n-th call of a step (`loom.steps`), which is how a test dies at an exact moment.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import itertools
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any
from unittest import mock

import loom
from loom import cli, steps
from loom.errors import VersionConflictError
from loom.everyday import Memory
from loom.models.embedders import FakeEmbedder
from loom.storage.sqlite.worker import Worker

__all__ = ["arm", "main", "say", "unique_word"]

# A child that hangs tells where, and ends, long before the test's own time limit.
_LONGEST_LIFE_S = 150.0


def unique_word(number: int) -> str:
    """A word that no other number has, and that no stemmer touches."""
    letters = ""
    while True:
        number, rest = divmod(number, 20)
        letters = "bcdfghjklmnpqrstvwxz"[rest] + letters
        if not number:
            return f"xu{letters}ok"


def say(what: object) -> None:
    """One line to the parent, in one write: read whole or not at all."""
    os.write(1, f"{what if isinstance(what, str) else json.dumps(what)}\n".encode())


def arm(point: Mapping[str, Any]) -> None:
    """Send this process a signal at a call: {target, call, when, signal}.

    The target is the name of a step, or "module:function" of the standard library. Any other is a `LookupError`.
    """
    owner, name = _found(point["target"])
    original = getattr(owner, name)
    calls = itertools.count(1)
    number = getattr(signal, point.get("signal", "SIGKILL"))

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        due = next(calls) == point.get("call", 1)
        if due and point["when"] == "before":
            os.kill(os.getpid(), number)
        result = original(*args, **kwargs)
        if due and point["when"] == "after":
            os.kill(os.getpid(), number)
        return result

    setattr(owner, name, wrapped)


def _found(target: str) -> tuple[Any, str]:
    module, _, function = target.partition(":")
    if not function:
        return steps.find(target)
    if module not in sys.stdlib_module_names:
        raise LookupError(f"{target} is not of the standard library; give the function a step and name that")
    return import_module(module), function


def open_memory(path: str, seed_of_embedder: int | None = None, **options: Any) -> Memory:
    embedder = "none" if seed_of_embedder is None else FakeEmbedder(dimensions=16, seed=seed_of_embedder)
    return loom.open(path, embedder=embedder, **options)


# -- roles ---------------------------------------------------------------------------------------------------


def write_one_by_one(path: str, first: int, count: int, **options: Any) -> None:
    """Remember texts with a word of their own; each number is said when it is acknowledged."""
    with open_memory(path, **options) as memory:
        for number in range(first, first + count):
            memory.remember(f"{unique_word(number)} written alone", id=f"one-{number}")
            say(str(number))


def write_batches(path: str, first: int, count: int, size: int, **options: Any) -> None:
    """The same in batches of `size`, all of them in one session of their own."""
    with open_memory(path, **options) as memory:
        for batch in range(first, first + count):
            memory.remember(
                [
                    {
                        "id": f"batch-{batch}-{place}",
                        "content": f"{unique_word(batch * size + place)} written together",
                    }
                    for place in range(size)
                ],
                session_id=f"batch-{batch}",
            )
            say(str(batch))


def write_and_flush(path: str, first: int, count: int, **options: Any) -> None:
    """Remember, then do all the background work in the foreground, so that an armed step is reached for sure."""
    with open_memory(path, **options) as memory:
        for number in range(first, first + count):
            memory.remember(f"{unique_word(number)} written alone", id=f"one-{number}")
            say(str(number))
            memory.flush()


def write_unnamed_and_flush(path: str, first: int, count: int, **options: Any) -> None:
    """Remember texts without ids, which are counted later, and count them after every third."""
    with open_memory(path, **options) as memory:
        for number in range(first, first + count):
            memory.remember(f"{unique_word(number)} 写下来 and nothing decided")
            say(str(number))
            if number % 3 == 2:
                memory.flush()


def forget_session(path: str, session: str, **options: Any) -> None:
    with open_memory(path, **options) as memory:
        memory.forget(session_id=session)
        say("forgotten")


def open_only(path: str, **options: Any) -> None:
    """Open, let the background work finish, close."""
    with open_memory(path, **options) as memory:
        say(memory.flush().complete)


def back_up(path: str, target: str, count: int) -> None:
    """Make the same backup again and again while writing; prints the least number of records of each."""
    with open_memory(path) as memory:
        say("open")
        for number in range(count):
            memory.remember(f"between backups {number}")
            least = memory.get_stats()["records"]
            memory.backup(target)
            say(str(least))


def vacuum(path: str, first: int, count: int, **options: Any) -> None:
    """Write and forget large texts alternately, and return the space after each."""
    with open_memory(path, **options) as memory:
        for number in range(first, first + count):
            memory.remember(f"{unique_word(number)} kept", id=f"one-{number}")
            memory.remember("padding " * 5000, id=f"large-{number}")
            memory.forget(f"large-{number}")
            say(str(number))
            memory.vacuum()


def embed_again(path: str, seed_of_embedder: int, **options: Any) -> None:
    """Change the embedder of a store and embed everything again."""
    with open_memory(path, seed_of_embedder=seed_of_embedder, reconfigure=True, **options) as memory:
        say(memory.flush().complete)


def upgrade(path: str, rows: int, die: bool) -> None:
    """Open with a program that knows one format more; with `die` it is killed inside that upgrade."""
    from loom.storage.sqlite import schema

    schema.UPGRADES.append(
        f"""
        CREATE TABLE extra (number INTEGER PRIMARY KEY, filling BLOB);
        INSERT INTO extra WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows})
            SELECT i, zeroblob(400) FROM n;
        SELECT perhaps_die();
        ALTER TABLE records ADD COLUMN extra INTEGER NOT NULL DEFAULT 7;
        SELECT perhaps_die();
        """
    )
    original = schema.upgrade
    calls = itertools.count(1)

    def perhaps_die() -> None:
        if die and next(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def upgrade_with_function(connection: Any) -> int:
        connection.create_function("perhaps_die", 0, perhaps_die)
        say("upgrading")
        return original(connection)

    schema.upgrade = upgrade_with_function
    with open_memory(path) as memory:
        memory.remember("written in the new format", id="in-the-new-format")
        report = memory.check()
        say({"records": report.records, "problems": report.problems})


def serve(path: str, background: bool = True, **options: Any) -> None:
    """Do what the parent asks, line by line, until it closes the pipe.

    Without `background` its work is done by "flush" alone, in the thread that a signal then stops: no other
    thread can be inside a transaction at that moment.
    """
    if not background:
        mock.patch.object(Worker, "wake").start()
    with open_memory(path, **options) as memory:
        say("open")
        verbs: dict[str, Callable[..., Any]] = {
            "remember": lambda **given: [
                receipt.id for receipt in _listed(memory.remember(given.pop("what"), **given))
            ],
            "recall": lambda **given: [hit.id for hit in memory.recall(**given)],
            "has": lambda id: memory.get(id) is not None,
            "list": lambda **given: [record.id for record in memory.list(**given).records],
            "forget": lambda **given: memory.forget(**given).records,
            "flush": lambda: memory.flush().complete,
            "stats": memory.get_stats,
            "problems": lambda: list(memory.check(repair=False).problems),
        }
        for line in sys.stdin:
            verb, arguments = json.loads(line)
            try:
                answer = verbs[verb](**arguments)
            except Exception as error:  # the parent's test fails with it
                answer = {"error": f"{type(error).__name__}: {error}"}
            say(answer)


def _listed(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def read_until_told(path: str, batches: list[str], size: int, **options: Any) -> None:
    """Recall, list and get without pause until the pipe is closed; prints the number of rounds, or the error."""
    told = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    with open_memory(path, **options) as memory:
        say("open")
        rounds = 0
        while not told.is_set() or not rounds:
            rounds += 1
            batch = batches[rounds % len(batches)]
            listed = memory.list(session_id=batch, limit=size + 1).records
            recalled = memory.recall("together", session_id=batch, limit=size + 1)
            if len(listed) not in (0, size) or len(recalled) not in (0, size) or len(recalled) < len(listed):
                say({"error": f"{batch}: {len(listed)} listed, then {len(recalled)} recalled of {size}"})
                return
            for record in listed[:2]:
                if memory.get(record.id) != record:
                    say({"error": f"{record.id} was listed and is not got"})
                    return
    say({"rounds": rounds})


def fork_and_write(path: str, count: int, ending: str, parent_closes_first: bool, **options: Any) -> None:
    """Fork with the store open; both sides write, and the child ends in one of several ways."""
    memory = open_memory(path, **options)
    _write_named(memory, "before", 3)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with _forked_child():
            _write_named(memory, "child-early", count)
            os.read(told, 1)
            _write_named(memory, "child-late", count)
            if ending == "close":
                memory.close()
            if ending == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
    _write_named(memory, "parent", count)
    if parent_closes_first:
        memory.close()
    os.write(tell, b"!")
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if ending == "kill" else 0), f"the forked child ended with status {status}"
    if not parent_closes_first:
        _write_named(memory, "parent-late", count)
        assert memory.recall("before", limit=1), "the parent no longer recalls"
        memory.close()


def fork_while_busy(path: str, forks: int, count: int, **options: Any) -> None:
    """Fork again and again while one thread writes, one recalls and the worker indexes and embeds."""
    memory = open_memory(path, **options)
    enough = threading.Event()
    failures: list[BaseException] = []

    def insist(action: Callable[[int], object]) -> None:
        try:
            for number in itertools.count():
                if enough.is_set():
                    return
                action(number)
        except BaseException as error:
            failures.append(error)

    def write(number: int) -> None:
        _write_named(memory, f"thread-{number}", 1)

    threads = [
        threading.Thread(target=insist, args=(write,)),
        threading.Thread(target=insist, args=(lambda _: memory.recall("named thread", limit=3),)),
    ]
    for thread in threads:
        thread.start()
    for number in range(forks):
        child = os.fork()
        if child == 0:
            with _forked_child():
                _write_named(memory, f"fork-{number}", count)
                assert len(memory.recall(f"fork-{number}", limit=count)) == count
                if number % 2:
                    memory.close()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"fork {number} ended with status {status}"
    enough.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert memory.flush().complete
    memory.close()


def _write_named(memory: Memory, who: str, count: int) -> None:
    for number in range(count):
        receipt = memory.remember(f"{who} {number} named {who}")
        say([receipt.id, f"{who} {number} named {who}"])


@contextlib.contextmanager
def _forked_child() -> Iterator[None]:
    """Run the block and leave without the parent's clean-up; an error is told and ends with 1."""
    signal.alarm(int(_LONGEST_LIFE_S))  # the watchdog thread is not copied by fork
    try:
        yield
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def shell(words: list[str]) -> None:
    """Run one command of the command line; its standard input and output are those of this process."""
    sys.exit(cli.main(words))


def increment(path: str, key: str, count: int) -> None:
    """Add one to an entry `count` times by compare-and-set, trying again whenever another was first."""
    lost = 0
    with open_memory(path) as memory:
        store = memory.store
        for _ in range(count):
            while True:
                entry = store.entry(key)
                value, version = (0, 0) if entry is None else (entry.content, entry.version)
                try:
                    with store.transaction() as transaction:
                        transaction.put_entry(key, value + 1, writer=str(os.getpid()), expected_version=version)
                    break
                except VersionConflictError:
                    lost += 1
    say({"lost": lost})


def host(path: str, number: int, hosts: int, threads: int, count: int, **options: Any) -> None:
    """Write from several threads, and look after each write for what another host has written last.

    Says what was acknowledged; raises where a record of the other host is not found or a tier exceeds its budget.
    """
    with open_memory(path, **options) as memory:
        store = memory.store
        budgets = {tier: getattr(memory.settings, f"{tier}_token_budget") for tier in ("l2", "l3", "l4")}

        def write(thread: int) -> list[str]:
            acknowledged = []
            for turn in range(count):
                word = unique_word((number * threads + thread) * count + turn)
                said: dict[str, Any] = ({}, {"id": word}, {"importance": 0.95})[(thread + turn) % 3]
                memory.remember(f"{word} was written by host {number}", **said)
                acknowledged.append(word)
                with store.transaction() as transaction:
                    transaction.put_entry(f"host-{number}", word, writer="host")
                    total = transaction.entry("total")
                    transaction.put_entry("total", 1 + (0 if total is None else total.content), writer="host")
                newest = store.entry(f"host-{(number + 1) % hosts}")
                if newest is not None:
                    found = memory.recall(newest.content, limit=1)
                    assert found, f"{newest.content} was written by another host and is not found"
                    assert newest.content in found[0].content
                with store.reading():
                    held = {tier: sum(store.sizes("default", tier).values()) for tier in budgets}
                assert all(held[tier] <= budgets[tier] for tier in budgets), (held, budgets)
            return acknowledged

        with ThreadPoolExecutor(threads) as pool:
            for words in pool.map(write, range(threads)):
                say(words)


def claim(path: str, keys: int) -> None:
    """Try to be the first to write each of some keys; prints the keys that it won."""
    with open_memory(path) as memory:
        say("ready")
        sys.stdin.readline()
        for number in range(keys):
            try:
                with memory.store.transaction() as transaction:
                    transaction.put_entry(f"key-{number}", os.getpid(), writer="claim", expected_version=0)
                say(f"key-{number}")
            except VersionConflictError:
                continue


def main() -> None:
    faulthandler.dump_traceback_later(_LONGEST_LIFE_S, exit=True)
    arguments = json.loads(sys.argv[2])
    if "armed" in arguments:
        arm(arguments.pop("armed"))
    role: Callable[..., None] = globals()[sys.argv[1]]
    role(**arguments)


if __name__ == "__main__":
    main()
