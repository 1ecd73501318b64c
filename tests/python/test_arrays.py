"""NumPy arrays as objects: dtype and shape are kept, and unsupported arrays are rejected."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from typing import Any

import numpy as np
import pytest
import tidemill

RECORDS = np.dtype([("name", "S3"), ("at", "<i4", (2,)), ("more", [("x", ">f8"), ("y", "?")])])
ARRAYS: dict[str, Any] = {
    "ordinary": np.arange(12.0).reshape(3, 4),
    "long": np.arange(3 << 18, dtype="u4").reshape(3, -1),
    "of no dimension": np.array(7, "i2"),
    "a scalar": np.float32(1.5),
    "a moment as a scalar": np.datetime64("2024-05-06T07:08", "m"),
    "a text as a scalar": np.str_("é"),
    "in Fortran's order": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "with strides": np.arange(100).reshape(10, 10)[::3, ::-2],
    "all one element": np.broadcast_to(np.int8(3), (2, 5)),
    "of the other byte order": np.arange(5, dtype=">u8" if sys.byteorder == "little" else "<u8"),
    "records": np.array([(b"abc", (1, 2), (3.5, True)), (b"d", (4, 5), (6.5, False))], RECORDS),
    "aligned records": np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "some fields": np.ones(4, [("a", "i4"), ("b", "f8"), ("c", "i2")])[["a", "c"]],
    "with a title": np.ones(2, [(("its title", "a"), "i4")]),
    "moments": np.array(["2024-01-01", "NaT"], "M8[ns]"),
    "times": np.arange(3, dtype="m8[s]"),
    "complex": np.array([1 + 2j], "c8"),
    "halves": np.array([0.5], "f2"),
    "texts": np.array(["a", "bcd"]),
    "nothing": np.zeros((3, 0, 2), "f4"),
    "nothing at all": np.array([], "M8[D]"),
    "elements of no length": np.zeros((2,), "V0"),
}


def same(one: Any, other: Any) -> None:  # noqa: ANN401
    other = np.asarray(other)
    assert (type(one), one.dtype, one.shape) == (np.ndarray, other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()
    assert not one.flags.writeable


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_is_got_with_the_dtype_and_shape_that_it_was_put_with(pool: tidemill.Pool, array: Any) -> None:  # noqa: ANN401
    pool.put("array", array)
    same(pool.get_array("array"), array)
    assert bytes(pool.get("array")) == np.asarray(array).tobytes(), "its bytes are those in C order"
    pool.copy("array", "copies/array")
    pool.rename("copies/array", "moved")
    same(pool.get_array("moved"), array)


def test_arrays_are_put_and_got_by_all_forms_of_put(pool: tidemill.Pool) -> None:
    arrays = {f"many/{number}": array for number, array in enumerate(ARRAYS.values())}
    pool.put_many(arrays)
    for key, array in arrays.items():
        same(pool.get_array(key), array)

    async def run_async() -> None:
        await pool.aput("one", ARRAYS["records"])
        await pool.aput_many(list(arrays.items()))
        same(await pool.aget_array("one"), ARRAYS["records"])
        for key, array in arrays.items():
            same(await pool.aget_array(key), array)

    asyncio.run(run_async())


POINTERS: list[Any] = [
    np.array([{}, None]),
    np.array(1, object),
    np.zeros(2, [("a", "i4"), ("b", "O")]),
    np.zeros(2, [("a", [("b", "O", (2,))])]),
    memoryview(np.array(["x", None])),
    memoryview(np.zeros(2, [("a", "i4"), ("b", "O")])),
    memoryview((ctypes.py_object * 2)("x", "y")),
    memoryview((ctypes.c_char_p * 2)(b"x", b"y")),
    np.ma.array([1, 2], mask=[True, False]),
]


@pytest.mark.parametrize("data", POINTERS, ids=lambda data: type(data).__name__)
def test_pointers_and_masks_are_refused_and_nothing_is_put(pool: tidemill.Pool, data: Any) -> None:  # noqa: ANN401
    async def run_async() -> None:
        await pool.aput("key", data)

    for put in (lambda: pool.put("key", data), lambda: pool.put_many({"other": b"x", "key": data}), lambda: asyncio.run(run_async())):
        with pytest.raises(TypeError):
            put()
    assert pool.list() == []
    if not isinstance(data, np.ndarray | np.ma.MaskedArray):
        with pool.open("file", "wb", buffering=0) as file, pytest.raises(TypeError):
            file.write(data)  # type: ignore[attr-defined]


def test_names_of_fields_are_no_pointers(pool: tidemill.Pool) -> None:
    records = np.ones(3, [("O", "i4"), ("P", "f8")])
    pool.put("plain", memoryview(records))
    assert bytes(pool.get("plain")) == records.tobytes()


def test_bytes_are_no_array_and_a_file_that_was_changed_is_refused(pool: tidemill.Pool) -> None:
    pool.put("key", np.arange(3))
    pool.put("key", b"plain")
    with pytest.raises(tidemill.Invalid, match="not put as an array"):
        pool.get_array("key")
    with pytest.raises(tidemill.NotFound):
        pool.get_array("none")
    pool.put("key", np.arange(3))
    with pool.open("key", "ab") as file:
        file.write(b"more")
    with pytest.raises(tidemill.Invalid, match="28 bytes"):
        pool.get_array("key")


def test_whoever_gets_an_array_while_it_is_put_again_gets_one_that_was_put(pool: tidemill.Pool) -> None:
    shapes = [(10,), (2, 3), (7, 1, 2), (300, 200)]
    arrays = [np.full(shape, number, f"<i{1 << number}") for number, shape in enumerate(shapes)]
    pool.put("key", arrays[0])
    child = os.fork() if pool.file else None
    if child == 0:
        for turn in range(200):
            pool.put("key", arrays[turn % len(arrays)])
        os._exit(0)
    for turn in range(200):
        if child is None:
            pool.put("key", arrays[turn % len(arrays)])
        got = pool.get_array("key")
        same(got, arrays[shapes.index(got.shape)])
    if child is not None:
        assert os.waitpid(child, 0)[1] == 0
