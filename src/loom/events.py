"""The event bus: delivers every Task that agents exchange to the registered handlers.

Handlers are plain or async functions of one Task. A failing handler is reported and does not affect the others. The
bus passes on the Task object itself; it never changes, copies or keeps it.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING, Any

from loom.checks import checked_whole
from loom.errors import InvalidInput
from loom.forks import renew_after_fork
from loom.protocol import Task, Uncopied

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

__all__ = ["EventBus", "Handler", "HandlerFailure", "Subscription"]

Handler = Callable[[Task], Any]
"""A function of one Task. If it returns a coroutine, or a future of the publishing loop, that is awaited. Any other
value, awaitable or not, is the result."""

_EVERYTHING = "*"
# Exceptions that end the program are not failures of a handler.
_FATAL = (KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """The failure of a handler on an event. `error` is the exception, with its traceback."""

    action: str
    handler: str
    error: BaseException
    task_id: str


class Subscription:
    """A registration of a handler. `cancel` ends it; used as a context manager, it ends with the block."""

    __slots__ = ("_end", "_home", "_process", "action", "active", "blocking", "handler", "order")

    def __init__(
        self, end: Callable[[Subscription], bool], action: str, handler: Handler, blocking: bool, order: int
    ) -> None:
        self._end = end
        self._home = _running_loop()
        self._process = os.getpid()
        self.action = action
        self.handler = handler
        self.blocking = blocking
        self.order = order
        self.active = True

    @property
    def handler_name(self) -> str:
        function: Any = self.handler.func if isinstance(self.handler, partial) else self.handler
        name = getattr(function, "__qualname__", None) or type(function).__qualname__
        return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"

    def cancel(self) -> bool:
        """End this registration; False if it has already ended. A publish in progress still calls the handler."""
        return self._end(self)

    def loop_elsewhere(self, here: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop | None:
        """Return the loop of the registration, if it is not `here` and runs in this process."""
        home = self._home
        if home is None or home is here or self._process != os.getpid():  # the loop runs in the parent process
            return None
        return home if home.is_running() else None

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"Subscription(action={self.action!r}, handler={self.handler_name})"


@dataclass(slots=True)
class _Started:
    """The state after calling the handlers: results in their places, and coroutines that still wait."""

    results: list[Any] = field(default_factory=list)
    waiting: list[tuple[int, Subscription, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Delivery:
    """A delivery in the background, as seen by the code inside it."""

    ended: bool = False

    def end(self, _future: object) -> None:
        self.ended = True


# The deliveries in which the current code runs, outermost first.
_deliveries: ContextVar[tuple[_Delivery, ...]] = ContextVar("loom_deliveries", default=())


class EventBus(Uncopied):
    """Publishes Tasks to the handlers of their action and to those of `"*"`.

    Where handlers run:

    - Plain handlers run in the publishing thread, one after another in the order of registration. On an event loop
      they block the loop, so register slow ones with `blocking=True`: they then run in a worker thread whenever a
      loop publishes.
    - Async handlers start after the plain ones, in the order of registration, and run concurrently.
    - An async handler that was registered on a loop belongs to that loop. If another thread publishes while the loop
      runs, the handler is passed to the loop and not waited for, because the loop may be waiting for the publisher:
      its result is a `concurrent.futures.Future`.

    The result of a failing handler is a `HandlerFailure`. The latest failures are in `failures`; each is logged under
    `loom.events` (names only, no content) and passed to `on_error`. All methods may be called from any thread.
    `failure_history` bounds the number of stored failures. The bus keeps no Task, so it never holds a forgotten one.
    """

    def __init__(
        self,
        *,
        failure_history: int = 100,
        on_error: Callable[[HandlerFailure], None] | None = None,
    ) -> None:
        # Reentrant: the garbage collector may run a finaliser that cancels a subscription while the lock is held.
        self._lock = RLock()
        self._order = count()
        self._handlers: dict[str, tuple[Subscription, ...]] = {}
        self._failures: deque[HandlerFailure] = deque(maxlen=checked_whole(failure_history, "failure_history"))
        self._on_error = on_error
        # Strong references: a loop holds its tasks weakly, so a task without another reference may be collected.
        self._background: dict[Any, asyncio.AbstractEventLoop] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Reset the state in a forked child: the lock may be held, and the loops belong to the parent."""
        self._lock = RLock()
        self._background = {}

    # --- registration ---

    def register_handler(self, action: str, handler: Handler, *, blocking: bool = False) -> Subscription:
        """Call `handler` with every Task of this action, or of all actions with `"*"`.

        A handler that is registered twice is called twice. `blocking=True` is for slow plain functions: a publishing
        loop runs them in a worker thread.
        """
        if not isinstance(action, str) or not action or (_EVERYTHING in action and action != _EVERYTHING):
            raise InvalidInput(f'cannot register for {action!r}: give one whole action, or "*" for all')
        if not callable(handler):
            raise InvalidInput(f"a handler must be callable, and {type(handler).__name__} is not")
        with self._lock:
            subscription = Subscription(self._cancel, action, handler, blocking, next(self._order))
            # Tuples are replaced, never changed, so a publish in progress keeps its own.
            self._handlers[action] = (*self._handlers.get(action, ()), subscription)
        return subscription

    subscribe = register_handler

    def unregister_handler(self, action: str, handler: Handler) -> int:
        """End every registration of `handler` for `action`; return their number."""
        return self._keep_only(action, lambda one: one.handler != handler)

    def _cancel(self, subscription: Subscription) -> bool:
        return self._keep_only(subscription.action, lambda one: one is not subscription) > 0

    def _keep_only(self, action: str, kept: Callable[[Subscription], bool]) -> int:
        """End the registrations for an action that are not kept; return their number."""
        with self._lock:
            before = self._handlers.get(action, ())
            after = self._handlers[action] = tuple(filter(kept, before))
            if not after:
                del self._handlers[action]
            for ended in {*before} - {*after}:
                ended.active = False
        return len(before) - len(after)

    # --- publishing ---

    async def publish(self, task: Task, wait: bool = True) -> list[Any]:
        """Publish on the running loop.

        With `wait`, return the results of the handlers in the order of registration. Without it, schedule the
        handlers and return an empty list; `drain` waits for them. Cancelling a publish that waits cancels its async
        handlers and waits for them to end; a handler in a worker thread cannot be stopped.
        """
        subscriptions = self._begin(task)
        if wait:
            return await self._deliver(task, subscriptions)
        self._schedule(lambda: self._deliver(task, subscriptions))
        return []

    def publish_sync(self, task: Task) -> list[Any]:
        """Publish from code without an event loop, and return the results of the handlers.

        Plain handlers, blocking or not, run in this thread. Async handlers that belong to no running loop run to
        completion on a new loop, together with everything that they publish without waiting. That loop is closed
        afterwards, so they must leave nothing on it. It takes about 160 microseconds of CPU, only if there is such a
        handler. Raises `InvalidInput` on a running loop, which the call would block: use `await publish(task)` or
        `publish_nowait`.
        """
        if _running_loop() is not None:
            raise InvalidInput(
                "publish_sync would block the running event loop; "
                "use `await bus.publish(task)`, or `bus.publish_nowait(task)` from plain code"
            )
        started = self._start(task, self._begin(task), use_threads=False)
        if started.waiting:
            import asyncio

            # With a loop factory, the current loop of the thread, which may be the caller's, is not changed.
            with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
                runner.run(self._finish_all(task, started))
        return started.results

    def publish_nowait(self, task: Task) -> None:
        """Publish from plain code, on a loop or without one, without results.

        Plain handlers have run when this returns. On a running loop, async and blocking handlers are scheduled, and
        `drain` waits for them; without a loop they run to completion as in `publish_sync`.
        """
        if _running_loop() is None:
            self.publish_sync(task)
            return
        started = self._start(task, self._begin(task), use_threads=True)
        if started.waiting:
            self._schedule(lambda: self._finish(task, started, _launch(started)))

    async def drain(self) -> None:
        """Wait until all background deliveries of this loop are complete.

        Raises `InvalidInput` in a handler of such a delivery, which would wait for itself.
        """
        import asyncio

        if any(not delivery.ended for delivery in _deliveries.get()):
            raise InvalidInput("drain was called from a handler that drain would have to wait for")
        here = asyncio.get_running_loop()
        while True:
            with self._lock:
                for left_behind in [key for key, loop in self._background.items() if loop.is_closed()]:
                    del self._background[left_behind]
                pending = [future for future, loop in self._background.items() if loop is here]
            if not pending:
                return
            done, _ = await asyncio.wait([asyncio.wrap_future(future) for future in pending])
            for future in done:  # retrieved, or the loop would log a failure that is already reported
                if not future.cancelled():
                    future.exception()

    # --- state ---

    @property
    def pending(self) -> int:
        """The number of background deliveries in progress, on all loops."""
        with self._lock:
            return len(self._background)

    @property
    def failures(self) -> list[HandlerFailure]:
        """The latest failures, oldest first."""
        with self._lock:
            return list(self._failures)

    # --- delivery ---

    def _begin(self, task: Task) -> tuple[Subscription, ...]:
        """Return the subscriptions that will get the event."""
        if not isinstance(task, Task):
            raise InvalidInput(f"events are Tasks; {type(task).__name__} cannot be published")
        if task.action == _EVERYTHING:
            raise InvalidInput('"*" stands for every action when registering and cannot be published')
        with self._lock:
            named = self._handlers.get(task.action, ())
            everything = self._handlers.get(_EVERYTHING, ())
        if named and everything:
            return tuple(sorted((*named, *everything), key=lambda subscription: subscription.order))
        return named or everything

    async def _deliver(self, task: Task, subscriptions: tuple[Subscription, ...]) -> list[Any]:
        started = self._start(task, subscriptions, use_threads=True)
        if started.waiting:
            await self._finish(task, started, _launch(started))
        return started.results

    def _start(self, task: Task, subscriptions: tuple[Subscription, ...], *, use_threads: bool) -> _Started:
        """Call each handler. Async handlers and those for threads have not run yet and are `waiting`."""
        started = _Started()
        here = _running_loop()
        try:
            for place, subscription in enumerate(subscriptions):
                if subscription.blocking and use_threads:
                    started.results.append(None)
                    started.waiting.append((place, subscription, self._in_thread(subscription, task)))
                    continue
                result = self._call(subscription, task)
                if _is_pending(result, here):
                    handed_over = self._hand_over(subscription, task, result, here)
                    if handed_over is None:
                        started.waiting.append((place, subscription, result))
                    result = handed_over
                started.results.append(result)
        except BaseException:
            for _, _, unstarted in started.waiting:
                if isinstance(unstarted, Coroutine):
                    unstarted.close()
            raise
        return started

    async def _finish(self, task: Task, started: _Started, futures: list[asyncio.Future[Any]]) -> None:
        """Await the launched handlers, and put their outcomes into their places."""
        import asyncio

        try:
            await asyncio.wait(futures)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            await asyncio.wait(futures)
            for (_, subscription, _), future in zip(started.waiting, futures, strict=True):
                if not future.cancelled() and (error := future.exception()) is not None:
                    self._report(subscription, task, error)
            raise
        for (place, subscription, _), future in zip(started.waiting, futures, strict=True):
            if future.cancelled():  # cancelled by the handler or from outside, but this delivery was not
                started.results[place] = self._report(subscription, task, asyncio.CancelledError())
            elif (error := future.exception()) is not None:
                started.results[place] = self._report(subscription, task, error)
            else:
                started.results[place] = future.result()

    async def _finish_all(self, task: Task, started: _Started) -> None:
        await self._finish(task, started, _launch(started))
        await self.drain()

    def _call(self, subscription: Subscription, task: Task) -> Any:
        try:
            return subscription.handler(task)
        except _FATAL:
            raise
        except BaseException as error:  # also a CancelledError: nothing can cancel this task inside a plain call
            return self._report(subscription, task, error)

    async def _in_thread(self, subscription: Subscription, task: Task) -> Any:
        import asyncio

        # Failures are reported from the thread: after a cancellation, no code reads the result.
        result = await asyncio.to_thread(self._call, subscription, task)
        return await result if _is_pending(result, asyncio.get_running_loop()) else result

    def _hand_over(
        self, subscription: Subscription, task: Task, awaitable: Any, here: asyncio.AbstractEventLoop | None
    ) -> Future[Any] | None:
        """Pass an async handler to the loop on which it was registered. None means that it runs here."""
        home = subscription.loop_elsewhere(here)
        if home is None or not isinstance(awaitable, Coroutine):
            return None
        import asyncio

        delivery, context = _new_delivery()
        try:
            handed_over = context.run(asyncio.run_coroutine_threadsafe, awaitable, home)
        except RuntimeError:  # closed in the meantime; the coroutine has not begun
            return None

        def look(future: Future[Any]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                self._report(subscription, task, error)

        handed_over.add_done_callback(look)
        handed_over.add_done_callback(delivery.end)
        self._keep(handed_over, home)
        return handed_over

    def _schedule(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        delivery, context = _new_delivery()
        future = loop.create_task(context.run(begin), context=context)
        future.add_done_callback(delivery.end)
        self._keep(future, loop)

    def _keep(self, future: Any, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._background[future] = loop
        future.add_done_callback(self._drop)

    def _drop(self, future: Any) -> None:
        with self._lock:
            self._background.pop(future, None)

    def _report(self, subscription: Subscription, task: Task, error: BaseException) -> HandlerFailure:
        import logging

        failure = HandlerFailure(task.action, subscription.handler_name, error, task.task_id)
        with self._lock:
            self._failures.append(failure)
        logger = logging.getLogger("loom.events")
        # The message of the error may quote content of the event, so only its type is logged.
        logger.error("handler %s failed on %r: %s", failure.handler, failure.action, type(error).__name__)
        if self._on_error is not None:
            try:
                self._on_error(failure)
            except Exception as second:
                logger.error("on_error failed on %r: %s", failure.action, type(second).__name__)
        return failure


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # Importing asyncio takes several times as long as starting Python. If it is not imported, no loop is running.
    events = sys.modules.get("asyncio.events")
    current: Callable[[], asyncio.AbstractEventLoop | None] | None
    current = getattr(events, "_get_running_loop", None)
    return current() if current is not None else None


def _launch(started: _Started) -> list[asyncio.Future[Any]]:
    import asyncio

    return [asyncio.ensure_future(awaitable) for _, _, awaitable in started.waiting]


def _new_delivery() -> tuple[_Delivery, Context]:
    """Return a delivery, and a context in which `drain` recognises it."""
    delivery = _Delivery()
    context = copy_context()
    around = tuple(outer for outer in _deliveries.get() if not outer.ended)
    context.run(_deliveries.set, (*around, delivery))
    return delivery, context


def _is_pending(result: Any, here: asyncio.AbstractEventLoop | None) -> bool:
    """Whether a value is a coroutine or a future of this loop. Other awaitables, such as a receipt, are results."""
    if result is None:
        return False
    if getattr(type(result), "_asyncio_future_blocking", None) is not None:
        return here is not None and result.get_loop() is here
    return isinstance(result, Coroutine)
