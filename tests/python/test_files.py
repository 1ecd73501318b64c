"""Files of a pool behave as Python's `io` specifies, compared with files of the host."""

from __future__ import annotations

import io
import random
import time
from pathlib import Path

import pytest
import tidemill

MODES = ["rb", "r+b", "wb", "w+b", "ab", "xb", "x+b"]


def outcome(call, *arguments: object) -> object:  # noqa: ANN001
    """The result of a call, or the class of its error."""
    try:
        result = call(*arguments)
    except (OSError, ValueError) as error:
        return next(kind for kind in (FileNotFoundError, FileExistsError, io.UnsupportedOperation, OSError, ValueError) if isinstance(error, kind))
    return bytes(result) if isinstance(result, (bytes, memoryview, tidemill.View)) else result


def steps(file: io.IOBase, seed: int) -> list[object]:
    """The outcomes of a random series of calls."""
    chance = random.Random(seed)
    seen: list[object] = [outcome(file.readable), outcome(file.writable), outcome(file.seekable)]
    for _ in range(60):
        length = chance.choice([0, 1, 10, 5000, 2_000_000])
        offset = chance.randrange(3_000_000)
        data = chance.randbytes(length)
        call = chance.choice([
            lambda length=length: file.read(length),
            file.read,
            lambda data=data: file.write(data),
            lambda offset=offset: file.seek(offset),
            lambda: file.seek(-5, io.SEEK_END),
            lambda: file.seek(0, io.SEEK_CUR),
            file.tell,
            lambda offset=offset: file.truncate(offset),
            lambda: file.readline(100),
        ])  # fmt: skip
        seen.append(outcome(call))
    return seen


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_file_does_what_a_file_of_the_host_does(pool: tidemill.Pool, tmp_path: Path, mode: str, there: bool, seed: int) -> None:  # noqa: FBT001
    host, data = tmp_path / "file", random.Random(seed).randbytes(1_500_000)
    if there:
        host.write_bytes(data)
        pool.put("file", data)
    opened = outcome(host.open, mode)
    if isinstance(opened, type):
        with pytest.raises(opened):
            pool.open("file", mode)
        return
    with opened as ours_to_be, pool.open("file", mode) as file:
        assert steps(file, seed) == steps(ours_to_be, seed)
    assert pool.get("file") == host.read_bytes()


def test_what_is_appended_goes_to_the_end_wherever_that_is(pool: tidemill.Pool) -> None:
    pool.put("log", b"1")
    with pool.open("log", "a+b", buffering=0) as one, pool.open("log", "ab", buffering=0) as other:
        assert one.tell() == 1
        one.write(b"2")
        other.write(b"3")
        one.seek(0)
        assert one.read() == b"123"
        one.seek(1)
        one.write(b"4")
        assert one.tell() == 4
    assert pool.get("log") == b"1234"


def test_text_is_text(pool: tidemill.Pool) -> None:
    with pool.open("new/folder/poem", "w") as file:
        file.write("Über allen Gipfeln\nist Ruh\n")
    assert pool.get("new/folder/poem") == "Über allen Gipfeln\nist Ruh\n".encode()
    with pool.open("new/folder/poem") as file:
        assert list(file) == ["Über allen Gipfeln\n", "ist Ruh\n"]
    with pool.open("new/folder/poem", encoding="latin-1") as file:
        assert file.readline() != "Über allen Gipfeln\n"


@pytest.mark.parametrize("mode", ["", "q", "rw", "rr", "rbt", "b"])
def test_modes_that_are_none_are_refused(pool: tidemill.Pool, mode: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        pool.open("file", mode)


def test_bytes_have_no_encoding_and_text_has_a_buffer(pool: tidemill.Pool) -> None:
    pool.put("file", b"")
    with pytest.raises(ValueError, match="encoding"):
        pool.open("file", "rb", encoding="utf-8")
    with pytest.raises(ValueError, match="buffer"):
        pool.open("file", "r", buffering=0)


def test_a_file_without_a_buffer_gives_views(pool: tidemill.Pool) -> None:
    data = random.Random(5).randbytes(3 << 20)
    pool.put("file", data)
    with pool.open("file", "rb", buffering=0) as file:
        assert isinstance(file, tidemill.PoolFile)
        view = file.pread(1 << 19, 1 << 20)
        assert not view.copied
        assert view == data[1 << 20 : (1 << 20) + (1 << 19)]
        assert file.read_buffer(100) == data[:100]
        assert file.tell() == 100
        assert file.read_buffer() == data[100:]
        assert repr(file) == "<tidemill.PoolFile 'file' mode='rb'>"
    assert view == data[1 << 20 : (1 << 20) + (1 << 19)]
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_what_is_written_is_seen_as_it_is_flushed_and_replaced_as_a_whole_by_put(pool: tidemill.Pool) -> None:
    with pool.open("file", "wb") as file:
        file.write(b"half")
        file.flush()
        assert pool.get("file") == b"half"
        file.write(b" and half")
    assert pool.get("file") == b"half and half"


@pytest.mark.parametrize("mode", ["wb", "w", "w+b", "r+", "a"])
def test_a_close_waits_for_space_once(mode: str) -> None:
    wait = 0.5
    with tidemill.start("8MiB", space_wait=wait) as pool:
        pool.put("fill", bytes(6_500_000))
        pool.put("file", b"")
        # The first MiB fits and the second does not. At close a buffer retries its remaining bytes,
        # and a text file all of its text.
        file = pool.open("file", mode, buffering=4 << 20)
        file.write(b"x" * 3_000_000 if "b" in mode else "x" * 3_000_000)
        before = time.monotonic()
        with pytest.raises(tidemill.NoSpace, match="give the pool more memory, or delete"):
            file.close()
        assert wait <= time.monotonic() - before < 1.8 * wait
        assert file.closed


def test_what_found_no_space_is_written_by_a_close_after_something_was_deleted() -> None:
    with tidemill.start("8MiB", space_wait=0.1) as pool:
        pool.put("fill", bytes(6_500_000))
        file = pool.open("file", "w", buffering=4 << 20)
        file.write("x" * 3_000_000)
        with pytest.raises(tidemill.NoSpace):
            file.flush()
        pool.delete("fill")
        file.close()
        assert pool.get("file") == b"x" * 3_000_000
