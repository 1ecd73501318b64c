"""Typical code of users, for the type checker only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import tidemill

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


async def use(pool: tidemill.Pool, array: NDArray[np.float64]) -> None:
    """The type of each expression is the asserted one."""
    assert_type(pool.put("key", array), str)
    assert_type(pool.put("key", array[0]), str)
    assert_type(pool.get_array("key"), NDArray[Any])
    assert_type(await pool.aget_array("key"), NDArray[Any])
    assert_type(pool.get("key"), tidemill.View)
    assert_type(pool.get("key")[0], int)
    assert_type(pool.get("key")[1:], memoryview)
    assert_type(pool.get_many(["key"]), list[tidemill.View])
    assert_type(pool.get_many(["key"], errors="return"), list[tidemill.View | tidemill.TidemillError])
    assert_type(pool.put_many({"key": b""}), list[str])
    assert_type(await pool.aget("key"), tidemill.View)
    assert_type(await pool.aput("key", b""), str)
    assert_type(pool.stat("key").size, int)
    assert_type(pool.list(), list[str])
    pool.get(5)  # type: ignore[arg-type]
    pool.put("key", "text")  # type: ignore[arg-type]
