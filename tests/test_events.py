"""The event bus: which handlers get an event, in which order, and the state after failures and cancellation."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from loom.errors import InvalidInput
from loom.events import EventBus, HandlerFailure
from loom.protocol import Task


def event(action: str = "execute", **fields: Any) -> Task:
    return Task(action=action, **fields)


def publish(bus: EventBus, task: Task) -> list[Any]:
    return asyncio.run(bus.publish(task))


def failing(_task: Task) -> None:
    raise ValueError("secret content")


async def failing_later(_task: Task) -> None:
    await asyncio.sleep(0)
    raise ValueError("secret content")


def fails_with(error: BaseException) -> Callable[[Task], None]:
    def handler(_task: Task) -> None:
        raise error

    return handler


async def answer_later(task: Task) -> str:
    await asyncio.sleep(0)
    return f"later {task.action}"


# --- who hears what ---


def test_handlers_hear_their_action_and_the_wildcard_hears_all() -> None:
    bus = EventBus()
    heard: list[tuple[str, str]] = []
    bus.register_handler("a", lambda task: heard.append(("a", task.action)))
    bus.register_handler("*", lambda task: heard.append(("*", task.action)))
    bus.subscribe("b", lambda task: heard.append(("b", task.action)))
    for action in ("a", "b", "c", ""):
        publish(bus, event(action))
    assert heard == [("a", "a"), ("*", "a"), ("*", "b"), ("b", "b"), ("*", "c"), ("*", "")]


def test_results_come_in_the_order_of_registration_whatever_the_kind_of_handler() -> None:
    bus = EventBus()
    bus.register_handler("*", answer_later)
    bus.register_handler("execute", lambda _: "at once")
    bus.register_handler("*", lambda _: "in a thread", blocking=True)
    bus.register_handler("execute", partial(answer_later))
    expected = ["later execute", "at once", "in a thread", "later execute"]
    assert publish(bus, event()) == expected
    assert bus.publish_sync(event()) == expected


def test_the_very_task_is_handed_on_unchanged() -> None:
    bus = EventBus()
    task = event(parameters={"key": [1]})
    before = task.to_dict()
    bus.register_handler("*", lambda heard: heard)
    assert publish(bus, task)[0] is task
    assert task.to_dict() == before


def test_a_publish_that_nobody_hears_gives_no_results() -> None:
    assert publish(EventBus(), event()) == []
    assert EventBus().publish_sync(event()) == []


def test_a_handler_registered_twice_is_called_twice_and_unregistered_at_once() -> None:
    bus = EventBus()
    heard: list[Task] = []
    bus.register_handler("execute", heard.append)
    bus.register_handler("execute", heard.append)
    bus.publish_sync(event())
    assert len(heard) == 2
    assert bus.unregister_handler("execute", heard.append) == 2
    assert bus.unregister_handler("execute", heard.append) == 0
    bus.publish_sync(event())
    assert len(heard) == 2


def test_a_cancelled_subscription_is_silent_and_its_twin_is_not() -> None:
    bus = EventBus()
    heard: list[Task] = []
    first = bus.register_handler("execute", heard.append)
    second = bus.register_handler("execute", heard.append)
    assert first.cancel()
    assert not first.cancel()
    assert (first.active, second.active) == (False, True)
    bus.publish_sync(event())
    assert len(heard) == 1


def test_a_subscription_ends_with_its_block() -> None:
    bus = EventBus()
    with bus.register_handler("*", lambda _: "heard"):
        assert bus.publish_sync(event()) == ["heard"]
    assert bus.publish_sync(event()) == []


def test_handlers_added_or_removed_during_a_publish_do_not_affect_it() -> None:
    bus = EventBus()
    heard: list[str] = []

    def change(_task: Task) -> None:
        heard.append("change")
        bus.unregister_handler("*", last)
        bus.register_handler("*", added)

    def last(_task: Task) -> None:
        heard.append("last")

    def added(_task: Task) -> None:
        heard.append("added")

    bus.register_handler("*", change)
    bus.register_handler("*", last)
    bus.publish_sync(event())
    assert heard == ["change", "last"]
    bus.publish_sync(event())
    assert heard[2:] == ["change", "added"]


def test_a_scheduled_publish_keeps_the_handlers_it_began_with() -> None:
    bus = EventBus()
    heard: list[str] = []
    early = bus.register_handler("*", lambda _: heard.append("early"))

    async def main() -> None:
        await bus.publish(event(), wait=False)
        early.cancel()
        bus.register_handler("*", lambda _: heard.append("late"))
        await bus.drain()

    asyncio.run(main())
    assert heard == ["early"]


@pytest.mark.parametrize("action", ["", "node.*", "**", None, 5])
def test_an_action_that_could_never_match_is_refused(action: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot register"):
        EventBus().register_handler(action, print)


def test_what_cannot_be_called_or_published_is_refused() -> None:
    bus = EventBus()
    with pytest.raises(InvalidInput, match="must be callable"):
        bus.register_handler("*", "print")  # type: ignore[arg-type]
    for publishing in (bus.publish_sync, bus.publish_nowait, partial(publish, bus)):
        with pytest.raises(InvalidInput, match="events are Tasks"):
            publishing({"action": "execute"})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="cannot be published"):
            publishing(event("*"))


# --- what happened ---


@pytest.mark.parametrize("limit", [-1, True, 1.0])
def test_a_limit_that_is_no_count_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidInput, match="failure_history must be a whole number"):
        EventBus(failure_history=limit)


# --- failures ---


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("failure", [failing, failing_later])
@pytest.mark.parametrize("with_loop", [False, True])
def test_a_failing_handler_stops_nobody_and_is_reported(
    failure: Callable[[Task], Any], blocking: bool, with_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[HandlerFailure] = []
    bus = EventBus(on_error=told.append)
    bus.register_handler("*", lambda _: "first")
    bus.register_handler("execute", failure, blocking=blocking)
    bus.register_handler("*", answer_later)
    task = event(parameters={"text": "secret content"})
    with caplog.at_level(logging.DEBUG, logger="loom.events"):
        results = publish(bus, task) if with_loop else bus.publish_sync(task)
    assert [results[0], results[2]] == ["first", "later execute"]
    assert results[1] is bus.failures[0] is told[0]
    assert len(bus.failures) == len(told) == 1
    assert (told[0].action, told[0].task_id) == ("execute", task.task_id)
    assert told[0].handler.endswith(f"test_events.{failure.__name__}")
    assert isinstance(told[0].error, ValueError)
    assert failure.__name__ in caplog.text
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_the_list_of_failures_is_bounded_to_the_latest() -> None:
    bus = EventBus(failure_history=3)
    bus.register_handler("*", failing)
    for number in range(5):
        bus.publish_sync(event(str(number)))
    assert [failure.action for failure in bus.failures] == ["2", "3", "4"]


def test_a_failing_on_error_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def on_error(_failure: HandlerFailure) -> None:
        raise RuntimeError("secret content")

    bus = EventBus(on_error=on_error)
    bus.register_handler("*", failing)
    bus.register_handler("*", lambda _: "second")
    assert bus.publish_sync(event())[1] == "second"
    assert "on_error failed on 'execute': RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), RecursionError()])
def test_unusual_errors_of_a_plain_handler_are_failures_too(error: BaseException) -> None:
    bus = EventBus()
    bus.register_handler("*", fails_with(error))
    bus.register_handler("*", fails_with(error), blocking=True)
    results = publish(bus, event())
    assert [result.error for result in results] == [error, error]


def test_an_async_handler_that_is_cancelled_from_within_is_a_failure_of_its_own() -> None:
    async def gives_up(_task: Task) -> None:
        raise asyncio.CancelledError

    async def cancels_itself(_task: Task) -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(0)

    bus = EventBus()
    bus.register_handler("*", gives_up)
    bus.register_handler("*", cancels_itself)
    bus.register_handler("*", answer_later)
    first, second, third = publish(bus, event())
    assert isinstance(first.error, asyncio.CancelledError)
    assert isinstance(second.error, asyncio.CancelledError)
    assert third == "later execute"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_is_not_swallowed_and_leaves_no_coroutine_behind(
    error: type[BaseException],
) -> None:
    bus = EventBus()
    bus.register_handler("*", answer_later)
    bus.register_handler("*", lambda _: "in a thread", blocking=True)
    bus.register_handler("*", fails_with(error()))
    with pytest.raises(error):
        bus.publish_sync(event())
    with pytest.raises(error):
        publish(bus, event())
    gc.collect()  # a coroutine that was never awaited would warn here, and warnings are errors
    assert bus.failures == []


def test_handlers_of_every_kind_have_a_name_in_reports() -> None:
    class Caller:
        def __call__(self, task: Task) -> None:
            failing(task)

        def method(self, task: Task) -> None:
            failing(task)

    bus = EventBus()
    for handler in (Caller(), Caller().method, partial(failing), lambda task: failing(task)):
        bus.register_handler("*", handler)
    bus.publish_sync(event())
    assert [failure.handler.rsplit(".", 1)[1] for failure in bus.failures] == [
        "Caller",
        "method",
        "failing",
        "<lambda>",
    ]


# --- async delivery ---


def test_async_handlers_run_side_by_side() -> None:
    bus = EventBus()

    async def main() -> list[Any]:
        meeting = asyncio.Event()

        async def waits(_task: Task) -> str:
            await meeting.wait()
            return "met"

        async def comes(_task: Task) -> None:
            meeting.set()

        bus.register_handler("*", waits)
        bus.register_handler("*", comes)
        return await bus.publish(event())

    assert asyncio.run(main()) == ["met", None]


def test_a_blocking_handler_leaves_the_loop_free() -> None:
    bus = EventBus()
    release = threading.Event()
    bus.register_handler("*", lambda _: (release.wait(), threading.get_ident())[1], blocking=True)

    async def main() -> list[Any]:
        publishing = asyncio.create_task(bus.publish(event()))
        await asyncio.sleep(0)
        release.set()  # never reached if the handler held the loop
        return await publishing

    assert asyncio.run(main()) != [threading.get_ident()]


def test_publishing_without_waiting_returns_before_anything_runs_and_drain_waits() -> None:
    bus = EventBus()
    heard: list[str] = []

    async def later(task: Task) -> None:
        await asyncio.sleep(0)
        heard.append(f"async {task.action}")
        if task.action == "first":
            await bus.publish(event("second"), wait=False)

    bus.register_handler("*", lambda task: heard.append(f"plain {task.action}"))
    bus.register_handler("*", later)

    async def main() -> None:
        assert await bus.publish(event("first"), wait=False) == []
        assert heard == []
        gc.collect()  # what is scheduled must not hang on somebody else's reference
        await bus.drain()

    asyncio.run(main())
    assert heard == ["plain first", "async first", "plain second", "async second"]
    assert bus.pending == 0


def test_drain_without_anything_to_wait_for_returns() -> None:
    asyncio.run(EventBus().drain())


def test_giving_up_on_drain_cancels_nothing() -> None:
    bus = EventBus()

    async def main() -> list[str]:
        heard: list[str] = []
        gate = asyncio.Event()

        async def later(_task: Task) -> None:
            await gate.wait()
            heard.append("done")

        bus.register_handler("*", later)
        await bus.publish(event(), wait=False)
        draining = asyncio.create_task(bus.drain())
        await asyncio.sleep(0)
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        gate.set()
        await bus.drain()
        return heard

    assert asyncio.run(main()) == ["done"]


@pytest.mark.parametrize("nowait", [False, True])
def test_a_handler_that_would_wait_for_itself_is_told_so(nowait: bool) -> None:
    bus = EventBus()

    async def drains(_task: Task) -> None:
        await bus.drain()

    bus.register_handler("*", drains)

    async def main() -> None:
        if nowait:
            bus.publish_nowait(event())
        else:
            await bus.publish(event(), wait=False)
        await bus.drain()

    asyncio.run(main())
    assert isinstance(bus.failures[0].error, InvalidInput)
    # Once its delivery has ended, whatever the handler left running may drain.
    bus.unregister_handler("*", drains)
    left: list[asyncio.Task[None]] = []

    async def leaves(_task: Task) -> None:
        async def drain_when_over() -> None:
            while bus.pending:
                await asyncio.sleep(0)
            await bus.drain()

        left.append(asyncio.create_task(drain_when_over()))

    bus.register_handler("*", leaves)

    async def again() -> None:
        await bus.publish(event(), wait=False)
        await bus.drain()
        await left[0]

    asyncio.run(again())


class Receipt:
    """A finished answer that may also be awaited, as `add_task` gives."""

    def __await__(self) -> Any:
        raise AssertionError("a result is not awaited")
        yield


def test_a_result_that_could_be_awaited_is_still_a_result() -> None:
    bus = EventBus()
    receipt = Receipt()
    bus.register_handler("*", lambda _: receipt)
    assert publish(bus, event()) == [receipt]
    assert bus.publish_sync(event()) == [receipt]


def test_a_future_of_this_loop_is_awaited_and_one_of_another_is_a_result() -> None:
    bus = EventBus()
    elsewhere = asyncio.new_event_loop()
    foreign = elsewhere.create_future()

    async def main() -> list[Any]:
        own = asyncio.get_running_loop().create_future()
        bus.register_handler("*", lambda _: own)
        bus.register_handler("*", lambda _: foreign)
        asyncio.get_running_loop().call_soon(own.set_result, "own")
        return await bus.publish(event())

    try:
        assert asyncio.run(main()) == ["own", foreign]
    finally:
        elsewhere.close()


# --- cancellation ---


def test_cancelling_a_waiting_publisher_cancels_its_handlers_and_reaches_the_publisher() -> None:
    bus = EventBus()
    ended: list[str] = []

    async def main() -> None:
        started = asyncio.Event()

        async def sleeps(_task: Task) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("sleeps")

        async def fails_at_the_end(_task: Task) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError

        bus.register_handler("*", sleeps)
        bus.register_handler("*", fails_at_the_end)
        publishing = asyncio.create_task(bus.publish(event()))
        await started.wait()
        await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert ended == ["sleeps"]  # before the publisher, not some time after it

    asyncio.run(main())
    assert [type(failure.error) for failure in bus.failures] == [ValueError]


def test_a_publisher_cancelled_before_it_began_leaves_nothing_behind() -> None:
    bus = EventBus()
    heard: list[Task] = []

    async def hears(task: Task) -> None:
        heard.append(task)

    bus.register_handler("*", hears)

    async def main() -> None:
        publishing = asyncio.create_task(bus.publish(event()))
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing

    asyncio.run(main())
    gc.collect()
    assert heard == []


@pytest.mark.parametrize("nowait", [False, True])
def test_a_loop_that_ends_early_leaves_no_coroutine_and_no_reference_behind(nowait: bool) -> None:
    bus = EventBus()

    async def sleeps(_task: Task) -> None:
        await asyncio.Event().wait()

    bus.register_handler("*", sleeps)

    async def main() -> None:
        if nowait:
            bus.publish_nowait(event())
        else:
            await bus.publish(event(), wait=False)

    asyncio.run(main())
    gc.collect()
    assert bus.pending == 0
    assert bus.failures == []


def test_the_failure_of_a_thread_that_nobody_waits_for_any_more_is_still_reported() -> None:
    bus = EventBus()
    started, release = threading.Event(), threading.Event()

    def works(_task: Task) -> None:
        started.set()
        release.wait()
        raise ValueError

    bus.register_handler("*", works, blocking=True)

    async def main() -> None:
        publishing = asyncio.create_task(bus.publish(event()))
        while not started.is_set():
            await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        release.set()

    asyncio.run(main())  # its end waits for the threads
    assert [type(failure.error) for failure in bus.failures] == [ValueError]


# --- plain callers ---


def test_publish_sync_refuses_to_block_a_running_loop() -> None:
    bus = EventBus()
    heard: list[Task] = []
    bus.register_handler("*", heard.append)

    async def main() -> None:
        with pytest.raises(InvalidInput, match="would block the running event loop"):
            bus.publish_sync(event())

    asyncio.run(main())
    assert heard == []


def test_publish_nowait_on_a_loop_runs_plain_handlers_at_once_and_schedules_the_rest() -> None:
    bus = EventBus()
    heard: list[str] = []

    async def later(_task: Task) -> None:
        heard.append("async")

    bus.register_handler("*", later)
    bus.register_handler("*", lambda _: heard.append("blocking"), blocking=True)
    bus.register_handler("*", lambda _: heard.append("plain"))

    async def main() -> None:
        bus.publish_nowait(event())
        assert heard == ["plain"]
        await bus.drain()

    asyncio.run(main())
    assert heard[0] == "plain"
    assert sorted(heard) == ["async", "blocking", "plain"]


def test_publish_nowait_without_a_loop_has_run_everything_when_it_returns() -> None:
    bus = EventBus()
    heard: list[str] = []

    async def later(task: Task) -> None:
        for _ in range(1 if task.action == "first" else 50):
            await asyncio.sleep(0)
        heard.append(task.action)
        if task.action == "first":
            bus.publish_nowait(event("second"))
            await bus.publish(event("third"), wait=False)

    bus.register_handler("*", later)
    bus.publish_nowait(event("first"))
    assert sorted(heard) == ["first", "second", "third"]
    assert bus.pending == 0


def test_publishing_without_a_loop_keeps_the_threads_own_loop() -> None:
    bus = EventBus()
    bus.register_handler("*", answer_later)
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    try:
        assert bus.publish_sync(event()) == ["later execute"]
        assert asyncio.get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()


# --- several threads and loops ---


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def __enter__(self) -> LoopThread:
        self.thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@pytest.mark.parametrize("with_loop", [False, True])
def test_an_async_handler_runs_on_the_loop_it_was_registered_on(with_loop: bool) -> None:
    bus = EventBus()
    with LoopThread() as home:

        async def where(_task: Task) -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        async def register() -> None:
            bus.register_handler("*", where)

        home.run(register())
        (handed_over,) = publish(bus, event()) if with_loop else bus.publish_sync(event())
        assert handed_over.result(60) is home.loop
        assert home.run(bus.publish(event())) == [home.loop]
    # The home is gone: then it runs where it is published.
    (loop,) = bus.publish_sync(event())
    assert loop is not home.loop
    assert loop.is_closed()


def test_a_handed_over_failure_is_reported_and_drained_at_home(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()
    with LoopThread() as home:

        async def register() -> asyncio.Event:
            gate = asyncio.Event()

            async def fails(_task: Task) -> None:
                await gate.wait()
                raise ValueError("secret content")

            bus.register_handler("*", fails)
            return gate

        gate = home.run(register())
        bus.publish_nowait(event())
        draining = asyncio.run_coroutine_threadsafe(bus.drain(), home.loop)
        assert bus.failures == []
        home.loop.call_soon_threadsafe(gate.set)
        draining.result(60)
        gc.collect()
    assert [type(failure.error) for failure in bus.failures] == [ValueError]
    assert "secret" not in caplog.text


def test_a_handed_over_handler_that_would_wait_for_itself_is_told_so() -> None:
    bus = EventBus()
    with LoopThread() as home:

        async def drains(_task: Task) -> None:
            await bus.drain()

        async def register() -> None:
            bus.register_handler("*", drains)

        home.run(register())
        (handed_over,) = bus.publish_sync(event())
        assert isinstance(handed_over.exception(60), InvalidInput)


def test_drain_forgets_what_a_closed_loop_left_behind() -> None:
    bus = EventBus()

    async def sleeps(_task: Task) -> None:
        await asyncio.Event().wait()

    bus.register_handler("*", sleeps)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(bus.publish(event(), wait=False))
    left_behind = asyncio.all_tasks(loop)
    assert bus.pending == 1
    for task in left_behind:
        task.cancel()
    loop.set_exception_handler(lambda _loop, _context: None)  # of tasks that are destroyed while they wait
    loop.close()  # before the cancellation could be carried out
    asyncio.run(bus.drain())
    assert bus.pending == 0
    for task in left_behind:
        task.get_coro().close()


def test_registration_from_many_threads_loses_nothing() -> None:
    bus = EventBus()
    gate = threading.Barrier(4)
    kept: list[Any] = []

    def work() -> None:
        gate.wait()
        for _ in range(200):
            kept.append(bus.register_handler("*", lambda _: 1))
            bus.register_handler("*", lambda _: 2).cancel()
            bus.publish_sync(event())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.publish_sync(event()) == [1] * 800
    assert all(subscription.active for subscription in kept)


def test_a_forked_child_publishes_by_itself() -> None:
    # At the fork another thread holds the bus's lock, because a comparison of handlers takes long there, and the
    # handler's loop runs, in the parent only.
    script = (
        "import asyncio, os, sys, threading, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from loom.events import EventBus\n"
        "from loom.protocol import Task\n"
        "bus = EventBus()\n"
        "async def where(task): return os.getpid()\n"
        "held, release = threading.Event(), threading.Event()\n"
        "class Slow:\n"
        "    def __ne__(self, other): held.set(); return release.wait()\n"
        "async def main():\n"
        "    bus.register_handler('*', where)\n"
        "    thread = threading.Thread(target=bus.unregister_handler, args=('*', Slow()))\n"
        "    thread.start(); held.wait()\n"
        "    if (child := os.fork()) == 0:\n"
        "        assert bus.publish_sync(Task(action='x')) == [os.getpid()]\n"
        "        sys.stdout.write('heard'); sys.stdout.flush(); os._exit(0)\n"
        "    release.set(); thread.join()\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "asyncio.run(main())\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert finished.stdout == "heard"


def test_plain_publishing_does_not_load_asyncio() -> None:
    script = (
        "import sys\n"
        "from loom.events import EventBus\n"
        "from loom.protocol import Task\n"
        "bus = EventBus(); bus.register_handler('*', lambda task: 1)\n"
        "assert bus.publish_sync(Task(action='x')) == [1]\n"
        "bus.publish_nowait(Task(action='x'))\n"
        "sys.exit('asyncio' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
