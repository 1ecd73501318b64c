"""Open files of a pool, as files of Python's ``io``."""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, cast

from tidemill.errors import Invalid, NoSpace

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tidemill._native import File, View

# Buffer size in bytes for read-ahead and for gathering writes. One MiB takes only a few messages,
# and little is read in vain.
BUFFER_BYTES = 1 << 20

# Maps the letters of `Pool.open` to flags of the native module: r and w for the direction, t
# truncate, c create, x fail if the file exists, a append.
_FLAGS = {"r": "r", "w": "wtc", "x": "wx", "a": "wac"}


def flags_of(mode: str) -> tuple[str, bool]:
    """Converts a mode of ``open`` to the flags of the native module; also returns True for text."""
    kind = mode.replace("+", "").replace("b", "").replace("t", "")
    if kind not in _FLAGS or sorted(mode) != sorted(set(mode)) or ("b" in mode and "t" in mode):
        raise ValueError(f"invalid mode: {mode!r}; one of r, w, x and a, with b or t, with or without +")
    both = "rw" if "+" in mode else ""
    return _FLAGS[kind] + both, "b" not in mode


class RawFile(io.RawIOBase):
    """An unbuffered file that waits for space at most once while it is being closed.

    Python retries failed writes when a file is closed: a buffer writes its remaining bytes, and a
    text file everything that its buffer holds. Without this class each retry would wait for space.
    A write before the close, for example after something was deleted, waits again.
    """

    _closing = False
    _full: NoSpace | None = None

    def begin_close(self) -> None:
        """Marks the writes that follow as those of the close."""
        self._closing = True

    def _write_once(self, write: Callable[[], int], data: Buffer) -> int:
        if self._full is not None:
            raise NoSpace(self._full.errno or errno.ENOSPC, self._full.strerror or "", self._full.path)
        try:
            count = write()
        except NoSpace as full:
            self._full = full if self._closing else None
            raise
        if self._closing and count < memoryview(data).nbytes:
            why = "the pool is full, and stayed so while the file was closed; give the pool more memory, or delete files that are no longer needed"
            self._full = NoSpace(errno.ENOSPC, why)
        return count


class Writer(io.BufferedWriter):
    """A buffered file open for writing."""

    raw: RawFile

    def close(self) -> None:
        """Writes the buffered bytes and closes the file."""
        self.raw.begin_close()
        super().close()


class ReadWriter(io.BufferedRandom):
    """A buffered file open for reading and writing."""

    raw: RawFile

    def close(self) -> None:
        """Writes the buffered bytes and closes the file."""
        self.raw.begin_close()
        super().close()


class TextFile(io.TextIOWrapper):
    """A text file."""

    def close(self) -> None:
        """Writes the buffered text and closes the file."""
        raw = getattr(self.buffer, "raw", None)
        if isinstance(raw, RawFile):
            raw.begin_close()
        super().close()


class PoolFile(RawFile):
    """An open file without a buffer, as ``Pool.open(path, "rb", buffering=0)`` returns it.

    Each read and write is one request to the pool. `pread` and `read_buffer` return views of the
    pool's memory instead of copies.
    """

    def __init__(self, file: File, path: str, mode: str) -> None:
        self._file = file
        self._append = "a" in mode
        self._at = file.size() if self._append else 0
        self._reads = "r" in mode or "+" in mode
        self._writes = "r" not in mode or "+" in mode
        self.name = path
        self.mode = mode

    def readable(self) -> bool:
        """True if the file was opened for reading."""
        return self._reads

    def writable(self) -> bool:
        """True if the file was opened for writing."""
        return self._writes

    def seekable(self) -> bool:
        """Always True."""
        return True

    def size(self) -> int:
        """The current length of the file in bytes."""
        self._check()
        return self._file.size()

    def pread(self, length: int, offset: int) -> View:
        """Reads bytes at an offset as a view; fewer only at the end of the file.

        They are copied only if they lie in several stripes (``view.copied``).
        """
        self._check()
        return self._file.read(offset, length)

    def read_buffer(self, length: int = -1) -> View:
        """Reads the next bytes as a view; without `length` up to the end.

        pyarrow calls this method by name.
        """
        self._check()
        if length < 0:
            length = max(0, self.size() - self._at)
        view = self._file.read(self._at, length)
        self._at += len(view)
        return view

    def readinto(self, buffer: Buffer, /) -> int:
        """Reads into a writable buffer; returns the number of bytes, 0 only at the end."""
        self._check()
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")
        count = self._file.read_into(self._at, buffer)
        self._at += count
        return count

    def readall(self) -> bytes:
        """Reads all bytes up to the end."""
        if not self._reads:
            raise io.UnsupportedOperation("not open for reading")
        return bytes(self.read_buffer())

    def write(self, data: Buffer, /) -> int:
        """Writes at the position; returns the number of bytes written.

        A file opened for appending is written at its end. The number is less than the length of
        `data` only if the pool is full.
        """
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")
        count = self._write_once(lambda: self._file.write(self._at, data), data)
        self._at = self.size() if self._append else self._at + count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves the position and returns the new one."""
        self._check()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        if base is None:
            if whence != io.SEEK_END:
                raise ValueError(f"invalid whence: {whence}")
            base = self.size()
        if base + offset < 0:
            raise Invalid(errno.EINVAL, "a position before the start", self.name)
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The position in bytes from the start."""
        self._check()
        return self._at

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the length to `size`, or to the position; a longer file is extended with zeros."""
        self._check()
        if not self._writes:
            raise io.UnsupportedOperation("not open for writing")
        return self._file.truncate(self._at if size is None else size)

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._file.close()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<tidemill.PoolFile {self.name!r} mode={self.mode!r}{state}>"

    def _repr_html_(self) -> str:
        from tidemill import _html  # noqa: PLC0415 - only notebooks need it

        return _html.file_html(self)


def wrap(raw: PoolFile, buffering: int, text: tuple[str | None, str | None, str | None] | None) -> io.IOBase:
    """Adds the layers that ``open`` adds to a file.

    They are a buffer and, for a text file, (encoding, errors, newline).
    """
    if buffering == 0:
        if text is not None:
            raise ValueError("a file of text has a buffer")
        return raw
    size = BUFFER_BYTES if buffering in {-1, 1} else buffering
    buffered: io.BufferedReader | io.BufferedWriter | io.BufferedRandom
    if raw.readable() and raw.writable():
        buffered = ReadWriter(raw, size)
    elif raw.writable():
        buffered = Writer(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if text is None:
        return buffered
    encoding, errors, newline = text
    return TextFile(cast("io.BufferedReader", buffered), encoding or "utf-8", errors, newline, line_buffering=buffering == 1)
