"""`tidemill://` with fsspec's own tests, and cases that these do not cover."""

from __future__ import annotations

import asyncio
import os
import pickle
import posixpath
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
import tidemill
from fsspec.tests import abstract
from tidemill.fsspec import TidemillFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from python.conftest import Nodes


class PoolFixtures(abstract.AbstractFixtures):
    """A file system over a pool of each kind."""

    @pytest.fixture
    def fs(self, pool: tidemill.Pool) -> TidemillFileSystem:
        """The file system under test."""
        return pool.fs

    @pytest.fixture
    def fs_path(self) -> str:
        """A directory for the tests."""
        return "of/tests"

    @pytest.fixture
    def fs_join(self):  # noqa: ANN201
        """The function that joins paths."""
        return posixpath.join

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        """An empty directory exists."""
        return True


class TestCopy(abstract.AbstractCopyTests, PoolFixtures):
    """fsspec's tests of copying."""


class TestGet(abstract.AbstractGetTests, PoolFixtures):
    """fsspec's tests of copying to the host."""


class TestPut(abstract.AbstractPutTests, PoolFixtures):
    """fsspec's tests of copying from the host."""


class TestOpen(abstract.AbstractOpenTests, PoolFixtures):
    """fsspec's tests of opening."""


class TestPipe(abstract.AbstractPipeTests, PoolFixtures):
    """fsspec's tests of writing whole files."""


@pytest.fixture
def tree(pool: tidemill.Pool) -> TidemillFileSystem:
    """Some files in directories."""
    pool.put_many({"a/one": b"1", "a/b/two": b"22", "a/b/three": b"333", "c": b"4444"})
    pool.make_folder("a/empty")
    return pool.fs


def test_urls_lead_to_the_pool_that_is_named_or_the_usual_one(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    with fsspec.open("tidemill://url/data", "wb", pool=str(nodes.file)) as file:
        file.write(b"by url")
    monkeypatch.setenv("TIDEMILL_POOL", str(nodes.file))
    fs, path = fsspec.url_to_fs("tidemill://url/data")
    assert (type(fs), path) == (TidemillFileSystem, "url/data")
    assert fs.cat_file(path) == fs.cat(fs.unstrip_protocol(path)) == b"by url"
    assert nodes.tidemill("cat", "url/data") == b"by url"
    assert pickle.loads(pickle.dumps(fs)).cat_file(path) == b"by url"  # noqa: S301
    fs.rm("url", recursive=True)
    with tidemill.start("64MiB") as one, tidemill.start("64MiB") as other:
        for number, pool in enumerate([one, other]):
            fsspec.filesystem("tidemill", pool=pool).pipe_file("data", b"%d" % number)
        assert (bytes(one.get("data")), bytes(other.get("data"))) == (b"0", b"1")
        with pytest.raises(TypeError, match="cannot go to another"):
            pickle.dumps(one.fs)


def test_listing_walking_and_globbing(tree: TidemillFileSystem) -> None:
    assert tree.ls("", detail=False) == ["a", "c"]
    assert tree.ls("tidemill://a/", detail=False) == ["a/b", "a/empty", "a/one"]
    assert tree.ls("c", detail=False) == ["c"]
    assert {info["name"]: (info["type"], info["size"]) for info in tree.ls("a")} == {"a/b": ("directory", 0), "a/empty": ("directory", 0), "a/one": ("file", 1)}
    assert tree.find("") == ["a/b/three", "a/b/two", "a/one", "c"]
    assert tree.glob("a/*/t*") == ["a/b/three", "a/b/two"]
    assert [(top, dirs, files) for top, dirs, files in tree.walk("a/b")] == [("a/b", [], ["three", "two"])]
    assert tree.du("a") == 6
    assert tree.isdir("a/empty")
    assert tree.isfile("c")
    assert not tree.exists("a/one/below")
    for missing in (tree.ls, tree.info, tree.cat_file, tree.rm):
        with pytest.raises(FileNotFoundError):
            missing("nothing/there")


@pytest.mark.parametrize(("start", "end"), [(None, None), (1, 3), (-2, None), (None, -1), (-3, -1), (2, 1), (5, 9), (-9, 2)])
def test_ranges_are_those_of_python(pool: tidemill.Pool, start: int | None, end: int | None) -> None:
    pool.put("data", b"abcdef")
    assert pool.fs.cat_file("data", start, end) == b"abcdef"[start:end]
    assert pool.fs.cat_ranges(["data", "data"], [start, 0], end) == [b"abcdef"[start:end], b"abcdef"[0:end]]


def test_many_ranges_fail_each_for_itself(tree: TidemillFileSystem) -> None:
    got = tree.cat_ranges(["c", "none", "a/one"], 0, [2, 2, 2])
    assert (got[0], got[2]) == (b"44", b"1")
    assert isinstance(got[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        tree.cat_ranges(["c", "none"], 0, 2, on_error="raise")
    with pytest.raises(ValueError, match="zip"):
        tree.cat_ranges(["c", "none"], [0], [1, 2])


def test_moving_removing_and_making_folders(tree: TidemillFileSystem) -> None:
    tree.mv("c", "a/empty")
    tree.mv("a/b", "d/e", recursive=True)
    assert tree.find("") == ["a/empty/c", "a/one", "d/e/three", "d/e/two"]
    tree.mv("a/one", "x")
    assert tree.cat_file("x") == b"1"
    with pytest.raises(FileExistsError):
        tree.mkdir("d")
    with pytest.raises(FileExistsError):
        tree.makedirs("d/e")
    tree.makedirs("d/e", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        tree.mkdir("new/folder", create_parents=False)
    with pytest.raises(OSError, match="not empty"):
        tree.rmdir("d")
    tree.rm(["d/e/three", "d/e/two"])
    tree.rmdir("d/e")
    tree.touch("x")
    assert tree.size("x") == 0
    tree.rm("", recursive=True)
    assert tree.ls("") == []


def test_a_read_file_has_its_length_and_gives_views(pool: tidemill.Pool) -> None:
    pool.put("data", bytes(range(256)) * 8192)
    with pool.fs.open("data") as file:
        assert file.size == 2 << 20
        assert file.read(2) == b"\0\1"
        view = file.read_buffer(4)
        assert isinstance(view, tidemill.View)
        assert view == b"\2\3\4\5"
        assert file.tell() == 6
        file.seek(-2, 2)
        assert file.read_buffer() == b"\xfe\xff"
    with pool.fs.open("text", "w") as file:
        file.write("grüße")
    assert pool.fs.cat_file("text") == "grüße".encode()


def test_files_of_the_host_are_copied_whole(pool: tidemill.Pool, tmp_path: Path) -> None:
    data = bytes(range(256)) * 80_000
    (tmp_path / "data").write_bytes(data)
    (tmp_path / "empty").touch()
    pool.fs.put(str(tmp_path / "data"), "in/data")
    pool.fs.put_file(tmp_path / "empty", "in/empty")
    with pytest.raises(FileExistsError):
        pool.fs.put_file(tmp_path / "empty", "in/data", mode="create")
    pool.fs.get("in/", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out/data").read_bytes() == data
    assert (tmp_path / "out/empty").read_bytes() == b""


def test_the_forms_for_asyncio_need_no_thread_of_fsspec(pool: tidemill.Pool, tmp_path: Path) -> None:
    async def run_all() -> None:
        fs = TidemillFileSystem(pool, asynchronous=True)
        await fs._pipe_file("a/data", b"abcdef")
        with pytest.raises(FileExistsError):
            await fs._pipe_file("a/data", b"", mode="create")
        assert await fs._cat_file("a/data", -2) == b"ef"
        assert (await fs._cat_ranges(["a/data", "a/none"], [0, 0], [2, 2]))[0] == b"ab"
        await fs._cp_file("a/data", "b/c/data")
        await fs._makedirs("b/d", exist_ok=True)
        assert await fs._ls("b", detail=False) == ["b/c", "b/d"]
        assert await fs._find("") == ["a/data", "b/c/data"]
        assert await fs._find("a/data") == ["a/data"]
        assert await fs._find("", withdirs=True) == ["a", "a/data", "b", "b/c", "b/c/data", "b/d"]
        assert (await fs._info("a"))["type"] == "directory"
        assert not await fs._exists("none")
        await fs._get_file("a/data", str(tmp_path / "data"))
        await fs._put_file(str(tmp_path / "data"), "back")
        await fs._mv_file("back", "moved/back")
        await fs._rm("b", recursive=True)
        await fs._rm("a/data")
        with pytest.raises(FileNotFoundError):
            await fs._rm("a/data")
        assert await fs._find("") == ["moved/back"]

    asyncio.run(run_all())


def test_no_thread_is_started(nodes: Nodes) -> None:
    program = """
import threading, fsspec, tidemill
import os
for fs in tidemill.start("64MiB").fs, tidemill.connect().fs:
    fs.pipe_file("thread/a", b"b")
    assert fs.cat_file("thread/a") == b"b" and fs.find("thread") == ["thread/a"]
    fs.rm("thread", recursive=True)
# Neither one of Python nor any other.
assert len(os.listdir("/proc/self/task")) == 1, [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
"""
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"TIDEMILL_POOL": str(nodes.file)}, check=True, timeout=60)


def test_files_of_a_transaction_appear_at_its_end_and_not_before(tree: TidemillFileSystem) -> None:
    with tree.transaction:
        with tree.open("t/long", "wb") as long:
            long.write(b"x" * 3_000_000)
        with tree.open("t/text", "w") as text:
            text.write("one\ntwo\n")
        tree.pipe_file("a/one", b"new")
        assert not tree.exists("t/long")
        assert tree.cat_file("a/one") == b"1"
    assert tree.cat_file("t/long") == b"x" * 3_000_000
    assert (tree.cat_file("t/text"), tree.cat_file("a/one")) == (b"one\ntwo\n", b"new")
    tree.pipe_file("after", b"at once")
    assert tree.cat_file("after") == b"at once"


def test_of_a_transaction_that_failed_nothing_is_seen(tree: TidemillFileSystem) -> None:
    def fails() -> None:
        with tree.transaction, tree.open("t/one", "wb") as file:
            file.write(b"x" * 2_000_000)
            raise KeyError("it failed")

    with pytest.raises(KeyError):
        fails()
    assert not tree.exists("t/one")
    transaction = tree.start_transaction()
    tree.pipe_file("t/two", b"2")
    transaction.complete(commit=False)
    assert not tree.exists("t/two")
    with pytest.raises(ValueError, match="as a whole"), tree.transaction:
        tree.open("c", "ab")
    with pytest.raises(tidemill.Exists), tree.transaction, tree.open("c", "xb") as file:
        file.write(b"other")
    assert tree.cat_file("c") == b"4444"


def test_a_file_of_a_transaction_that_found_no_space_is_never_seen_and_waits_once() -> None:
    wait = 0.5
    with tidemill.start("8MiB", space_wait=wait) as pool:
        pool.put("fill", bytes(7_500_000))
        fs = pool.fs

        def seconds(call: Callable[[], object]) -> float:
            before = time.monotonic()
            with pytest.raises(tidemill.NoSpace):
                call()
            return time.monotonic() - before

        for name, mode, data in (("bytes", "wb", b"x" * 900_000), ("text", "w", "x" * 900_000)):
            transaction = fs.start_transaction()
            file = fs.open(name, mode)
            file.write(data)
            assert wait <= seconds(file.close) < 1.8 * wait
            seconds(transaction.complete)
            fs.end_transaction()
        transaction = fs.start_transaction()
        fs.open("other", "wb").write(b"x" * 900_000)
        before = time.monotonic()
        transaction.complete(commit=False)
        assert time.monotonic() - before < wait, "what is discarded is not written before"
        assert [entry.name for entry in pool.folder()] == ["fill"]


def test_touch_empties_a_file_or_gives_it_the_time_of_now(tree: TidemillFileSystem) -> None:
    before = tree.pool.stat("c").modified_ns
    while tree.pool.stat("c").modified_ns == before:
        tree.touch("c", truncate=False)
    assert (tree.cat_file("c"), tree.pool.stat("c").modified_ns > before) == (b"4444", True)
    tree.touch("of/new", truncate=False)
    assert tree.cat_file("of/new") == b""
    tree.touch("c")
    assert tree.cat_file("c") == b""
