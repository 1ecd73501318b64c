"""Invalid pointers: the call fails and the program continues.

The bytes are those of a striped file, if the file system has stripes.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

from calls import AT_FDCWD, LIBC, checked, edge, opened, outcome

PAGE = mmap.PAGESIZE
PRIVATE, READABLE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
LIBC.mmap.restype = ctypes.c_void_p


def mapped(pages: int, may: int) -> int:
    """The address of new memory."""
    return int(LIBC.mmap(None, ctypes.c_size_t(pages * PAGE), may, PRIVATE, -1, ctypes.c_int64(0)))


def nowhere() -> list[int]:
    """Addresses that cannot be read."""
    gone = mapped(1, READ_WRITE)
    LIBC.munmap(ctypes.c_void_p(gone), ctypes.c_size_t(PAGE))
    return [0, 1, -1, gone, mapped(1, 0), 0x0DEAD_0000_0000_0000]


def unwritten() -> list[int]:
    """Addresses that cannot be written."""
    return [*nowhere(), mapped(1, READABLE)]


def before_the_end(room: int) -> int:
    """An address with `room` bytes before memory that cannot be accessed."""
    start = mapped(2, READ_WRITE)
    LIBC.mprotect(ctypes.c_void_p(start + PAGE), ctypes.c_size_t(PAGE), 0)
    return start + PAGE - room


def tried(function: str, *words: object) -> object:
    """The outcome of a function of the C library; pass addresses as pointers."""
    return outcome(lambda: checked(int(ctypes.c_long(getattr(LIBC, function)(*words)).value)))


def at(addresses: list[int], call: Callable[[ctypes.c_void_p], object]) -> list[object]:
    """The outcomes of a call with each address."""
    return [call(ctypes.c_void_p(address)) for address in addresses]


def is_user(bad: ctypes.c_void_p) -> bool:
    """True if an address is in user space; the kernel rejects others before it does anything."""
    return (bad.value or 0) < 1 << 47


def striped() -> None:
    """Makes new files in the current directory striped, if the file system supports it."""
    outcome(os.setxattr, ".", "user.tidemill.placement", b"striped")


@edge
def a_bad_path_is_an_error_of_the_call(_: Path) -> object:
    Path("f").touch()
    status = ctypes.create_string_buffer(512)
    calls = {
        "open": lambda bad: tried("open", bad, os.O_RDONLY),
        "creat": lambda bad: tried("creat", bad, 0o600),
        "openat": lambda bad: tried("openat", AT_FDCWD, bad, os.O_CREAT | os.O_WRONLY, 0o600),
        "stat": lambda bad: tried("stat", bad, status),
        "lstat": lambda bad: tried("lstat", bad, status),
        "statx": lambda bad: tried("statx", AT_FDCWD, bad, 0, 0xFFF, status),
        "access": lambda bad: tried("access", bad, os.R_OK),
        "mkdir": lambda bad: tried("mkdir", bad, 0o700),
        "mknod": lambda bad: tried("mknod", bad, 0o600, ctypes.c_uint64(0)),
        "rmdir": lambda bad: tried("rmdir", bad),
        "unlink": lambda bad: tried("unlink", bad),
        "chdir": lambda bad: tried("chdir", bad),
        "chmod": lambda bad: tried("chmod", bad, 0o600),
        "chown": lambda bad: tried("chown", bad, 0, 0),
        "truncate": lambda bad: tried("truncate", bad, ctypes.c_int64(0)),
        "statfs": lambda bad: tried("statfs", bad, status),
        "readlink": lambda bad: tried("readlink", bad, status, ctypes.c_size_t(9)),
        "symlink": lambda bad: [tried("symlink", bad, b"l"), tried("symlink", b"f", bad)],
        "rename": lambda bad: [tried("rename", b"f", bad), tried("rename", bad, b"f")],
        "link": lambda bad: [tried("link", b"f", bad), tried("link", bad, b"g")],
        "getxattr": lambda bad: [tried("getxattr", b"f", bad, status, ctypes.c_size_t(9)), tried("getxattr", bad, b"user.a", status, ctypes.c_size_t(9))],
        "removexattr": lambda bad: tried("removexattr", b"f", bad),
    }
    return [[name, at(nowhere(), call)] for name, call in calls.items()] + [sorted(os.listdir())]


@edge
def a_path_ends_with_its_page(_: Path) -> object:
    Path("f").touch()
    whole, cut = before_the_end(2), before_the_end(3)
    ctypes.memmove(whole, b"f\0", 2)
    ctypes.memmove(cut, b"fff", 3)
    return [tried("access", ctypes.c_void_p(address), os.F_OK) for address in (whole, cut)]


@edge
def an_answer_has_no_place(_: Path) -> object:
    Path("f").write_bytes(b"x")
    os.symlink("f", "l")
    outcome(os.setxattr, "f", "user.a", b"value")
    long = ctypes.c_size_t(99)
    with opened("f") as file:
        calls = {
            "stat": lambda bad: tried("stat", b"f", bad),
            "fstat": lambda bad: tried("fstat", file, bad),
            "statx": lambda bad: tried("statx", AT_FDCWD, b"f", 0, 0xFFF, bad),
            "statfs": lambda bad: tried("statfs", b"f", bad),
            "readlink": lambda bad: tried("readlink", b"l", bad, long),
            "readlink of no bytes": lambda bad: [
                tried("readlink", b"l", bad, ctypes.c_size_t(0)),
                tried("readlinkat", AT_FDCWD, b"l", bad, ctypes.c_size_t(0)),
            ],
            "getcwd": lambda bad: bad.value and LIBC.getcwd(bad, ctypes.c_size_t(4096)),
            "utimensat": lambda bad: bad.value and tried("utimensat", AT_FDCWD, b"f", bad, 0),
            "getxattr": lambda bad: tried("getxattr", b"f", b"user.a", bad, long),
            "setxattr": lambda bad: tried("setxattr", b"f", b"user.b", bad, long, 0),
            "setxattr of no bytes": lambda bad: tried("setxattr", b"f", b"user.b", bad, ctypes.c_size_t(0), 0),
            "fcntl": lambda bad: tried("fcntl", file, fcntl.F_GETLK, bad),
        }
        # Readable addresses would give a value, so only unreadable ones are tried.
        return [[name, at(nowhere(), call)] for name, call in calls.items()]


@edge
def bytes_have_no_place(_: Path) -> object:
    striped()
    Path("f").write_bytes(b"bytes" * 4000)
    with opened("f") as file, opened("g") as other, opened("f", os.O_WRONLY) as unread:
        some = ctypes.c_size_t(100)
        vector = lambda bad: (ctypes.c_void_p * 2)(bad, 100)
        calls = {
            "read": lambda bad: [tried("read", file, bad, some), tried("read", unread, bad, some)],
            "pread": lambda bad: [tried("pread", file, bad, some, ctypes.c_int64(place)) for place in (7, -1, 20000 if is_user(bad) else 7)],
            "readv": lambda bad: [tried("readv", file, vector(bad.value), 1), tried("readv", file, bad, 1)],
            "write": lambda bad: tried("write", other, bad, some),
            "pwrite": lambda bad: [tried("pwrite", other, bad, some, ctypes.c_int64(place)) for place in (7, -1)],
            "writev": lambda bad: [tried("writev", other, vector(bad.value), 1), tried("writev", other, bad, 1)],
            "nothing": lambda bad: is_user(bad) and [tried(name, file, bad, ctypes.c_size_t(0)) for name in ("read", "write")],
            "sendfile": lambda bad: bad.value and tried("sendfile", other, file, bad, some),
            "copy": lambda bad: bad.value and tried("copy_file_range", file, bad, other, None, some, 0),
        }
        seen = [[name, at(nowhere(), call)] for name, call in calls.items()]
        into = at(unwritten()[-1:], lambda bad: [tried("read", file, bad, some), tried("write", other, bad, some)])
        return [seen, into, os.lseek(file, 0, os.SEEK_CUR), os.lseek(other, 0, os.SEEK_CUR)]


@edge
def bytes_go_as_far_as_memory_does(_: Path) -> object:
    striped()
    Path("f").write_bytes(b"bytes" * 4000)
    address = ctypes.c_void_p(before_the_end(1000))
    with opened("f") as file, opened("g") as other:
        came = [tried("read", file, address, ctypes.c_size_t(5000)), tried("pread", file, address, ctypes.c_size_t(9), ctypes.c_int64(19998))]
        came.append(tried("write", other, address, ctypes.c_size_t(5000)))
        pieces = (ctypes.c_void_p * 4)(address.value, 5000, address.value, 5)
        came += [tried("writev", other, pieces, 2), tried("readv", file, pieces, 2)]
        return [came, os.lseek(file, 0, os.SEEK_CUR), os.fstat(other).st_size, hashlib.sha256(os.pread(other, 99999, 0)).hexdigest()]
