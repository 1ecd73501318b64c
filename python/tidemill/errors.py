"""Exceptions of the package: subclasses of :class:`TidemillError`, which is an ``OSError``.

================  ====================  ===========================================================
class             also a                raised when
================  ====================  ===========================================================
`NotFound`        `FileNotFoundError`   the object, file or pool file does not exist
`Exists`          `FileExistsError`     the path already exists, and the call does not allow that
`IsAFolder`       `IsADirectoryError`   the path is a directory and bytes are needed
`NotAFolder`      `NotADirectoryError`  a part of the path is not a directory
`Denied`          `PermissionError`     permission is denied, or the pool file cannot be read
`NoSpace`                               the pool is full, and stayed full for `space_wait` seconds
`VersionDiffers`                        the object is not in the required version; no change is made
`Invalid`         `ValueError`          an argument is invalid; the message states the rule
`Unavailable`     `ConnectionError`     a node, or the whole pool, does not answer
`PoolClosed`      `ValueError`          the pool was closed, or was started in the process that
                                        this process was forked from
================  ====================  ===========================================================

Other failures raise a plain `TidemillError` with a suitable errno. All exceptions have ``errno``,
``strerror``, ``path`` and ``hint``.
"""

from __future__ import annotations

from typing import cast

__all__ = [
    "Denied",
    "Exists",
    "Invalid",
    "IsAFolder",
    "NoSpace",
    "NotAFolder",
    "NotFound",
    "PoolClosed",
    "TidemillError",
    "Unavailable",
    "VersionDiffers",
]


class TidemillError(OSError):
    """An operation of a pool failed.

    `errno` is the error number that a file system would return. `strerror` says what failed. `path`
    is the path or key, or None if the error concerns the whole pool. `hint` says what to do, or is
    None if the message says it.
    """

    hint: str | None

    def __init__(self, errno: int, strerror: str, path: str | None = None, hint: str | None = None) -> None:
        if path is None:
            super().__init__(errno, strerror)
        else:
            super().__init__(errno, strerror, path)
        self.hint = hint

    @property
    def path(self) -> str | None:
        """The path or key; None if the error concerns the whole pool."""
        return cast("str | None", self.filename)

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.strerror}{hint}"


class NotFound(TidemillError, FileNotFoundError):
    """The object, file or pool file does not exist."""


class Exists(TidemillError, FileExistsError):
    """The path already exists, and the call does not allow that."""


class IsAFolder(TidemillError, IsADirectoryError):
    """The path is a directory and bytes are needed."""


class NotAFolder(TidemillError, NotADirectoryError):
    """A part of the path is not a directory."""


class Denied(TidemillError, PermissionError):
    """Permission is denied: a bound input is read-only, or the pool file cannot be read."""


class NoSpace(TidemillError):
    """The pool is full, and stayed full for the time that the request waits for space.

    Delete something, or give the pool more memory.
    """


class VersionDiffers(TidemillError):
    """The object is not in the required version; no change was made.

    `version` is the object's version; None if the object does not exist.
    """

    version: str | None = None


class Invalid(TidemillError, ValueError):
    """An argument is invalid; the message states the rule."""


class Unavailable(TidemillError, ConnectionError):
    """A node, or the whole pool, does not answer. Data on the other nodes is still available."""


class PoolClosed(TidemillError, ValueError):
    """The pool was closed, or was started in the process that this process was forked from."""


def _make(kind: str, errno: int, message: str, path: str | None, hint: str | None, version: str | None) -> TidemillError:
    """Makes an exception for the native module."""
    error = _KINDS[kind](errno, message, path, hint)
    if isinstance(error, VersionDiffers):
        error.version = version
    return error


_KINDS: dict[str, type[TidemillError]] = {
    kind.__name__: kind for kind in (Denied, Exists, Invalid, IsAFolder, NoSpace, NotAFolder, NotFound, PoolClosed, TidemillError, Unavailable, VersionDiffers)
}
