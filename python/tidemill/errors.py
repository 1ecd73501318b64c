"""What is raised, as a tree below :class:`TidemillError`, which is an ``OSError``.

=================  =====================  ==================================================================================================
class              also a                 when
=================  =====================  ==================================================================================================
`NotFound`         `FileNotFoundError`    there is no such object, file or pool file
`Exists`           `FileExistsError`      there is one, and should not be
`IsAFolder`        `IsADirectoryError`    a folder where bytes are needed
`NotAFolder`       `NotADirectoryError`   a part of the path is no folder
`Denied`           `PermissionError`      it may not be done, or the pool file not be read
`NoSpace`                                 the pool is full, and stayed so for `space_wait` seconds
`VersionDiffers`                          the object is not in the version that was asked for; nothing was changed
`Invalid`          `ValueError`           an argument makes no sense; the message says the rule
`Unavailable`      `ConnectionError`      a node, or the whole pool, does not answer
`PoolClosed`       `ValueError`           the pool was closed before, or was started inside the process that this one was forked from
=================  =====================  ==================================================================================================

Whatever else a pool refuses is a plain `TidemillError` with the errno that fits. All have ``errno``, ``strerror``, ``path`` and ``hint``.
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
    """Something that a pool did not do.

    `errno` is the number that a file system would give, `strerror` says what failed, `path` of what (None: of the pool), `hint` what to do
    about it (None where the message says it).
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
        """The path or key that it is about; None where it is about the pool."""
        return cast("str | None", self.filename)

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.strerror}{hint}"


class NotFound(TidemillError, FileNotFoundError):
    """There is no such object, file or pool file."""


class Exists(TidemillError, FileExistsError):
    """There is one, and should not be."""


class IsAFolder(TidemillError, IsADirectoryError):
    """A folder where bytes are needed."""


class NotAFolder(TidemillError, NotADirectoryError):
    """A part of the path is no folder."""


class Denied(TidemillError, PermissionError):
    """It may not be done: a bound input is read-only, or the pool file may not be read."""


class NoSpace(TidemillError):
    """The pool is full, and stayed so for as long as it waits for space. Delete something, or give it more memory."""


class VersionDiffers(TidemillError):
    """The object is not in the version that was asked for; nothing was changed.

    `version` is the one that it is in; None where it is not there.
    """

    version: str | None = None


class Invalid(TidemillError, ValueError):
    """An argument makes no sense; the message says the rule."""


class Unavailable(TidemillError, ConnectionError):
    """A node, or the whole pool, does not answer. What the others hold is there."""


class PoolClosed(TidemillError, ValueError):
    """The pool was closed before, or was started inside the process that this one was forked from."""


def _make(kind: str, errno: int, message: str, path: str | None, hint: str | None, version: str | None) -> TidemillError:
    """An exception, for the native part."""
    error = _KINDS[kind](errno, message, path, hint)
    if isinstance(error, VersionDiffers):
        error.version = version
    return error


_KINDS: dict[str, type[TidemillError]] = {
    kind.__name__: kind for kind in (Denied, Exists, Invalid, IsAFolder, NoSpace, NotAFolder, NotFound, PoolClosed, TidemillError, Unavailable, VersionDiffers)
}
