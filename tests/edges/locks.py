"""Locks between processes and descriptors: fcntl, open file descriptions, flock, leases."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

from calls import OFFSET_MAX, edge, in_child, opened, outcome

# From fcntl.h: not every version of Python defines them.
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
LAYOUT = "hhqqi4x"


def record(kind: int, start: int, length: int, whence: int = 0) -> bytes:
    """A struct flock."""
    return struct.pack(LAYOUT, kind, whence, start, length, 0)


def take(file: int, kind: int, start: int = 0, length: int = 0, how: int = fcntl.F_SETLK, whence: int = 0) -> object:
    """Acquires or releases a lock of a range without waiting."""
    said = outcome(fcntl.fcntl, file, how, record(kind, start, length, whence))
    return said if said in ("EAGAIN", "EACCES", "EBADF", "EINVAL", "EOVERFLOW", "EDEADLK", "EINTR") else "ok"


def in_the_way(file: int, kind: int, start: int = 0, length: int = 0, how: int = fcntl.F_GETLK) -> object:
    """The conflicting lock: [type, start, length, owner], or "free"."""
    said = fcntl.fcntl(file, how, record(kind, start, length))
    found, _, at, size, owner = struct.unpack(LAYOUT, said)
    return "free" if found == fcntl.F_UNLCK else [found, at, size, "ours" if owner == os.getppid() or owner == os.getpid() else owner]


def others(file_name: str, ranges: list[tuple[int, int, int]]) -> object:
    """The conflicting locks that another process sees."""

    def look() -> object:
        with opened(file_name) as file:
            return [in_the_way(file, *one) for one in ranges]

    return in_child(look)


READ, WRITE, NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


@edge
def a_range_locked_for_writing(_: Path) -> object:
    with opened("f") as file:
        said = take(file, WRITE, 10, 20)
        return [said, others("f", [(READ, 0, 10), (READ, 0, 11), (WRITE, 29, 1), (WRITE, 30, 5), (READ, 15, 2)]), in_the_way(file, WRITE, 0, 100)]


@edge
def a_range_locked_for_reading(_: Path) -> object:
    with opened("f") as file:
        return [take(file, READ, 0, 0), others("f", [(READ, 5, 1), (WRITE, 5, 1), (WRITE, OFFSET_MAX - 1, 1)])]


@edge
def ranges_are_split_joined_and_changed(_: Path) -> object:
    with opened("f") as file:
        seen = []
        for kind, start, length in ((WRITE, 0, 100), (NONE, 40, 20), (READ, 10, 10), (WRITE, 30, 50), (NONE, 0, 5), (NONE, 0, 0)):
            take(file, kind, start, length)
            seen.append(others("f", [(WRITE, at, 10) for at in range(0, 110, 10)]))
        return seen


@edge
def ranges_from_the_end_and_with_negative_lengths(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 100)
        seen = [
            take(file, WRITE, -10, 5, whence=2),
            take(file, WRITE, 50, -20),
            take(file, WRITE, -200, 5, whence=2),
            take(file, WRITE, 0, -5),
            take(file, WRITE, OFFSET_MAX, 1),
            take(file, WRITE, OFFSET_MAX, 2),
            take(file, WRITE, 5, 0, whence=7),
        ]
        return [seen, others("f", [(READ, 0, 0), (READ, 51, 0), (READ, 95, 5), (READ, 29, 1), (READ, 30, 1), (READ, 49, 1), (READ, 50, 1)])]


@edge
def locks_need_the_right_access(_: Path) -> object:
    Path("f").touch()
    with opened("f", os.O_RDONLY) as read, opened("f", os.O_WRONLY) as write, opened("f", os.O_PATH) as path:
        return [take(read, READ), take(read, WRITE), take(write, WRITE), take(write, READ), take(path, READ)]


@edge
def any_close_of_the_process_drops_its_locks(_: Path) -> object:
    with opened("f") as file:
        take(file, WRITE)
        before = others("f", [(READ, 0, 0)])
        with opened("f", os.O_RDONLY):
            pass
        return [before, others("f", [(READ, 0, 0)])]


@edge
def a_child_does_not_inherit_locks(_: Path) -> object:
    with opened("f") as file:
        take(file, WRITE)
        return [in_child(lambda: take(file, WRITE)), in_child(lambda: in_the_way(file, READ))]


@edge
def a_lock_goes_with_its_process(_: Path) -> object:
    with opened("f") as file:
        inside = in_child(lambda: take(file, WRITE))
        return [inside, take(file, WRITE)]


@edge
def a_lock_goes_with_a_killed_process(_: Path) -> object:
    with holder("f", lambda file: take(file, WRITE)), opened("f") as file:
        before = take(file, WRITE)
    with opened("f") as file:
        return [before, take(file, WRITE)]


class holder:  # noqa: N801 - used like a function
    """Another process that holds a lock during a block; it is killed at the end of the block."""

    def __init__(self, name: str, lock: Callable[[int], object], flags: int = os.O_RDWR | os.O_CREAT) -> None:
        read, write = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            file = os.open(name, flags, 0o644)
            os.write(write, str(lock(file)).encode())
            os.close(write)
            while True:
                signal.pause()
        os.close(write)
        with open(read, "rb") as pipe:
            self.said = pipe.read().decode()

    def __enter__(self) -> str:
        return self.said

    def __exit__(self, *_: object) -> None:
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


@edge
def a_waiting_lock_comes_when_the_holder_goes(_: Path) -> object:
    read, write = os.pipe()
    with opened("f") as file:
        take(file, WRITE)
        child = os.fork()
        if child == 0:
            with opened("f") as own:
                os.write(write, b"waits ")
                fcntl.fcntl(own, fcntl.F_SETLKW, record(WRITE, 0, 0))
                os.write(write, b"has it")
            os._exit(0)
        first = os.read(read, 99).decode()
        take(file, NONE)
    os.waitpid(child, 0)
    rest = os.read(read, 99).decode()
    os.close(read)
    os.close(write)
    return first + rest


@edge
def a_wait_for_a_lock_is_interrupted(_: Path) -> object:
    def waits() -> object:
        class Rang(Exception):  # noqa: N818 - not an error
            pass

        def ring(_number: int, _frame: object) -> None:
            raise Rang

        with opened("f") as file:
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                fcntl.fcntl(file, fcntl.F_SETLKW, record(WRITE, 0, 0))
            except Rang:
                return "interrupted"
            return "has it"

    with holder("f", lambda file: take(file, WRITE)):
        seen = [in_child(waits)]
    return [*seen, in_child(waits)]


@edge
def who_waits_for_a_lock_can_be_killed(_: Path) -> object:
    with holder("f", lambda file: take(file, WRITE)):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with opened("f") as file:
                os.write(write, b"x")
                fcntl.fcntl(file, fcntl.F_SETLKW, record(WRITE, 0, 0))
            os._exit(0)
        os.read(read, 1)
        os.close(read)
        os.close(write)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    with opened("f") as file:
        return [os.WTERMSIG(status), take(file, WRITE)]


@edge
def of_two_who_would_wait_for_each_other_one_is_refused(_: Path) -> object:
    def waits(file: int, start: int) -> str:
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 2)
        said = str(take(file, WRITE, start, 1, fcntl.F_SETLKW))
        signal.setitimer(signal.ITIMER_REAL, 0)
        take(file, NONE)
        return said

    def interrupt(_number: int, _frame: object) -> None:
        raise InterruptedError(errno.EINTR, "waited in vain")

    ready, told = os.pipe()
    with opened("f") as file:
        take(file, WRITE, 0, 1)
        child = os.fork()
        if child == 0:
            with opened("f") as own:
                take(own, WRITE, 1, 1)
                os.write(told, b"1")
                os.write(told, waits(own, 0).encode())
            os._exit(0)
        os.read(ready, 1)
        said = waits(file, 1)
        os.waitpid(child, 0)
        theirs = os.read(ready, 99).decode()
    os.close(ready)
    os.close(told)
    return sorted([said, theirs])


@edge
def locks_of_open_file_descriptions(_: Path) -> object:
    with opened("f") as one, opened("f") as two:
        seen = [
            take(one, WRITE, 0, 10, OFD_SETLK),
            take(two, WRITE, 0, 10, OFD_SETLK),
            take(two, WRITE, 10, 10, OFD_SETLK),
            in_the_way(two, READ, 0, 10, OFD_GETLK),
        ]
        copy = os.dup(one)
        seen.append(take(copy, READ, 5, 5, OFD_SETLK))
        os.close(copy)
        seen += [take(two, READ, 5, 5, OFD_SETLK), take(two, READ, 0, 5, OFD_SETLK), in_child(lambda: take(one, WRITE, 0, 1, OFD_SETLK))]
    with opened("f") as three:
        return [*seen, take(three, WRITE, 0, 0, OFD_SETLK)]


@edge
def both_kinds_of_range_locks_meet(_: Path) -> object:
    with opened("f") as one, opened("f") as two:
        return [take(one, WRITE, 0, 10), take(two, WRITE, 0, 10, OFD_SETLK), take(two, WRITE, 20, 10, OFD_SETLK), take(one, WRITE, 20, 10)]


def whole(file: int, how: int) -> object:
    """Acquires or releases a lock of the whole file without waiting."""
    return outcome(fcntl.flock, file, how | fcntl.LOCK_NB)


@edge
def whole_file_locks(_: Path) -> object:
    with opened("f") as one, opened("f") as two, opened("f", os.O_RDONLY) as three:
        return [
            whole(one, fcntl.LOCK_SH),
            whole(two, fcntl.LOCK_SH),
            whole(two, fcntl.LOCK_EX),
            whole(one, fcntl.LOCK_UN),
            whole(three, fcntl.LOCK_EX),
            whole(two, fcntl.LOCK_UN),
            whole(three, fcntl.LOCK_EX),
            whole(one, fcntl.LOCK_SH),
            whole(three, fcntl.LOCK_SH),
            whole(one, fcntl.LOCK_SH),
        ]


@edge
def a_whole_file_lock_is_shared_by_copies_and_children(_: Path) -> object:
    with opened("f") as one, opened("f") as two:
        seen = [whole(one, fcntl.LOCK_EX)]
        copy = os.dup(one)
        seen += [in_child(lambda: whole(one, fcntl.LOCK_EX)), whole(copy, fcntl.LOCK_EX)]
        os.close(copy)
        seen += [whole(two, fcntl.LOCK_SH), in_child(lambda: whole(one, fcntl.LOCK_UN)), whole(two, fcntl.LOCK_EX)]
        return seen


@edge
def a_whole_file_lock_goes_with_the_last_close(_: Path) -> object:
    with opened("f") as two:
        with opened("f") as one:
            seen = [whole(one, fcntl.LOCK_EX), whole(two, fcntl.LOCK_EX)]
        return [*seen, whole(two, fcntl.LOCK_EX)]


@edge
def whole_file_locks_between_processes(_: Path) -> object:
    with holder("f", lambda file: whole(file, fcntl.LOCK_EX)) as said, opened("f") as file:
        seen = [said, whole(file, fcntl.LOCK_SH), whole(file, fcntl.LOCK_UN)]
    with opened("f") as file:
        return [*seen, whole(file, fcntl.LOCK_EX)]


@edge
def whole_file_locks_and_ranges_do_not_meet(_: Path) -> object:
    with opened("f") as one, opened("f") as two:
        return [whole(one, fcntl.LOCK_EX), take(two, WRITE), in_child(lambda: take(two, WRITE)), in_child(lambda: outcome(whole, two, fcntl.LOCK_EX))]


@edge
def a_waiting_whole_file_lock_comes(_: Path) -> object:
    with opened("f") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            with opened("f") as own:
                fcntl.flock(own, fcntl.LOCK_EX)
            os._exit(7)
        fcntl.flock(file, fcntl.LOCK_UN)
        return os.WEXITSTATUS(os.waitpid(child, 0)[1])


@edge
def folders_are_locked_whole(_: Path) -> object:
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as one, opened("d", os.O_RDONLY) as two:
        return [whole(one, fcntl.LOCK_EX), whole(two, fcntl.LOCK_SH), take(one, READ), take(one, WRITE)]


@edge
def leases_and_watches(_: Path) -> object:
    os.mkdir("d")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with opened("f") as both, opened("f", os.O_RDONLY) as read, opened("d", os.O_RDONLY) as folder:
        seen = [outcome(fcntl.fcntl, file, fcntl.F_GETLEASE) for file in (both, read)]
        # No lease exists to release; a descriptor open for writing cannot take a read lease; a
        # directory cannot have one.
        seen += [outcome(fcntl.fcntl, read, fcntl.F_SETLEASE, fcntl.F_UNLCK), outcome(fcntl.fcntl, read, fcntl.F_SETLEASE, 77)]
        seen += [outcome(fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_RDLCK) for file in (both, folder)]
        return [*seen, outcome(fcntl.fcntl, read, fcntl.F_NOTIFY, fcntl.DN_CREATE)]


@edge
def a_lease_is_taken_and_a_folder_is_watched(_: Path) -> object:
    os.mkdir("d")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    Path("f").touch()
    with opened("f", os.O_RDONLY) as read, opened("d", os.O_RDONLY) as folder:
        lease = [outcome(fcntl.fcntl, read, fcntl.F_SETLEASE, fcntl.F_RDLCK), outcome(fcntl.fcntl, read, fcntl.F_GETLEASE)]
        return [lease, outcome(fcntl.fcntl, folder, fcntl.F_NOTIFY, fcntl.DN_CREATE)]


@edge
def seals_are_not_for_files_with_a_name(_: Path) -> object:
    with opened("f") as file:
        return [outcome(fcntl.fcntl, file, fcntl.F_GET_SEALS), outcome(fcntl.fcntl, file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE), os.write(file, b"x")]


@edge
def locks_of_an_unlinked_file(_: Path) -> object:
    with opened("f") as one, opened("f") as two:
        os.unlink("f")
        return [whole(one, fcntl.LOCK_EX), whole(two, fcntl.LOCK_EX), take(one, WRITE), in_child(lambda: take(two, WRITE))]


@edge
def lockf_is_a_range_lock(_: Path) -> object:
    with opened("f") as file:
        os.lockf(file, os.F_TLOCK, 10)
        return [
            others("f", [(READ, 0, 10), (READ, 10, 1)]),
            outcome(os.lockf, file, os.F_TEST, 10),
            in_child(lambda: outcome(os.lockf, file, os.F_TEST, 10)),
            outcome(os.lockf, file, os.F_ULOCK, 0),
        ]


@edge
def hundreds_of_ranges(_: Path) -> object:
    with opened("f") as file:
        said = {str(take(file, WRITE, 10 * number, 5)) for number in range(500)}
        seen = others("f", [(WRITE, 10 * number + 5, 5) for number in range(0, 500, 50)] + [(WRITE, 10 * number + 4, 1) for number in range(0, 500, 50)])
        take(file, NONE)
        return [sorted(said), seen, others("f", [(WRITE, 0, 0)])]
