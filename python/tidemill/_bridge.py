"""Calls that run on an asyncio loop without a thread: the loop watches two descriptors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary

from tidemill import _native

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


class _Loop:
    """The pending calls of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bridge = _native.Bridge()
        self.waiting: dict[int, asyncio.Future[object]] = {}
        self.later: asyncio.TimerHandle | None = None
        for descriptor in self.bridge.filenos():
            loop.add_reader(descriptor, self.turn)

    def turn(self) -> None:
        """Drives the pending calls and completes the futures of those that are done."""
        ended, seconds = self.bridge.turn()
        if self.later is not None:
            self.later.cancel()
            self.later = None
        for number, brought, error in ended:
            future = self.waiting.pop(number, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(brought)
            else:
                future.set_exception(error)
        if seconds is not None and self.waiting:
            self.later = asyncio.get_running_loop().call_later(seconds, self.turn)

    async def run(self, begin: Callable[..., object]) -> object:
        number, brought = cast("tuple[int, object]", begin(via=self.bridge))
        if number == 0:
            return brought
        future = asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        self.turn()
        try:
            return await future
        finally:
            # The call is still pending, so it was cancelled: drop it.
            if self.waiting.pop(number, None) is not None:
                self.bridge.drop_call(number)


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()


def run(begin: Callable[..., T]) -> Awaitable[T]:
    """Starts a call on the running loop; awaiting the result gives the call's result.

    `begin` takes a bridge as `via`. It then returns (0, result) if the call is done, or (call
    number, None) if it is pending, whatever its declared type.
    """
    loop = asyncio.get_running_loop()
    known = _LOOPS.get(loop)
    if known is None:
        known = _LOOPS[loop] = _Loop(loop)
    return cast("Awaitable[T]", known.run(begin))
