"""System calls that Python does not offer, and the outcomes of edge cases.

An outcome is a JSON value: a result, the name of an error number, or a list of outcomes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW = -100, 0x400, 0x1000, 0x100
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE, NO_HIDE_STALE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE, UNSHARE_RANGE = 1, 2, 4, 8, 16, 32, 64
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
OFFSET_MAX = (1 << 63) - 1

# Every case by its name, in the order of the files.
EDGES: dict[str, Callable[[Path], object]] = {}


def edge(case: Callable[[Path], object]) -> Callable[[Path], object]:
    """Registers a case under `topic.name`.

    The case is a function that takes an empty directory, which is also the current one.
    """
    EDGES[f"{case.__module__}.{case.__name__}"] = case
    return case


def outcome(call: Callable[..., object], *args: object, **named: object) -> object:
    """The result of a call, or the name of its error number."""
    try:
        value = call(*args, **named)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return value if isinstance(value, (int, str, list, dict, type(None))) else repr(value)


def checked(result: int) -> int:
    """Returns the result of a C function, or raises its error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def rename2(old: str, new: str, flags: int) -> int:
    """renameat2(2)."""
    return checked(LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def link_at(folder: int, old: bytes, new: str, flags: int) -> int:
    """Makes a new name in the current directory, by linkat(2)."""
    return checked(LIBC.linkat(folder, old, AT_FDCWD, os.fsencode(new), flags))


def allocate(file: int, mode: int, offset: int, length: int) -> int:
    """fallocate(2)."""
    return checked(LIBC.fallocate(file, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def set_times(path: str, access: tuple[int, int], change: tuple[int, int], flags: int = 0) -> int:
    """Calls utimensat(2) with (seconds, nanoseconds).

    The nanoseconds may be UTIME_NOW or UTIME_OMIT.
    """
    times = (ctypes.c_int64 * 4)(*access, *change)
    return checked(LIBC.utimensat(AT_FDCWD, os.fsencode(path), times, flags))


def statx(path: str, mask: int = 0xFFF) -> dict[str, int]:
    """Birth time and other fields of the extended stat call."""
    buffer = (ctypes.c_uint8 * 256)()
    checked(LIBC.statx(AT_FDCWD, os.fsencode(path), 0, mask, buffer))
    raw = bytes(buffer)
    number = lambda at, size: int.from_bytes(raw[at : at + size], "little")
    return {"mask": number(0, 4), "links": number(16, 4), "mode": number(28, 2), "size": number(40, 8), "birth": number(80, 8) * 10**9 + number(88, 4)}


@contextmanager
def opened(path: str | Path, flags: int = os.O_RDWR | os.O_CREAT, mode: int = 0o644) -> Iterator[int]:
    """A file that is closed at the end of the context."""
    file = os.open(path, flags, mode)
    try:
        yield file
    finally:
        os.close(file)


def in_child(work: Callable[[], object], user: int | None = None, groups: tuple[int, ...] = (), mask: int = 0o022) -> object:
    """The outcome of `work` in a child process, as another user if `user` is given."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.umask(mask)
            if user is not None:
                os.setgroups(groups)
                os.setgid(groups[0] if groups else user)
                os.setuid(user)
            said = outcome(work)
        except BaseException:  # noqa: BLE001 - reported to the parent
            said = traceback.format_exc()
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    return said


def look(path: str) -> object:
    """File type, permissions, links, owner and size of a path, without following a link."""
    status = os.lstat(path)
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return [stat.filemode(status.st_mode), status.st_nlink, status.st_uid, status.st_gid, size]


def snapshot(folder: Path) -> list[object]:
    """Everything below a directory: attributes, and the contents of files and links."""
    seen: list[object] = []
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(parent, name)
            entry: list[object] = [os.path.relpath(path, folder).encode(errors="surrogateescape").hex()[:40], look(path)]
            if os.path.islink(path):
                entry.append(os.readlink(path)[:20])
            elif os.path.isfile(path):
                entry.append(Path(path).read_bytes()[:64].hex())
            seen.append(entry)
    return seen
