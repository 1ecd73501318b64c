"""Mapped files, shared and private, while others read, write and truncate them."""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path

from calls import KEEP_SIZE, PUNCH_HOLE, allocate, edge, in_child, opened, outcome

PAGE = 4096


def ended_by(work: object) -> str:
    """The signal that ends a process, or its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - becomes an exit code
            os._exit(9)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


@edge
def a_shared_mapping_is_the_file(_: Path) -> object:
    seen = []
    for size in (10, PAGE, 3 * PAGE + 5, 1 << 20, (1 << 21) + 7):
        with opened(f"f{size}") as file:
            os.ftruncate(file, size)
            with mmap.mmap(file, size) as view:
                view[0:3] = b"abc"
                view[size - 1 :] = b"z"
                os.pwrite(file, b"XY", 5)
                seen.append([os.pread(file, 8, 0).hex(), view[5:7].decode(), os.pread(file, 1, size - 1).decode()])
                view.flush()
        seen.append([os.path.getsize(f"f{size}"), Path(f"f{size}").read_bytes()[:8].hex()])
    return seen


@edge
def a_mapping_outlives_its_descriptor(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 100_000)
        view = mmap.mmap(file, 100_000)
    view[50_000:50_004] = b"late"
    view.flush()
    seen = Path("f").read_bytes()[49_999:50_005].decode()
    view[60_000:60_004] = b"last"
    view.close()
    return [seen, Path("f").read_bytes()[59_999:60_005].decode(), os.path.getsize("f")]


@edge
def a_mapping_outlives_its_name(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 100_000)
        view = mmap.mmap(file, 100_000)
    os.unlink("f")
    Path("f").write_bytes(b"another" * 20_000)
    view[0:4] = b"mine"
    said = [view[0:6].decode(), view[99_999:].decode()]
    view.close()
    return [said, Path("f").read_bytes()[:7].decode()]


@edge
def a_small_file_stays_mapped_when_it_was_closed(_: Path) -> object:
    """The bytes of a small idle file may move to its inode; a mapped file is not idle."""
    views = []
    for number in range(20):
        with opened(f"f{number}") as file:
            os.write(file, b"%04d" % number)
            views.append(mmap.mmap(file, 4))
    for number in range(500):
        Path(f"other{number}").write_bytes(b"o" * 100)
    for number, view in enumerate(views):
        view[0:2] = b"%02d" % (99 - number)
        view.flush()
    seen = [Path(f"f{number}").read_bytes().decode() for number in range(20)]
    for view in views:
        view.close()
    return [seen, [Path(f"f{number}").read_bytes().decode() for number in range(20)]]


@edge
def a_private_mapping_keeps_its_changes(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 3 * PAGE)
        with mmap.mmap(file, 3 * PAGE, mmap.MAP_PRIVATE) as view:
            view[0:2] = b"mine"[:2]
            os.pwrite(file, b"theirs", PAGE)
            return [view[0:3].decode(), os.pread(file, 3, 0).decode(), view[PAGE : PAGE + 6].decode()]


@edge
def two_mappings_are_one(_: Path) -> object:
    with opened("f") as file, opened("f") as other:
        os.ftruncate(file, 5 * PAGE)
        with mmap.mmap(file, 5 * PAGE) as one, mmap.mmap(other, 3 * PAGE, offset=2 * PAGE) as two:
            one[2 * PAGE] = 7
            two[PAGE] = 8
            return [two[0], one[3 * PAGE], in_child(lambda: one[3 * PAGE])]


@edge
def two_processes_meet_in_a_mapping(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, PAGE)
        with mmap.mmap(file, PAGE) as view:

            def child() -> int:
                with opened("f") as again, mmap.mmap(again, PAGE) as own:
                    own[9] = 42
                    return own[8]

            view[8] = 41
            return [in_child(child), view[9], os.pread(file, 2, 8).hex()]


@edge
def mappings_need_rights(_: Path) -> object:
    Path("f").write_bytes(b"x" * 100)
    with opened("f", os.O_RDONLY) as read, opened("f", os.O_WRONLY) as write, opened(".", os.O_RDONLY) as folder:
        cases = [
            (read, mmap.MAP_SHARED, mmap.PROT_READ),
            (read, mmap.MAP_SHARED, mmap.PROT_WRITE),
            (read, mmap.MAP_PRIVATE, mmap.PROT_WRITE),
            (write, mmap.MAP_SHARED, mmap.PROT_READ),
            (write, mmap.MAP_SHARED, mmap.PROT_WRITE),
            (folder, mmap.MAP_SHARED, mmap.PROT_READ),
        ]
        return [
            type(outcome(lambda file=file, flags=flags, prot=prot: mmap.mmap(file, 10, flags, prot).close())).__name__
            + str(outcome(lambda file=file, flags=flags, prot=prot: mmap.mmap(file, 10, flags, prot).close()))
            for file, flags, prot in cases
        ]


@edge
def beyond_the_end_is_a_bus_error(_: Path) -> object:
    def read() -> None:
        with opened("f") as file, mmap.mmap(file, 2 * PAGE) as view:
            os.ftruncate(file, 10)
            os.write(2, view[PAGE : PAGE + 1])

    def write() -> None:
        with opened("f") as file, mmap.mmap(file, 2 * PAGE) as view:
            os.ftruncate(file, PAGE)
            view[PAGE + 1] = 1

    def after_the_end_in_the_last_page() -> None:
        with opened("f") as file, mmap.mmap(file, 2 * PAGE) as view:
            os.ftruncate(file, PAGE + 10)
            view[PAGE + 100] = 1

    seen = []
    for work in (read, write, after_the_end_in_the_last_page):
        Path("f").write_bytes(b"x" * 2 * PAGE)
        seen.append([ended_by(work), os.path.getsize("f")])
    return seen


@edge
def bytes_behind_the_end_are_not_seen_when_the_file_grows(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 10)
        with mmap.mmap(file, 10) as view:
            os.ftruncate(file, 5)
            os.ftruncate(file, PAGE)
            return [view[0:10].hex(), any(os.pread(file, PAGE, 5))]


@edge
def a_mapping_grows_with_its_file(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, PAGE)
        with mmap.mmap(file, PAGE) as view:
            view.resize(4 * PAGE)
            view[3 * PAGE] = 5
            return [len(view), os.fstat(file).st_size, os.pread(file, 1, 3 * PAGE).hex()]


@edge
def a_cut_file_shows_zeros_in_its_mapping(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 8 * PAGE)
        with mmap.mmap(file, 8 * PAGE) as view:
            os.ftruncate(file, PAGE + 100)
            os.ftruncate(file, 8 * PAGE)
            return [view[PAGE + 99], view[PAGE + 100], view[5 * PAGE], outcome(os.pwrite, file, b"y", 5 * PAGE), view[5 * PAGE]]


@edge
def a_punched_hole_shows_in_a_mapping(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 4 * PAGE)
        with mmap.mmap(file, 4 * PAGE) as view:
            before = view[PAGE]
            allocate(file, PUNCH_HOLE | KEEP_SIZE, PAGE, PAGE)
            return [before, view[PAGE], view[0], view[2 * PAGE]]


@edge
def a_mapping_of_a_hole_is_written(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, 64 << 20)
        with mmap.mmap(file, 64 << 20) as view:
            for at in (0, 1 << 20, (33 << 20) + 5, (64 << 20) - 1):
                view[at] = 1
            view.flush()
        return [os.pread(file, 1, at).hex() for at in (0, 1, 1 << 20, (33 << 20) + 5, (64 << 20) - 1)]


@edge
def copy_on_write_of_a_program(_: Path) -> object:
    Path("run").write_bytes(Path("/bin/true").read_bytes())
    os.chmod("run", 0o755)
    return [os.waitpid(os.posix_spawn("./run", ["run"], {}), 0)[1] for _turn in range(3)]


@edge
def a_file_is_read_into_its_own_mapping(_: Path) -> object:
    with opened("f") as file:
        os.write(file, bytes(range(256)) * 32)
        with mmap.mmap(file, 2 * PAGE) as view:
            got = os.preadv(file, [memoryview(view)[PAGE : PAGE + 256]], 10)
            return [got, view[PAGE : PAGE + 5].hex(), os.pread(file, 5, PAGE).hex()]


@edge
def a_mapping_is_written_to_its_own_file(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"ab" * PAGE)
        with mmap.mmap(file, 2 * PAGE) as view:
            put = os.pwrite(file, memoryview(view)[0:PAGE], PAGE + 1)
            return [put, os.fstat(file).st_size, view[PAGE : PAGE + 5].decode()]


@edge
def mapped_times_move(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, PAGE)
        os.utime("f", (1, 1))
        with mmap.mmap(file, PAGE) as view:
            view[0] = 1
            view.flush()
    return [os.stat("f").st_mtime > 1, Path("f").read_bytes()[0]]


@edge
def many_small_files_are_mapped_and_read(_: Path) -> object:
    good = 0
    for number in range(200):
        Path("f").write_bytes(b"%06d" % number * 100)
        with opened("f", os.O_RDONLY) as file, mmap.mmap(file, 0, prot=mmap.PROT_READ) as view:
            good += view[594:600] == b"%06d" % number
    return good
