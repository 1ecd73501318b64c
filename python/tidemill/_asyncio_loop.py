"""Calls that run on an asyncio loop without a thread: the loop watches two descriptors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary

from tidemill import _native

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class _LoopCalls:
    """The pending calls of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.calls = _native.PendingCalls()
        self.futures: dict[int, asyncio.Future[object]] = {}
        self.timer: asyncio.TimerHandle | None = None
        for descriptor in self.calls.filenos():
            loop.add_reader(descriptor, self.poll)

    def poll(self) -> None:
        """Drives the pending calls and completes the futures of those that are done."""
        completed, seconds = self.calls.poll()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for number, result, error in completed:
            future = self.futures.pop(number, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        if seconds is not None and self.futures:
            self.timer = asyncio.get_running_loop().call_later(seconds, self.poll)

    async def run(self, start: Callable[..., object]) -> object:
        number, result = cast("tuple[int, object]", start(pending_calls=self.calls))
        if number == 0:
            return result
        future = asyncio.get_running_loop().create_future()
        self.futures[number] = future
        self.poll()
        try:
            return await future
        finally:
            # The call is still pending, so it was cancelled: drop it.
            if self.futures.pop(number, None) is not None:
                self.calls.drop_call(number)


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCalls] = WeakKeyDictionary()


def run(start: Callable[..., T]) -> Awaitable[T]:
    """Starts a call on the running loop; awaiting the result gives the call's result.

    `start` takes `pending_calls`. It then returns (0, result) if the call is done, or (call number,
    None) if it is pending, whatever its declared type.
    """
    loop = asyncio.get_running_loop()
    calls = _LOOPS.get(loop)
    if calls is None:
        calls = _LOOPS[loop] = _LoopCalls(loop)
    return cast("Awaitable[T]", calls.run(start))
