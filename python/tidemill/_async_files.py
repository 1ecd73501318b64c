"""Open files of a pool for asyncio."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeVar

from tidemill import _asyncio_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

    from tidemill._native import File, View

T = TypeVar("T")


class AsyncPoolFile:
    """An open binary file without a buffer, as ``await Pool.aopen(path, "rb")`` returns it.

    Each read and write is one request to the pool. `read` and `write` start at the position that
    `tell` returns. `pread` and `pwrite` do not move the position, and several of them may run
    concurrently.
    """

    def __init__(self, file: File, path: str, mode: str, at: int) -> None:
        self._file = file
        self._at = at
        self.name = path
        self.mode = mode
        self.closed = False

    @classmethod
    async def opened(cls, file: File, path: str, mode: str) -> Self:
        """Wraps a native file that was just opened."""
        return cls(file, path, mode, await _call(file.size) if "a" in mode else 0)

    async def read(self, length: int = -1) -> View:
        """Reads the next bytes as a view; without `length` up to the end. Empty at the end."""
        if length < 0:
            length = max(0, await self.size() - self._at)
        view = await self.pread(length, self._at)
        self._at += len(view)
        return view

    async def pread(self, length: int, offset: int) -> View:
        """Reads bytes at an offset as a view; fewer only at the end of the file.

        They are copied only if they lie in several stripes (``view.copied``).
        """
        return await _call(self._file.read, offset, length)

    async def write(self, data: Buffer) -> int:
        """Writes at the position; returns the number of bytes written.

        A file opened for appending is written at its end. The number is less than the length of
        `data` only if the pool is full.
        """
        count = await self.pwrite(data, self._at)
        self._at = await self.size() if "a" in self.mode else self._at + count
        return count

    async def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes at an offset; returns the number of bytes written.

        `data` must not change until the call is done.
        """
        return await _call(self._file.write, offset, data)

    async def size(self) -> int:
        """The current length of the file in bytes."""
        return await _call(self._file.size)

    async def truncate(self, size: int | None = None) -> int:
        """Sets the length to `size`, or to the position; a longer file is extended with zeros."""
        return await _call(self._file.truncate, self._at if size is None else size)

    def seek(self, offset: int) -> int:
        """Moves the position to `offset` bytes from the start."""
        if offset < 0:
            raise ValueError("a position before the start")
        self._at = offset
        return offset

    def tell(self) -> int:
        """The position in bytes from the start."""
        return self._at

    async def close(self) -> None:
        """Closes the file; a second call does nothing."""
        self.closed = True
        await _call(self._file.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<tidemill.AsyncPoolFile {self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"


def _call(method: Callable[..., T], *arguments: object) -> Awaitable[T]:
    """Starts a method of the native module on the running loop."""
    return _asyncio_loop.run(functools.partial(method, *arguments))
