"""Views show the pool's memory itself, and their bytes do not change."""

from __future__ import annotations

import gc
import pickle
import random

import numpy as np
import pytest
import tidemill
from waiting import wait_for


def address(view: tidemill.View) -> int:
    """The address of a view's bytes."""
    return view.numpy().__array_interface__["data"][0]


def test_a_view_is_the_pools_memory_and_not_a_copy(pool: tidemill.Pool) -> None:
    # Eight keys, so that names and bytes are on different nodes.
    for number in range(8):
        pool.put(f"{number}/data", bytes(1 << 20))
        # The first read of some memory of a node goes over the connection; then the node exports
        # that memory.
        pool.get(f"{number}/data")
        one, other = pool.get(f"{number}/data"), pool.get(f"{number}/data")
        assert not one.copied
        assert address(one) == address(other)
        assert address(one) == np.frombuffer(memoryview(one), "u1").__array_interface__["data"][0]


@pytest.mark.parametrize("tail", [0, 1, 5000, 100_000])
def test_a_long_view_is_the_pools_memory_in_one_piece(pool: tidemill.Pool, tail: int) -> None:
    data = random.Random(tail).randbytes((9 << 20) + tail)
    # The first puts and gets go over the connection; soon the node has exported its memory.
    pool.put("first", data)
    pool.put("second", data)
    wait_for(lambda: not pool.get("second").copied, "the node's memory is mapped")
    view = pool.get("second")
    assert not view.copied
    assert view == data
    assert pool.get("second", 4096, len(data) - 1) == data[4096:-1]
    # Ranges with various starts and ends.
    for start, stop in [(1, len(data)), (5000, len(data) - 1), ((1 << 20) - 1, 8 << 20), (4096, (4 << 20) + 1)]:
        part = pool.get("second", start, stop)
        assert part == data[start:stop]
        assert not part.copied
    with pool.open("second", "rb", buffering=0) as file:
        part = file.pread(6 << 20, 12_345)
        assert part == data[12_345 : 12_345 + (6 << 20)]
        assert not part.copied
    array = view.numpy()
    pool.put("second", bytes(len(data)))
    pool.put("third", bytes(len(data)))
    del view
    assert array.tobytes() == data


def test_a_view_is_bytes_to_whoever_asks(pool: tidemill.Pool) -> None:
    pool.put("data", b"hello, pool")
    view = pool.get("data")
    assert (len(view), view.nbytes, bytes(view), view.tobytes()) == (11, 11, b"hello, pool", b"hello, pool")
    assert str(view, "utf-8") == "hello, pool"
    assert view[0] == ord("h")
    assert view[7:] == b"pool"
    assert view == b"hello, pool"
    assert view != b"hello"
    assert b"".join([view, view[:1]]) == b"hello, poolh"
    assert not tidemill.View.__hash__
    assert pickle.loads(pickle.dumps(view)) == b"hello, pool"  # noqa: S301
    assert repr(view) == f"<tidemill.View: 11 bytes of version {view.version}>"


def test_arrays_have_any_dtype_and_shape_and_cannot_be_written_to(pool: tidemill.Pool) -> None:
    data = np.arange(12, dtype="f4").reshape(3, 4)
    pool.put("data", data)
    view = pool.get("data")
    array = view.numpy("f4", (3, 4))
    assert (array == data).all()
    assert view.numpy("f4").shape == (12,)
    assert view.numpy().dtype == np.uint8
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1
    with pytest.raises((TypeError, BufferError)):
        memoryview(view)[0] = 1
    with pytest.raises(ValueError, match="reshape"):
        view.numpy("f4", (5, 5))


@pytest.mark.parametrize("length", [100, 300_000, 1 << 20])
def test_what_an_array_shows_outlives_its_object_its_view_and_its_pool(own_pool: tidemill.Pool, length: int) -> None:
    own_pool.put("lives/data", np.full(length, 7, "u1"))
    array = own_pool.get("lives/data").numpy()
    own_pool.delete("lives/data")
    # Overwrite the memory that is free.
    for number in range(20):
        own_pool.put(f"lives/{number % 3}", np.full(length, 9, "u1"))
    own_pool.delete_tree("lives")
    own_pool.close()
    gc.collect()
    assert (array == 7).all()


def test_what_nobody_looks_at_any_more_is_given_back() -> None:
    with tidemill.start("16MiB", space_wait=30) as pool:
        for _ in range(20):
            pool.put("data", np.ones(4 << 20, "u1"))
            view = pool.get("data")
            assert view.numpy()[-1] == 1
            del view
        kept = [pool.get("data")]
        pool.delete("data")
        pool.put("more", bytes(4 << 20))
        assert kept[0][0] == 1
