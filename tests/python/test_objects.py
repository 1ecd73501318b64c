"""Objects: a get returns what was put, by every method, and conditions hold."""

from __future__ import annotations

import array
import asyncio
import random
import threading

import numpy as np
import pytest
import tidemill

# Lengths: inline, one stripe, a stripe and a byte, several stripes with a partial one.
LENGTHS = (0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, (5 << 20) + 17)


@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_put_is_got(pool: tidemill.Pool, length: int) -> None:
    data = random.Random(length).randbytes(length)
    version = pool.put("folder/data", data)
    view = pool.get("folder/data")
    assert view == data
    assert view.version == version == pool.stat("folder/data").version
    assert pool.get("folder/data", 1, 4099) == data[1:4099]
    assert pool.get("folder/data", length + 5) == b""


def test_negative_places_lengths_and_limits_are_refused_with_the_rule(pool: tidemill.Pool) -> None:
    pool.put("data", b"data")
    file = pool.open("data", "r+b", buffering=0)
    assert isinstance(file, tidemill.PoolFile)
    calls = [
        lambda: pool.get("data", -1),
        lambda: pool.get("data", 0, -1),
        lambda: pool.list(limit=-1),
        lambda: asyncio.run(pool.alist(limit=-1)),
        lambda: file.pread(-1, 0),
        lambda: file.pread(1, -1),
        lambda: file.truncate(-1),
    ]
    for call in calls:
        with pytest.raises(tidemill.Invalid, match="from 0 to"):
            call()
    with pytest.raises(tidemill.Invalid):
        file.seek(-1)
    file.close()
    assert bytes(pool.get("data")[-1:]) == b"a"


@pytest.mark.parametrize("memory", [0, -1, "0", "-5GiB", "many"])
def test_a_pool_of_no_memory_is_refused(memory: int | str) -> None:
    with pytest.raises(tidemill.Invalid):
        tidemill.start(memory)
    with pytest.raises(tidemill.Invalid):
        tidemill.start("64MiB", space_wait=-1)


@pytest.mark.parametrize("data", [b"bytes", bytearray(b"bytearray"), memoryview(b"..memory..")[2:8], array.array("d", [1.5, 2.5]), np.arange(6).reshape(2, 3)])
def test_any_buffer_is_put_as_its_bytes(pool: tidemill.Pool, data: bytes) -> None:
    pool.put("data", data)
    assert bytes(pool.get("data")) == memoryview(data).tobytes()


def test_a_buffer_with_gaps_is_refused_with_what_to_do(pool: tidemill.Pool) -> None:
    with pytest.raises(BufferError, match="ascontiguousarray"):
        pool.put("data", memoryview(np.arange(100)[::2]))
    with pytest.raises(TypeError):
        pool.put("data", "text")  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [100, 4096, 40_000, 3 << 20])
def test_what_was_put_stays_when_its_buffer_is_changed(pool: tidemill.Pool, length: int) -> None:
    data = np.full(length, 7, "u1")
    pool.put("data", data)
    data[:] = 8
    assert (pool.get("data").numpy() == 7).all()


def test_keys_are_text_or_bytes_and_slashes_at_their_ends_mean_nothing(pool: tidemill.Pool) -> None:
    pool.put("/a/é/", b"1")
    assert pool.get(b"a/\xc3\xa9") == b"1"
    pool.put(b"a/\xff", b"2")
    assert pool.list("a/") == ["a/\udcff", "a/é"] or pool.list("a/") == ["a/é", "a/\udcff"]
    assert pool.get("a/\udcff") == b"2"
    with pytest.raises(TypeError, match="str or bytes, not int"):
        pool.get(5)  # type: ignore[arg-type]


def test_conditions_hold_or_nothing_is_changed(pool: tidemill.Pool) -> None:
    first = pool.put("key", b"1", if_absent=True)
    with pytest.raises(tidemill.Exists) as exists:
        pool.put("key", b"2", if_absent=True)
    assert exists.value.path == "key"
    second = pool.put("key", b"2", if_version=first)
    with pytest.raises(tidemill.VersionDiffers) as differs:
        pool.put("key", b"3", if_version=first)
    assert differs.value.version == second
    with pytest.raises(tidemill.VersionDiffers):
        pool.delete("key", if_version=first)
    assert pool.get("key") == b"2"
    pool.delete("key", if_version=second)
    with pytest.raises(tidemill.NotFound):
        pool.get("key")
    with pytest.raises(tidemill.Invalid, match="not a version"):
        pool.put("key", b"", if_version="first")


def test_deleting_what_is_not_there(pool: tidemill.Pool) -> None:
    pool.delete("nothing", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        pool.delete("nothing")
    pool.delete_many(["nothing", "no/thing"], missing_ok=True)


def test_listing_by_prefix_behind_a_key_and_by_folder(pool: tidemill.Pool) -> None:
    keys = [f"d/{number:03}" for number in range(20)] + ["d/e/f", "dx", "e"]
    pool.put_many((key, b"x") for key in keys)
    assert pool.list() == sorted(keys)
    assert pool.list("d/0", limit=3) == keys[:3]
    assert pool.list("d/", after="d/018") == ["d/019", "d/e/f"]
    assert pool.list("nothing/") == []
    folder = pool.folder("d")
    assert [entry.name for entry in folder][-2:] == ["019", "e"]
    assert [entry.stat.kind for entry in folder][-2:] == ["file", "folder"]
    with pytest.raises(tidemill.NotAFolder):
        pool.folder("dx")
    with pytest.raises(tidemill.NotFound):
        pool.folder("nothing")


def test_stat_and_locate(pool: tidemill.Pool) -> None:
    pool.put("some/data", bytes(3 << 20))
    stat = pool.stat("some/data")
    assert (stat.kind, stat.size, stat.mode, stat.links, stat.is_folder) == ("file", 3 << 20, 0o644, 1, False)
    assert stat.modified.timestamp() == pytest.approx(stat.modified_ns / 1e9)
    assert pool.stat("some").is_folder
    assert "some/data" in pool
    assert "some/other" not in pool
    assert "some/data/below" not in pool
    there = pool.locate("some/data")
    assert there.exists
    assert sum(there.nodes.values()) == 3 << 20
    assert there.ranges[0][0] == 0
    assert there.ranges[-1][1] == 3 << 20
    expected = pool.locate("some/other")
    assert (expected.exists, expected.policy, expected.ranges) == (False, "striped", [])
    assert sum(expected.nodes.values()) == pytest.approx(1)


def test_placement_is_what_was_asked_for(pool: tidemill.Pool) -> None:
    node = pool.nodes()[-1].id
    pool.put("data", bytes(5 << 20), placement=f"at({node})", stripe_size="2MiB")
    assert pool.locate("data").nodes == {node: 5 << 20}
    for word in ["single", "whole"]:
        pool.put("data", bytes(5 << 20), placement=word)
        assert len(pool.locate("data").nodes) == 1
    with pytest.raises(tidemill.Invalid, match="choose striped"):
        pool.put("data", b"", placement="anywhere")
    with pytest.raises(tidemill.Invalid, match="power of two"):
        pool.put("data", b"", stripe_size="3MiB")


def test_many_at_once_keep_their_order_and_each_fails_for_itself(pool: tidemill.Pool) -> None:
    items = {f"many/{number}": b"%d" % number * (number + 1) for number in range(300)}
    versions = pool.put_many(items)
    assert len(set(versions)) == len(items)
    assert pool.get_many(items) == list(items.values())
    got = pool.get_many(["many/7", "many/none", "many/8"], errors="return")
    assert got[0] == b"7" * 8
    assert isinstance(got[1], tidemill.NotFound)
    assert got[1].path == "many/none"
    with pytest.raises(tidemill.NotFound):
        pool.get_many(["many/7", "many/none"])
    put = pool.put_many([("many/1", b"new"), ("many", b"")], errors="return")
    assert isinstance(put[1], tidemill.IsAFolder)
    assert pool.get("many/1") == b"new"
    pool.delete_many(items)
    assert pool.list("many/") == []


def test_renaming_copying_and_removing(pool: tidemill.Pool) -> None:
    data = random.Random(1).randbytes(9 << 20)
    pool.put("a/data", data)
    pool.copy("a/data", "b/c/copy")
    pool.rename("a/data", "d/moved")
    assert pool.get("b/c/copy") == data == pool.get("d/moved")
    assert "a/data" not in pool
    with pytest.raises(tidemill.NotFound):
        pool.rename("a/data", "x")
    with pytest.raises(tidemill.IsAFolder):
        pool.copy("b", "x")
    pool.make_folder("a/x/y")
    pool.make_folder("a/x/y")
    with pytest.raises(tidemill.Exists):
        pool.make_folder("a/x/y", exist_ok=False)
    with pytest.raises(tidemill.TidemillError, match="delete_tree"):
        pool.remove_folder("b")
    pool.remove_folder("a/x/y")
    pool.delete_tree("b")
    assert [entry.name for entry in pool.folder()] == ["a", "d"]


def test_several_threads_use_one_pool(pool: tidemill.Pool) -> None:
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(50):
                data = bytes([thread]) * (number * 1000)
                pool.put(f"threads/{thread}", data)
                assert pool.get(f"threads/{thread}") == data
        except BaseException as error:  # noqa: BLE001 - reported below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
