"""Late access: after a view was released, after a pool was closed, in a forked child.

Only the tests that expect a crash have one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import tidemill

if TYPE_CHECKING:
    from python.conftest import Nodes


def run(program: str, nodes: Nodes, **environment: str) -> int:
    """Exit code of a Python program."""
    told = os.environ | {"TIDEMILL_POOL": str(nodes.file)} | environment
    return subprocess.run([sys.executable, "-c", program], env=told, timeout=60, check=False).returncode


# The first put and get go over the connection; after that the node exports its memory.
VIEWS = """
import ctypes, multiprocessing, os, tidemill
pool = tidemill.connect()
for key in ("late/first", "late/short", "late/long"):
    pool.put(key, key.encode() * ((9 << 20) // len(key) if key == "late/long" else 50_000))
    pool.get(key)
short, long = pool.get("late/short"), pool.get("late/long")
assert not short.copied and not long.copied
"""

CHILDREN = """
def look(key):
    view = {"late/short": short, "late/long": long}[key]
    is_right = view.tobytes() == key.encode() * (len(view) // len(key)) and pool.get(key) == view
    return is_right, os.getpid()

child = os.fork()
if child == 0:
    os._exit(0 if look("late/short")[0] and look("late/long")[0] else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
# What the children let go, and their ends, take nothing from their parent.
with multiprocessing.get_context("fork").Pool(2) as workers:
    seen = workers.map(look, ["late/short", "late/long"] * 8)
assert all(is_right for is_right, _ in seen) and os.getpid() not in {process for _, process in seen}
child = os.fork()
if child == 0:
    del short, long
    pool.get("late/short")
    pool.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
pool.put("late/short", bytes(500_000))
pool.put("late/long", bytes(9 << 20))
pool.put("late/more", bytes(9 << 20))
assert short.tobytes() == b"late/short" * 50_000 and long.tobytes()[-9:] == b"late/long"
"""

LATE = """
at = short.numpy().__array_interface__["data"][0]
assert ctypes.string_at(at, 10) == b"late/short"
kept = short.numpy()
del short
pool.get("late/first")
assert ctypes.string_at(at, 10) == b"late/short", "an array keeps it"
del kept
pool.get("late/first")
ctypes.string_at(at, 10)
"""


@pytest.mark.parametrize("guard", ["0", "1"])
def test_a_child_may_look_at_its_parents_views_and_takes_nothing_from_it(nodes: Nodes, guard: str) -> None:
    assert run(VIEWS + CHILDREN, nodes, TIDEMILL_GUARD=guard) == 0


def test_guarded_a_look_at_what_was_let_go_ends_the_process(nodes: Nodes) -> None:
    assert run(VIEWS + LATE, nodes, TIDEMILL_GUARD="0") == 0
    assert run(VIEWS + LATE, nodes, TIDEMILL_GUARD="1") == -signal.SIGSEGV


def test_what_is_not_a_view_raises_once_its_pool_is_closed(own_pool: tidemill.Pool) -> None:
    own_pool.put("late/data", b"x" * 100_000)
    file, fs, upload = own_pool.open("late/data", "r+b", buffering=0), own_pool.fs, own_pool._native.upload("late/new")
    view, waiting = own_pool.get("late/data"), asyncio.run(own_pool.aopen("late/data"))  # type: ignore[arg-type, var-annotated]
    own_pool.delete_tree("late")
    own_pool.close()
    looks = [
        lambda: own_pool.get("late/data"),
        lambda: file.read(10),
        lambda: file.write(b"x"),
        lambda: file.seek(0, os.SEEK_END),
        lambda: fs.ls(""),
        lambda: upload.write(b"x"),
        upload.finish,
        lambda: asyncio.run(waiting.read(10)),
    ]
    for look in looks:
        with pytest.raises(tidemill.PoolClosed):
            look()
    file.close()
    assert view == b"x" * 100_000
