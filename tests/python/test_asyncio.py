"""The asyncio methods: the loop is not blocked, and a cancelled call leaves nothing behind."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import tidemill


def test_the_same_verbs_give_the_same(pool: tidemill.Pool) -> None:
    async def run_all() -> None:
        version = await pool.aput("a/data", b"x" * 5000)
        view = await pool.aget("a/data", 10, 20)
        assert (view, view.version) == (b"x" * 10, version)
        assert await pool.alist("a/") == ["a/data"]
        assert (await pool.astat("a/data")).version == version
        assert (await pool.alocate("a/data")).exists
        assert [entry.name for entry in await pool.afolder("a")] == ["data"]
        await pool.aput_many({"a/1": b"1", "a/2": b"2"})
        assert await pool.aget_many(["a/2", "a/1"]) == [b"2", b"1"]
        got = await pool.aget_many(["a/none"], errors="return")
        assert isinstance(got[0], tidemill.NotFound)
        await pool.adelete("a/data")
        await pool.adelete("a/data", missing_ok=True)
        with pytest.raises(tidemill.NotFound):
            await pool.aget("a/data")

    asyncio.run(run_all())


def test_many_at_once_are_told_of_one_by_one_and_lie_where_they_are_asked_to(pool: tidemill.Pool) -> None:
    async def run_many() -> None:
        await pool.aput("a/file", b"1")
        put = await pool.aput_many({"a/file/below": b"2", "a/other": b"3" * 5000}, errors="return", placement="striped", stripe_size="64KiB")
        assert isinstance(put[0], tidemill.NotAFolder)
        assert (await pool.astat("a/other")).version == put[1]
        with pytest.raises(tidemill.Invalid):
            await pool.aput_many({"a/x": b"4"}, placement="anywhere")
        await pool.adelete_many(["a/none", "a/other"], missing_ok=True)
        assert await pool.alist("a/") == ["a/file"]
        with pytest.raises(tidemill.NotFound):
            await pool.adelete_many(["a/none", "a/file"])
        assert await pool.alist("a/") == [], "all were tried"

    asyncio.run(run_many())


def test_files_are_read_and_written_while_the_loop_goes_on(pool: tidemill.Pool) -> None:
    async def files() -> None:
        async with await pool.aopen("a/file", "wb") as file:
            assert await file.write(b"hello, ") == 7
            assert await file.write(b"pool") == 4
            assert (file.tell(), await file.size()) == (11, 11)
        async with await pool.aopen("a/file", "ab") as file:
            await file.write(b"!")
            assert file.tell() == 12
        async with await pool.aopen("a/file", "r+b") as file:
            assert await file.read(5) == b"hello"
            assert await file.read() == b", pool!"
            assert await file.read() == b""
            file.seek(7)
            assert await file.read(4) == b"pool"
            await file.pwrite(b"H", 0)
            await asyncio.gather(*(file.pwrite(bytes([65 + at]), at) for at in range(7, 11)))
            assert await file.truncate(11) == 11
            assert await file.pread(100, 0) == b"Hello, HIJK"
        await file.close()
        with pytest.raises(ValueError, match="closed"):
            await file.pread(1, 0)
        with pytest.raises(ValueError, match="add b"):
            await pool.aopen("a/file", "r")
        with pytest.raises(tidemill.NotFound):
            await pool.aopen("a/none")

    asyncio.run(files())


def test_a_thousand_calls_at_once(pool: tidemill.Pool) -> None:
    async def run_many() -> None:
        await asyncio.gather(*(pool.aput(f"many/{number}", np.full(number * 10, number % 256, "u1")) for number in range(1000)))
        views = await asyncio.gather(*(pool.aget(f"many/{number}") for number in range(1000)))
        assert [len(view) for view in views] == [number * 10 for number in range(1000)]
        assert all((view.numpy() == number % 256).all() for number, view in enumerate(views))

    asyncio.run(run_many())
    # A new loop works after the first one was closed.
    asyncio.run(pool.aget("many/3"))  # type: ignore[arg-type]


def test_the_loop_goes_on_while_a_call_waits_and_a_cancelled_one_is_not_done() -> None:
    async def wait_for_space() -> None:
        with tidemill.start("8MiB", space_wait=60) as pool:
            await pool.aput("first", np.ones(4 << 20, "u1"))
            waiting = asyncio.create_task(pool.aput("second", np.ones(6 << 20, "u1")))
            # Other calls complete while it waits.
            for _ in range(100):
                assert (await pool.aget("first"))[0] == 1
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not pool.exists("second")
            again = asyncio.create_task(pool.aput("third", np.ones(6 << 20, "u1")))
            await asyncio.sleep(0)
            await pool.adelete("first")
            await again
            assert pool.exists("third")

    asyncio.run(wait_for_space())


def test_a_closed_pool_raises(own_pool: tidemill.Pool) -> None:
    own_pool.close()
    with pytest.raises(tidemill.PoolClosed):
        asyncio.run(own_pool.aget("data"))  # type: ignore[arg-type]
