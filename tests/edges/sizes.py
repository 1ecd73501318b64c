"""Lengths, holes and maximum offsets of files: truncate, seek, allocate, copy."""

from __future__ import annotations

import fcntl
import os
import resource
import time
from pathlib import Path

from calls import COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, OFFSET_MAX, PUNCH_HOLE, UNSHARE_RANGE, ZERO_RANGE, allocate, edge, in_child, opened, outcome

PAGE = 4096
MIB = 1 << 20
# Maximum number of pages that one byte may take: a huge page.
PIECE = 512


def blocks(path: str = "f") -> int:
    """Allocated space of a file, in pages."""
    return os.stat(path).st_blocks * 512 // PAGE


def data(file: int) -> list[object]:
    """The starts of data and of holes, in pages."""
    at, ends, seen = 0, os.fstat(file).st_size, []
    while at < ends:
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            found = outcome(os.lseek, file, at, whence)
            seen.append(found)
            if not isinstance(found, int):
                return seen
            at = found
    return seen


@edge
def truncate_to_many_lengths(_: Path) -> object:
    seen = []
    with opened("f") as file:
        for length in (0, 1, 4095, 4096, 4097, 100, 65536, 65537, 1, MIB, MIB + 1, 3 * MIB, 5000, 0):
            os.ftruncate(file, length)
            os.pwrite(file, b"#", max(0, length - 1))
            seen.append([os.fstat(file).st_size, sum(Path("f").read_bytes()) % 1000])
    return seen


@edge
def truncate_beyond_the_limits(_: Path) -> object:
    Path("f").write_bytes(b"x")
    with opened("f") as file:
        return [outcome(os.ftruncate, file, length) for length in (-1, OFFSET_MAX, OFFSET_MAX - 1, 1 << 62, 1 << 40, 0)] + [
            outcome(os.truncate, "f", -1),
            os.path.getsize("f"),
        ]


@edge
def a_terabyte_of_nothing(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, 1 << 40)
        os.pwrite(file, b"end", (1 << 40) - 3)
        os.pwrite(file, b"mid", 1 << 39)
        return [
            os.fstat(file).st_size,
            os.pread(file, 5, (1 << 40) - 5).hex(),
            os.pread(file, 5, (1 << 39) - 1).hex(),
            os.pread(file, 5, 1 << 38).hex(),
            blocks() <= 2 * PIECE,
        ]


@edge
def bytes_at_the_far_end(_: Path) -> object:
    with opened("f") as file:
        tried = [outcome(os.pwrite, file, b"xy", at) for at in (OFFSET_MAX, OFFSET_MAX - 1, OFFSET_MAX - 2, OFFSET_MAX - PAGE, 1 << 62)]
        return [tried, os.fstat(file).st_size, [outcome(lambda at=at: os.pread(file, 4, at).hex()) for at in (OFFSET_MAX, OFFSET_MAX - 2, OFFSET_MAX - 4)]]


@edge
def negative_offsets(_: Path) -> object:
    with opened("f") as file:
        return [
            outcome(os.pread, file, 1, -1),
            outcome(os.pwrite, file, b"x", -1),
            outcome(os.lseek, file, -1, os.SEEK_SET),
            outcome(os.lseek, file, -1, os.SEEK_END),
        ]


@edge
def seeking(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"0123456789")
        places = [(3, os.SEEK_SET), (2, os.SEEK_CUR), (-4, os.SEEK_END), (5, os.SEEK_END), (OFFSET_MAX, os.SEEK_SET), (1, os.SEEK_CUR), (0, 9)]
        return [outcome(os.lseek, file, at, whence) for at, whence in places] + [outcome(lambda: os.read(file, 3).hex())]


@edge
def reading_at_and_beyond_the_end(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"0123456789")
        return [os.pread(file, 5, at).decode() for at in (0, 5, 8, 9, 10, 11, 5000)] + [os.pread(file, 0, 0).decode(), len(os.pread(file, MIB, 0))]


@edge
def empty_writes(_: Path) -> object:
    with opened("f") as file:
        return [
            os.write(file, b""),
            os.pwrite(file, b"", 100),
            os.fstat(file).st_size,
            os.writev(file, [b"", b"a", b"", b"bc"]),
            Path("f").read_bytes().decode(),
        ]


@edge
def vectors_of_pieces(_: Path) -> object:
    with opened("f") as file:
        wrote = os.writev(file, [bytes([number]) * (number * 37 % 5000) for number in range(200)])
        pieces = [bytearray(number * 53 % 3000) for number in range(100)]
        read = os.preadv(file, pieces, 777)
        return [wrote, read, b"".join(pieces)[:read] == os.pread(file, read, 777)]


@edge
def a_hole_between_two_writes(_: Path) -> object:
    with opened("f") as file:
        os.pwrite(file, b"a" * PAGE, 0)
        os.pwrite(file, b"b" * PAGE, 8000 * PAGE)
        return [os.fstat(file).st_size, any(os.pread(file, 7999 * PAGE, PAGE)), os.pread(file, 2, 8000 * PAGE - 1).hex(), blocks() <= 2 * PIECE]


@edge
def seeking_data_and_holes(_: Path) -> object:
    with opened("f") as file:
        os.ftruncate(file, 64 * MIB)
        empty = [outcome(os.lseek, file, 0, os.SEEK_DATA), outcome(os.lseek, file, 0, os.SEEK_HOLE), outcome(os.lseek, file, 64 * MIB, os.SEEK_DATA)]
        os.pwrite(file, b"x" * (4 * MIB), 32 * MIB)
        found = data(file)
        inside = [
            outcome(os.lseek, file, 33 * MIB, os.SEEK_DATA),
            outcome(os.lseek, file, 40 * MIB, os.SEEK_DATA),
            outcome(os.lseek, file, 64 * MIB - 1, os.SEEK_HOLE),
        ]
        return [empty, found, inside]


@edge
def seeking_data_in_small_files(_: Path) -> object:
    with opened("f") as file:
        none = [outcome(os.lseek, file, 0, whence) for whence in (os.SEEK_DATA, os.SEEK_HOLE)]
        os.write(file, b"small")
        return [none, [outcome(os.lseek, file, at, whence) for at in (0, 3, 5, 6, -1) for whence in (os.SEEK_DATA, os.SEEK_HOLE)]]


@edge
def what_was_cut_off_reads_as_zeros(_: Path) -> object:
    seen = []
    for length in (100, 5000, 70_000, 2 * MIB):
        with opened(f"f{length}") as file:
            os.write(file, b"s" * length)
            os.ftruncate(file, length // 2)
            os.ftruncate(file, length)
            seen.append([os.pread(file, 4, length // 2 - 2).hex(), any(os.pread(file, length, length // 2))])
    return seen


@edge
def what_was_cut_off_never_comes_back_behind_a_write(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"s" * 3 * MIB)
        os.ftruncate(file, 1000)
        os.pwrite(file, b"e", 2 * MIB)
        return [any(os.pread(file, 2 * MIB - 1000, 1000)), os.pread(file, 9, 2 * MIB).hex()]


@edge
def allocate_and_extend(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"abc")
        return [
            allocate(file, 0, 0, 10_000),
            os.fstat(file).st_size,
            Path("f").read_bytes()[:5].hex(),
            allocate(file, 0, 0, 10),
            os.fstat(file).st_size,
            blocks() >= 3,
        ]


@edge
def allocate_and_keep_the_size(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"abc")
        return [
            allocate(file, KEEP_SIZE, 0, MIB),
            os.fstat(file).st_size,
            os.pread(file, 9, 0).decode(),
            blocks() >= 256,
            os.ftruncate(file, 4),
            os.pread(file, 9, 0).hex(),
        ]


@edge
def allocate_with_bad_arguments(_: Path) -> object:
    Path("f").write_bytes(b"x")
    with opened("f") as file, opened("f", os.O_RDONLY) as read, opened(".", os.O_RDONLY) as folder:
        ranges = [outcome(allocate, file, 0, at, length) for at, length in ((-1, 5), (0, 0), (0, -5), (OFFSET_MAX, 1), (OFFSET_MAX - 5, 100), (1 << 60, 1))]
        modes = [outcome(allocate, file, mode, 0, 5) for mode in (PUNCH_HOLE, PUNCH_HOLE | ZERO_RANGE | KEEP_SIZE, 1 << 20, 4)]
        return [ranges, modes, outcome(allocate, read, 0, 0, 5), outcome(allocate, folder, 0, 0, 5), os.fstat(file).st_size]


@edge
def allocate_in_ways_that_memory_has_not(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 4 * PAGE)
        return [outcome(allocate, file, mode, 0, PAGE) for mode in (COLLAPSE_RANGE, INSERT_RANGE, UNSHARE_RANGE)] + [os.fstat(file).st_size]


@edge
def zeroing_a_range(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 3 * PAGE)
        keep = outcome(allocate, file, ZERO_RANGE | KEEP_SIZE, PAGE, PAGE)
        beyond = outcome(allocate, file, ZERO_RANGE, 2 * PAGE + 5, 2 * PAGE)
        return [keep, beyond, os.fstat(file).st_size, sum(map(bool, Path("f").read_bytes()))]


@edge
def punching_holes(_: Path) -> object:
    seen = []
    with opened("f") as file:
        os.write(file, b"x" * 64 * PAGE)
        for at, length in ((0, 1), (5, 100), (PAGE, PAGE), (3 * PAGE + 1, 10 * PAGE), (60 * PAGE, 100 * PAGE), (500 * PAGE, 5), (20 * PAGE, 30 * PAGE)):
            allocate(file, PUNCH_HOLE | KEEP_SIZE, at, length)
            seen.append([os.fstat(file).st_size, Path("f").read_bytes().count(b"x")])
    return seen


@edge
def a_punched_hole_gives_its_space_back(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * 16 * MIB)
        allocate(file, PUNCH_HOLE | KEEP_SIZE, 3 * MIB + 5, 9 * MIB)
        return [blocks() <= 7 * MIB // PAGE + 4 * PIECE, Path("f").read_bytes().count(b"x")]


@edge
def punching_a_small_file(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"0123456789")
        allocate(file, PUNCH_HOLE | KEEP_SIZE, 2, 3)
        allocate(file, PUNCH_HOLE | KEEP_SIZE, 8, 100)
        return Path("f").read_bytes().hex()


@edge
def posix_fallocate(_: Path) -> object:
    with opened("f") as file, opened("f", os.O_RDONLY) as read:
        tried = [outcome(os.posix_fallocate, file, at, length) for at, length in ((0, 100), (50, 10), (5000, 1), (0, 0), (-1, 1))]
        return [tried, outcome(os.posix_fallocate, read, 0, 1), os.fstat(file).st_size]


@edge
def more_than_there_is_cannot_be_allocated(_: Path) -> object:
    with opened("f") as file:
        return [outcome(allocate, file, 0, 0, 1 << 42), outcome(allocate, file, KEEP_SIZE, 0, 1 << 42), os.fstat(file).st_size, blocks()]


@edge
def copying_a_range(_: Path) -> object:
    with opened("f") as source, opened("g") as target:
        os.write(source, bytes(range(256)) * 1000)
        done = [
            os.copy_file_range(source, target, length, at, to)
            for length, at, to in ((10, 0, 0), (100_000, 5000, 300), (10, 255_995, 0), (5, 256_000, 0), (5, 300_000, 9), (0, 0, 0))
        ]
        return [done, os.fstat(target).st_size, sum(Path("g").read_bytes())]


@edge
def copying_moves_the_offsets(_: Path) -> object:
    with opened("f") as source, opened("g") as target:
        os.write(source, b"0123456789")
        os.lseek(source, 2, os.SEEK_SET)
        done = [os.copy_file_range(source, target, 5), os.copy_file_range(source, target, 5), os.copy_file_range(source, target, 5)]
        return [done, [os.lseek(file, 0, os.SEEK_CUR) for file in (source, target)], Path("g").read_bytes().decode()]


@edge
def copying_within_one_file(_: Path) -> object:
    with opened("f") as file:
        os.write(file, bytes(range(200)))
        tried = [
            outcome(os.copy_file_range, file, file, length, at, to)
            for length, at, to in ((50, 0, 100), (50, 0, 25), (50, 25, 0), (50, 0, 0), (50, 150, 200), (1, 0, 5000))
        ]
        return [tried, sum(Path("f").read_bytes()), os.fstat(file).st_size]


@edge
def copying_with_bad_arguments(_: Path) -> object:
    Path("f").write_bytes(b"x" * 10)
    with (
        opened("f") as file,
        opened("f", os.O_RDONLY) as read,
        opened("g", os.O_WRONLY | os.O_CREAT) as write,
        opened("h", os.O_WRONLY | os.O_CREAT | os.O_APPEND) as end,
        opened(".", os.O_RDONLY) as folder,
    ):
        pairs = [(write, file), (file, read), (folder, file), (file, folder), (file, end)]
        far = [
            outcome(os.copy_file_range, file, write, length, at, to)
            for length, at, to in ((5, -1, 0), (5, 0, -1), (5, OFFSET_MAX, 0), (5, 0, OFFSET_MAX), (5, 0, OFFSET_MAX - 2))
        ]
        return [[outcome(os.copy_file_range, source, target, 5) for source, target in pairs], far]


@edge
def sendfile_and_splice(_: Path) -> object:
    Path("f").write_bytes(bytes(range(256)) * 500)
    read, write = os.pipe()
    with opened("f") as source, opened("g") as target:
        sent = os.sendfile(target, source, 0, 100_000)
        spliced = os.splice(source, write, 1000, offset_src=500)
        got = os.read(read, 5000)
        os.write(write, b"from a pipe")
        back = os.splice(read, target, 11, offset_dst=3)
        os.close(read)
        os.close(write)
        return [sent, spliced, len(got), got[:3].hex(), back, os.pread(target, 11, 3).decode()]


@edge
def the_limit_of_file_size(_: Path) -> object:
    def limited() -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        with opened("f") as file:
            tried = [outcome(os.pwrite, file, b"x" * 100, at) for at in (0, 9_950, 10_000, 20_000)]
            return [
                tried,
                outcome(os.ftruncate, file, 10_001),
                outcome(os.ftruncate, file, 9_999),
                outcome(allocate, file, 0, 0, 10_001),
                outcome(allocate, file, KEEP_SIZE, 0, 10_001),
                os.fstat(file).st_size,
            ]

    return in_child(limited)


@edge
def truncate_of_what_is_no_file(_: Path) -> object:
    os.mkfifo("p")
    os.mkdir("d")
    return [outcome(os.truncate, "p", 0), outcome(os.truncate, "d", 0), outcome(os.truncate, "nope", 0)]


@edge
def advice_is_taken(_: Path) -> object:
    Path("f").write_bytes(b"x" * 10_000)
    with opened("f") as file:
        return [outcome(os.posix_fadvise, file, 0, 0, advice) for advice in range(6)] + [
            outcome(os.posix_fadvise, file, 0, 0, 77),
            outcome(fcntl.fcntl, file, fcntl.F_GETFL) & os.O_ACCMODE,
        ]


@edge
def df_tells_what_is_taken(_: Path) -> object:
    before = os.statvfs(".")
    with opened("f") as file:
        for _turn in range(8):
            os.write(file, b"x" * MIB)
    taken = (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize
    os.unlink("f")
    # The kernel sends the last close of a file to a server asynchronously.
    end = time.monotonic() + 5
    while (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize > MIB and time.monotonic() < end:
        time.sleep(0.01)
    after = (before.f_bfree - os.statvfs(".").f_bfree) * before.f_frsize
    return [8 * MIB <= taken <= 9 * MIB, after < MIB, before.f_bfree == before.f_bavail, before.f_bsize, before.f_namemax]


@edge
def du_tells_what_a_file_takes(_: Path) -> object:
    with opened("f") as file:
        os.write(file, b"x" * MIB)
        whole = blocks()
        os.ftruncate(file, MIB // 2)
        return [whole, blocks(), os.stat("f").st_blksize % PAGE]


@edge
def a_file_grows_by_many_sizes_of_writes(_: Path) -> object:
    seen = []
    for size in (1, 7, 511, 4095, 4096, 4097, 65536, 131072 + 1):
        name = f"f{size}"
        with opened(name) as file:
            for turn in range(max(3, 20_000 // size)):
                os.write(file, bytes([turn % 251]) * size)
        seen.append([os.path.getsize(name), sum(Path(name).read_bytes()) % 65521])
    return seen
