"""Streams, asynchronous I/O, sockets and tree walks with the preload library: as on this host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from preloaded import PREFIX, Pool

HERE = Path(__file__).parent
# nftw(3): FTW_PHYS, FTW_MOUNT, FTW_CHDIR, FTW_DEPTH.
PHYSICAL, ONE_DEVICE, ENTERS, DEPTH = 1, 2, 4, 8
# Processes of multiprocessing communicate by a socket in the directory for temporary files.
MANAGER = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        shared = manager.dict(said="by the manager")
        process = multiprocessing.Process(target=shared.update, kwargs={"more": "by another"})
        process.start()
        process.join()
        print(sorted(shared.values()))
"""
# Names of both ends of a connection, in one process and in another, and of the sender.
NAMES = """
import os, socket
listening = socket.socket(socket.AF_UNIX)
listening.bind("./l.sock")
listening.listen()
print(listening.getsockname())
if os.fork() == 0:
    with socket.socket(socket.AF_UNIX) as calling:
        calling.bind(os.path.abspath("c.sock"))
        calling.connect("l.sock")
        calling.sendall(calling.getpeername().encode())
    os._exit(0)
connection, address = listening.accept()
print(os.path.relpath(address), connection.getpeername() == address, connection.recv(100).decode())
os.wait()
one, other, unbound = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3))
one.bind("one")
other.bind("other")
one.sendto(b"sent", "other")
print(other.recvfrom(10))
one.sendmsg([b"a ", b"message"], [], 0, "./other")
print(other.recvmsg(10)[0::3])
unbound.sendto(b"by nobody", os.path.abspath("other"))
print(other.recvfrom(10))
with socket.socketpair()[0] as pair:
    print(repr(pair.getsockname()))
for name in ("none", "file"):
    open("file", "w").close()
    try:
        one.sendto(b"lost", name)
    except OSError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def pool(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node."""
    with preloaded.pool(binary, tmp_path_factory.mktemp("streams")) as pool:
        yield pool


def compiled(name: str, folder: Path) -> Path:
    """Compiles a C program of tests/preload."""
    program = folder / name
    subprocess.run(["cc", "-Wall", "-Werror", "-o", str(program), str(HERE / f"preload/{name}.c")], check=True)
    return program


def host_and_pool_dirs(pool: Pool, tmp_path: Path) -> tuple[Path, Path]:
    """An empty directory of this host, and one of the pool."""
    here = tmp_path / "here"
    here.mkdir()
    there = Path(PREFIX, tmp_path.name)
    pool.ok("mkdir", there)
    return here, there


@pytest.mark.parametrize("what", ["reopened", "standard", "opened", "kept", "limited", "printed"])
def test_streams_of_files_that_are_not_local_do_as_on_this_host(pool: Pool, tmp_path: Path, what: str) -> None:
    program, other = compiled("streams", tmp_path), tmp_path / "other"
    other.write_text("of this host\n")
    here, there = host_and_pool_dirs(pool, tmp_path)
    wanted = subprocess.run([str(program), what, str(here), str(other)], capture_output=True, text=True, check=True)
    found = pool.run(program, what, there, other)
    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines() == wanted.stderr.splitlines()


def test_asynchronous_operations_end_as_on_this_host(pool: Pool, tmp_path: Path, tmpfs: Path) -> None:
    program = compiled("asynchronous", tmp_path)
    _, there = host_and_pool_dirs(pool, tmp_path)
    wanted = subprocess.run([str(program), str(tmpfs)], capture_output=True, text=True, check=True, timeout=preloaded.SECONDS_MAX)
    assert pool.ok(program, there) == wanted.stdout, "of a local file, which the C library does"
    pool.ok("sh", "-euc", f"rm {there}/f; setfattr -n user.tidemill.placement -v striped {there}")
    assert pool.ok(program, there) == wanted.stdout, "of one whose bytes are asked for"


def test_tools_that_reopen_their_standard_streams_read_and_write_files_that_are_not_local(pool: Pool, tmp_path: Path) -> None:
    _, there = host_and_pool_dirs(pool, tmp_path)
    said = pool.ok(
        "bash",
        "-euc",
        f"cd {there}; printf 'a\\na\\nb\\n' > s; chmod u+s s; install -m 4755 /dev/null out; uniq s out; cat out; shuf s | sort; uniq < s > out; cat out",
    )
    assert said.split() == ["a", "b", "a", "a", "b", "a", "b"]


def test_a_socket_is_told_of_by_the_name_that_was_bound(pool: Pool, tmp_path: Path) -> None:
    here, there = host_and_pool_dirs(pool, tmp_path)
    wanted = subprocess.run([sys.executable, "-c", NAMES], cwd=here, capture_output=True, text=True, check=True)
    found = pool.ok("sh", "-c", 'cd "$1" && exec "$2" -c "$3"', "sh", there, sys.executable, NAMES)
    assert found == wanted.stdout


def test_multiprocessing_meets_where_its_temporary_folder_is_in_the_pool(pool: Pool, tmp_path: Path) -> None:
    _, there = host_and_pool_dirs(pool, tmp_path)
    script = tmp_path / "manager.py"
    script.write_text(MANAGER)
    done = pool.run(sys.executable, script, env={"TMPDIR": str(there)})
    assert done.stdout == "['by another', 'by the manager']\n", done.stderr


@pytest.mark.parametrize("flags", [0, PHYSICAL, ENTERS, ENTERS | PHYSICAL | DEPTH, ENTERS | DEPTH, ONE_DEVICE | DEPTH])
@pytest.mark.parametrize("start", [".", "tree", "tree/in/deep"])
def test_a_walk_tells_each_folder_once_and_is_where_it_was_asked_to_be(pool: Pool, tmp_path: Path, flags: int, start: str) -> None:
    program = compiled("walk", tmp_path)
    here, there = host_and_pool_dirs(pool, tmp_path)
    make = "cd $1; mkdir -p tree/in/deep; touch tree/in/deep/f; ln -s .. tree/in/loop; ln -s ../../../tree tree/in/deep/round; ln -s none tree/dangling"
    subprocess.run(["sh", "-euc", make, "sh", str(here)], check=True)
    pool.ok("sh", "-euc", make, "sh", there)
    wanted = subprocess.run([str(program), str(here), start, str(flags)], capture_output=True, text=True, check=True)
    found = pool.ok(program, there, start, str(flags))
    assert sorted(found.splitlines()) == sorted(wanted.stdout.splitlines())
