"""What the host of a node has there: `pool pins`, and `pool shrink --force`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from conftest import mount_unsupported_reason
from test_elastic import managers, partitions
from test_pool import SECONDS_MAX, Home, home, mounted  # noqa: F401 - `home` is a fixture
from waiting import wait_for

# Opens files of the pool under a prefix, one of them in a directory of node 2, and locks the other;
# uses them again when it is asked to.
HOLDER = """
import fcntl, os, sys
prefix, folder = sys.argv[1:]
os.setxattr(folder, "user.tidemill.placement", b"at(2)")
direct = open(folder + "/direct", "w+b")
direct.write(b"d" * 500_000)
direct.flush()
striped = open(prefix + "/striped", "w+b")
striped.write(b"s" * 500_000)
striped.flush()
fcntl.lockf(striped, fcntl.LOCK_EX)
with open(folder + "/closed", "wb") as closed:
    closed.write(b"c" * 300_000)
with open(folder + "/tiny", "wb") as tiny:
    tiny.write(b"t")
print("ready", flush=True)
sys.stdin.readline()
striped.seek(0)
striped.write(b"after")
striped.flush()
direct.seek(0)
print(len(direct.read()), flush=True)
"""


def pins(at: Home, node: int) -> list[dict[str, object]]:
    """The pins of a node."""
    (shown,) = json.loads(at.ok("pool", "pins", "--json", "--node", str(node)))["nodes"]
    assert (shown["id"], shown["more"]) == (node, 0)
    return shown["pins"]


def holding(at: Home, node: int) -> list[str]:
    """The kinds of the pins because of which a node is needed."""
    return sorted(str(pin["kind"]) for pin in pins(at, node) if pin["holds"])


@contextmanager
def holder(at: Home, folder: str) -> Iterator[subprocess.Popen[str]]:
    """A program under the preload library that has files open until it is told to end."""
    command = [at.binary, "exec", "--", sys.executable, "-c", HOLDER, "/tidemill", f"/tidemill/{folder}"]
    process = subprocess.Popen(command, env=at.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def start(at: Home) -> str:
    """Starts a pool of two nodes; returns a directory whose files have their inodes at node 2."""
    at.ok("pool", "start", "--nodes", "2", "--memory", "128MiB", "--partitions", "64", "--max-nodes", "4", "--slots", "0")
    for number in range(100):
        at.ok("put", f"d{number}/first", "-", stdin=b"x")
        if json.loads(at.ok("locate", "--json", f"d{number}/first"))["inode"] == 2:
            return f"d{number}"
    raise RuntimeError("all are at node 1")


def test_pins_show_who_has_what_and_a_node_that_leaves_names_them_and_waits_for_their_end(home: Home) -> None:  # noqa: F811
    folder = start(home)
    assert "node 1 at " in home.ok("pool", "pins")
    assert home.ok("pool", "pins").count("its host has nothing there") == 2
    with holder(home, folder) as program:
        listed = pins(home, 2)
        (direct,) = [pin for pin in listed if pin["kind"] == "extent" and pin["in_use"]]
        assert (direct["bytes"], direct["holds"]) == (500_000, False), "it moves away or stays, but holds nothing yet"
        assert {"pid": program.pid, "program": "python3"} in direct["processes"] or direct["processes"][0]["pid"] == program.pid  # type: ignore[operator,index]
        opens = [pin for node in (1, 2) for pin in pins(home, node) if pin["kind"] == "open"]
        assert {process["pid"] for pin in opens for process in pin["processes"]} == {program.pid}  # type: ignore[attr-defined]
        locks = [pin for node in (1, 2) for pin in pins(home, node) if pin["kind"] == "lock"]
        assert [process["pid"] for pin in locks for process in pin["processes"]] == [program.pid]  # type: ignore[attr-defined]
        assert f"by process {program.pid} (" in home.ok("pool", "pins")
        shrinking = subprocess.Popen([home.binary, "pool", "shrink", "--node", "2"], env=home.environment, stderr=subprocess.PIPE, text=True)
        assert shrinking.stderr is not None
        waits = next(line for line in shrinking.stderr if "waits for its host" in line)
        assert f"by process {program.pid} (" in waits
        assert "`tidemill pool pins --node 2` lists all, `--force` ends them" in waits
        assert "extent" in holding(home, 2)
        assert "node 2 at " in home.ok("pool", "pins", "--node", "2")
        assert ", leaving:" in home.ok("pool", "pins", "--node", "2")
        assert shrinking.poll() is None
        out, errors = program.communicate("\n", timeout=SECONDS_MAX)
        assert (out, errors) == ("500000\n", "")
    # Large files that nobody has open follow their partitions, and the node leaves.
    _, said = shrinking.communicate(timeout=SECONDS_MAX)
    assert shrinking.returncode == 0, said
    assert partitions(home) == {1: 64}
    assert home.run("cat", f"{folder}/direct").stdout == b"d" * 500_000
    assert home.run("cat", f"{folder}/closed").stdout == b"c" * 300_000
    assert home.run("cat", f"{folder}/tiny").stdout == b"t"
    home.ok("pool", "stop")
    assert home.is_clean()


def test_force_ends_what_holds_a_node_says_what_is_lost_and_ends_no_program(home: Home) -> None:  # noqa: F811
    folder = start(home)
    with holder(home, folder) as program:
        done = home.run("pool", "shrink", "--node", "2", "--force", "--quiet")
        said = done.stderr.decode()
        assert done.returncode == 0, said
        assert "lost (488.3 KiB): inode " in said, "the open file alone"
        assert "find -inum NUMBER" in said
        assert partitions(home) == {1: 64}
        wait_for(lambda: len(home.node_processes()) == 1, "the node has ended")
        assert program.poll() is None
        out, _ = program.communicate("\n", timeout=SECONDS_MAX)
        assert (program.returncode, out) == (0, "500000\n"), "it goes on with the memory that it has, alone"
    assert home.run("cat", "striped").stdout == b"after" + b"s" * 499_995
    assert home.run("cat", f"{folder}/tiny").stdout == b"t"
    assert "node 2 has left the pool" in home.fails("cat", f"{folder}/direct", code=1)
    # What is lost can be seen and removed, and made again.
    assert "direct" in home.ok("ls", "-l", folder)
    home.ok("rm", f"{folder}/direct")
    assert home.run("cat", f"{folder}/closed").stdout == b"c" * 300_000
    home.ok("put", f"{folder}/closed", "-", stdin=b"again")
    assert home.run("cat", f"{folder}/closed").stdout == b"again"
    wait_for(lambda: all(not worker["backlog"] for node in home.status() for worker in node["workers"] if worker["name"] == "hosted"), "nothing is left to do")  # type: ignore[attr-defined]
    home.ok("pool", "stop")
    assert home.is_clean()


def test_a_mount_outlives_the_node_of_its_host_and_bound_files_are_named(home: Home) -> None:  # noqa: F811
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    start(home)
    with mounted(home, "--pool", home.runtime / "tidemill/pool") as folder:
        (folder / "before").write_bytes(b"b" * 200_000)
        mounts = [pin for node in (1, 2) for pin in pins(home, node) if pin["kind"] == "mount"]
        assert mounts
        assert not any(pin["holds"] for pin in mounts)
        assert "mount, by process " in home.ok("pool", "pins")
        with (folder / "open").open("w+b") as opened:
            opened.write(b"o" * 200_000)
            opened.flush()
            for node in (1, 2):
                home.ok("pool", "shrink", "--node", str(node), "--force")
                if node == 1:
                    home.ok("pool", "grow", "1", "--memory", "128MiB", "--slots", "0")
            os.lseek(opened.fileno(), 0, os.SEEK_SET)
            assert opened.read() == b"o" * 200_000
        assert (folder / "before").read_bytes() == b"b" * 200_000
        assert managers(home)["draining"] == []
    home.ok("pool", "stop")
    assert home.is_clean()
