"""Open files of a pool for asyncio."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

from tidemill import _bridge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from tidemill._native import File, View

T = TypeVar("T")


class AsyncPoolFile:
    """An open file of bytes without a buffer: what ``await Pool.aopen(path, "rb")`` gives. Each read and write is a call of the pool.

    `tell` says at which byte the next read or write begins; `pread` and `pwrite` leave it, and several of them may be under way at once.
    """

    def __init__(self, file: File, path: str, mode: str, at: int) -> None:
        self._file = file
        self._at = at
        self.name = path
        self.mode = mode
        self.closed = False

    @classmethod
    async def opened(cls, file: File, path: str, mode: str) -> Self:
        """One that was opened just now."""
        return cls(file, path, mode, await _call(file.size) if "a" in mode else 0)

    async def read(self, length: int = -1) -> View:
        """The next bytes as a view, up to the end without a length; none at the end."""
        if length < 0:
            length = max(0, await self.size() - self._at)
        view = await self.pread(length, self._at)
        self._at += len(view)
        return view

    async def pread(self, length: int, offset: int) -> View:
        """Bytes at an offset as a view, fewer only at the end; copied only where they lie in several stripes (``view.copied``)."""
        return await _call(self._file.read, offset, length)

    async def write(self, data: Buffer) -> int:
        """Writes at the position, or at the end if it was opened for appending; how many bytes: fewer only when the pool is full."""
        count = await self.pwrite(data, self._at)
        self._at = await self.size() if "a" in self.mode else self._at + count
        return count

    async def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes at an offset: how many bytes. What is given must stay as it is until this is done."""
        return await _call(self._file.write, offset, data)

    async def size(self) -> int:
        """How long it is now, bytes."""
        return await _call(self._file.size)

    async def truncate(self, size: int | None = None) -> int:
        """Cuts it at `size`, or at the position; longer than it is adds zeros."""
        return await _call(self._file.truncate, self._at if size is None else size)

    def seek(self, offset: int) -> int:
        """Moves the position to so many bytes from the start."""
        if offset < 0:
            raise ValueError("a position before the start")
        self._at = offset
        return offset

    def tell(self) -> int:
        """The position, bytes from the start."""
        return self._at

    async def close(self) -> None:
        """Closes it; a second time does nothing."""
        self.closed = True
        await _call(self._file.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<tidemill.AsyncPoolFile {self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"


def _call(verb: Callable[..., T], *arguments: object) -> Awaitable[T]:
    """Begins a verb of the native part on the running loop."""
    return _bridge.run(functools.partial(verb, *arguments))
