"""Failures raise exceptions of the package with errno, path and hint; nothing hangs or crashes."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tidemill
from example_runs import ROOT

if TYPE_CHECKING:
    from python.conftest import Nodes

# The classes, and the built-in exceptions that they also are.
TREE = {
    tidemill.NotFound: FileNotFoundError,
    tidemill.Exists: FileExistsError,
    tidemill.IsAFolder: IsADirectoryError,
    tidemill.NotAFolder: NotADirectoryError,
    tidemill.Denied: PermissionError,
    tidemill.NoSpace: OSError,
    tidemill.VersionDiffers: OSError,
    tidemill.Invalid: ValueError,
    tidemill.Unavailable: ConnectionError,
    tidemill.PoolClosed: ValueError,
}


@pytest.mark.parametrize("kind", TREE)
def test_every_class_is_a_tidemill_error_and_what_it_is_in_python(kind: type[tidemill.TidemillError]) -> None:
    assert issubclass(kind, tidemill.TidemillError)
    assert issubclass(kind, TREE[kind])
    error = kind(5, "it failed", "a/b", "do that")
    assert (error.errno, error.strerror, error.path, error.hint) == (5, "it failed", "a/b", "do that")
    assert str(error) == "it failed; do that"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), again.errno, again.path, again.hint, str(again)) == (kind, 5, "a/b", "do that", str(error))


def test_every_refusal_of_the_protocol_has_an_errno_of_its_own_choice() -> None:
    source = (ROOT / "crates/wire/src/refusal.rs").read_text()
    variants = re.findall(r"^    ([A-Z]\w+)(?:\(\w+\)| \{|,)", source[source.index("pub enum Refusal {") : source.index("impl Refusal {")], re.MULTILINE)
    assert len(variants) > 25
    ours = (ROOT / "python/src/errors.rs").read_text()
    tables = ours[ours.index("fn exception_of") : ours.index("fn with_path")] + (ROOT / "crates/wire/src/errno.rs").read_text().partition("#[cfg(test)]")[0]
    # Io stands for errors of a storage engine, and is also the default for unknown refusals.
    assert [variant for variant in variants if not re.search(rf"Refusal::{variant}\b", tables)] == ["Io"]


@pytest.mark.parametrize(
    ("verb", "arguments", "kind", "number"),
    [
        ("get", ["nothing"], tidemill.NotFound, errno.ENOENT),
        ("get", ["no/where/at/all"], tidemill.NotFound, errno.ENOENT),
        ("stat", ["nothing"], tidemill.NotFound, errno.ENOENT),
        ("get", ["folder"], tidemill.IsAFolder, errno.EISDIR),
        ("put", ["folder", b""], tidemill.IsAFolder, errno.EISDIR),
        ("put", ["folder/file/below", b""], tidemill.NotAFolder, errno.ENOTDIR),
        ("put", ["", b""], tidemill.Invalid, errno.EINVAL),
        ("put", ["a//b", b""], tidemill.Invalid, errno.EINVAL),
        ("put", ["a/../b", b""], tidemill.Invalid, errno.EINVAL),
        ("put", ["a\0b", b""], tidemill.Invalid, errno.EINVAL),
        ("put", ["x" * 256, b""], tidemill.Invalid, errno.ENAMETOOLONG),
        ("remove_folder", ["folder"], tidemill.TidemillError, errno.ENOTEMPTY),
        ("open", ["folder"], tidemill.IsAFolder, errno.EISDIR),
        ("open", ["nothing"], tidemill.NotFound, errno.ENOENT),
        ("open", ["folder/file", "xb"], tidemill.Exists, errno.EEXIST),
    ],
)
def test_a_refusal_names_the_path_and_has_the_errno_of_a_file_system(
    pool: tidemill.Pool, verb: str, arguments: list[str], kind: type[tidemill.TidemillError], number: int
) -> None:
    pool.put("folder/file", b"x")
    with pytest.raises(kind) as raised:
        getattr(pool, verb)(*arguments)
    assert (type(raised.value), raised.value.errno, raised.value.path) == (kind, number, arguments[0])
    assert str(raised.value).startswith(f"`{raised.value.path}`: ")


@pytest.mark.parametrize("offset", [-1, 1 << 64])
def test_offsets_are_not_negative(pool: tidemill.Pool, offset: int) -> None:
    pool.put("data", b"x")
    with pytest.raises(tidemill.Invalid):
        pool.get("data", offset)


def test_a_full_pool_is_no_space_and_says_what_to_do() -> None:
    with tidemill.start("8MiB", space_wait=0.1) as pool:
        pool.put("half", np.ones(5 << 20, "u1"))
        with pytest.raises(tidemill.NoSpace, match="give the pool more memory, or delete") as full:
            pool.put("big", np.ones(7 << 20, "u1"))
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(tidemill.NoSpace, match="too small: it holds at most 8 MiB, and 16 MiB are wanted"):
            pool.put("big", np.ones(16 << 20, "u1"))
        pool.put("small", b"fits")


@pytest.mark.parametrize("memory", ["much", "-1GiB", "1EiB", -5])
def test_a_memory_that_makes_no_sense_is_invalid(memory: str | int) -> None:
    with pytest.raises(tidemill.Invalid):
        tidemill.start(memory)


CLOSED = [
    lambda pool: pool.get("data"),
    lambda pool: pool.put("data", b"x"),
    lambda pool: pool.delete("data"),
    lambda pool: pool.list(),
    lambda pool: pool.folder(),
    lambda pool: pool.stat("data"),
    lambda pool: pool.exists("data"),
    lambda pool: pool.locate("data"),
    lambda pool: pool.get_many(["data"]),
    lambda pool: pool.put_many({"data": b"x"}),
    lambda pool: pool.delete_many(["data"]),
    lambda pool: pool.open("data"),
    lambda pool: pool.make_folder("folder"),
    lambda pool: pool.delete_tree("data"),
    lambda pool: pool.rename("data", "other"),
    lambda pool: pool.copy("data", "other"),
    lambda pool: pool.nodes(),
]


def test_a_closed_pool_raises_whatever_is_asked_of_it(own_pool: tidemill.Pool) -> None:
    own_pool.put("closed", b"x")
    file = own_pool.open("closed", "rb", buffering=0)
    own_pool.close()
    own_pool.close()
    assert own_pool.closed
    for call in CLOSED:
        with pytest.raises(tidemill.PoolClosed, match="the pool was closed; connect again"):
            call(own_pool)
    with pytest.raises(tidemill.PoolClosed):
        file.read(1)
    file.close()
    assert "closed" in repr(own_pool)


def test_a_pool_file_that_is_not_there_or_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(tidemill.NotFound, match=r"there is no pool file .*pool start") as missing:
        tidemill.connect(tmp_path / "none")
    assert missing.value.errno == errno.ENOENT
    with pytest.raises(tidemill.NotFound):
        tidemill.connect()
    (tmp_path / "garbage").write_text("no json")
    with pytest.raises(tidemill.Invalid, match="is not a pool file") as none:
        tidemill.connect(tmp_path / "garbage")
    assert none.value.path == str(tmp_path / "garbage")
    with pytest.raises(tidemill.Denied, match="is not a regular file"):
        tidemill.connect(tmp_path)


def test_a_pool_file_of_somebody_else_is_denied(tmp_path: Path) -> None:
    (tmp_path / "pool").touch(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        with pytest.raises(tidemill.Denied, match=r"may not be read.*only its owner can use") as denied:
            tidemill.connect(tmp_path / "pool")
    finally:
        os.seteuid(user)
    assert denied.value.errno == errno.EACCES


def test_a_pool_is_found_by_the_environment(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_POOL", str(nodes.file))
    with tidemill.connect() as pool:
        assert pool.file == str(nodes.file)


def test_a_wrong_token_is_not_let_in(nodes: Nodes, tmp_path: Path) -> None:
    file = json.loads(nodes.file.read_text())
    (tmp_path / "pool").write_text(json.dumps(file | {"token": "0" * len(file["token"])}))
    with pytest.raises(tidemill.Denied, match="token is wrong") as denied:
        tidemill.connect(tmp_path / "pool")
    assert denied.value.errno == errno.EACCES


def test_a_pool_file_of_another_version_is_not_read(nodes: Nodes, tmp_path: Path) -> None:
    file = json.loads(nodes.file.read_text())
    (tmp_path / "pool").write_text(json.dumps(file | {"tidemill_pool": 99}))
    with pytest.raises(tidemill.TidemillError, match="version 99") as other:
        tidemill.connect(tmp_path / "pool")
    assert other.value.errno == errno.EPROTO


def test_a_dead_pool_is_unavailable_within_seconds(binary: Path, tmp_path: Path) -> None:
    command = [str(binary), "pool"]
    subprocess.run([*command, "start", "--memory", "64MiB"], check=True, capture_output=True)
    with tidemill.connect() as pool:
        pool.put("data", b"x")
        for node in json.loads((tmp_path / "run/tidemill/pool").read_text())["nodes"]:
            os.kill(node["pid"], signal.SIGKILL)
        with pytest.raises(tidemill.Unavailable) as raised:
            pool.get("data")
        assert "tidemill pool status" in str(raised.value)
        assert "tidemill pool status" in pool._repr_html_() or "does not answer" in pool._repr_html_()
    with pytest.raises(tidemill.Unavailable):
        tidemill.connect()


def test_ctrl_c_ends_a_call_that_waits() -> None:
    main = threading.main_thread().ident
    assert main is not None
    with tidemill.start("8MiB", space_wait=60) as pool:
        waits = threading.Thread(target=lambda: wait_for_waiting(pool, main))
        waits.start()
        pool.put("half", np.ones(4 << 20, "u1"))
        with pytest.raises(KeyboardInterrupt):
            pool.put("big", np.ones(7 << 20, "u1"))
        waits.join()
        pool.put("small", b"x")


def wait_for_waiting(pool: tidemill.Pool, main: int) -> None:
    """Sends SIGINT once the pool is full and a put waits for space."""
    while pool.nodes()[0].used < 6 << 20:
        pass
    signal.pthread_kill(main, signal.SIGINT)


FORKED = """
import multiprocessing, os, sys, threading, tidemill

def work(number):
    pool.put(f"of/{number}", b"%d" % number)
    return bytes(pool.get("forked")), os.getpid()

pool = tidemill.connect()
pool.put("forked", b"x")
view = pool.get("forked")
# Threads that are in the middle of calls while the process forks.
threads = [threading.Thread(target=lambda: [pool.get("forked") for _ in range(2000)]) for _ in range(4)]
for thread in threads:
    thread.start()
with multiprocessing.get_context("fork").Pool(3) as workers:
    seen = workers.map(work, range(30))
assert {bytes for bytes, _ in seen} == {b"x"} and os.getpid() not in {process for _, process in seen}
for thread in threads:
    thread.join()
assert [int(bytes(one)) for one in pool.get_many(f"of/{number}" for number in range(30))] == list(range(30))
assert pool.get("forked") == view == b"x"
pool.delete_tree("of")
"""

FORKED_INSIDE = """
import os, tidemill
pool = tidemill.start("64MiB")
pool.put("forked", b"x")
child = os.fork()
if child == 0:
    try:
        pool.get("forked")
    except tidemill.PoolClosed as error:
        os._exit(7 if "forked from" in str(error) and pool.closed else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert pool.get("forked") == b"x"
"""


def test_a_forked_child_goes_on_with_a_connection_of_its_own(nodes: Nodes) -> None:
    environment = os.environ | {"TIDEMILL_POOL": str(nodes.file)}
    subprocess.run([sys.executable, "-c", FORKED], env=environment, timeout=60, check=True)


def test_a_forked_child_is_told_that_a_pool_inside_is_its_parents() -> None:
    subprocess.run([sys.executable, "-c", FORKED_INSIDE], timeout=60, check=True)
