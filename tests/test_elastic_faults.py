"""Pools that grow and shrink while nodes die, stop, or come back with old knowledge."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from test_elastic import managers, partitions, put
from test_pool import SECONDS_MAX, Home, home  # noqa: F401 - `home` is a fixture
from waiting import wait_for

START = ["pool", "start", "--memory", "128MiB", "--partitions", "64", "--max-nodes", "8", "--slots", "0", "--nodes"]


def pid_of(at: Home, node: int) -> int:
    """Process id of a node of the pool file."""
    listed = json.loads((at.runtime / "tidemill/pool").read_text())["nodes"]
    return next(int(entry["pid"]) for entry in listed if entry["id"] == node)


def put_files(at: Home, count: int, length: int) -> dict[str, bytes]:
    """Puts files in directories of their own, whose inodes are at several nodes."""
    return {f"d{number}/f": put(at, f"d{number}/f", length) for number in range(count)}


def nodes_of(at: Home, files: dict[str, bytes]) -> dict[str, set[int]]:
    """The nodes that have a file, its inode and its bytes; without files that cannot be found."""
    lines = at.run("locate", "--json", *files).stdout.decode().splitlines()
    located = [json.loads(line) for line in lines]
    return {found["key"]: {found["inode"]} | {share["node"] for share in found["nodes"]} for found in located}


def shares(at: Home) -> dict[int, int]:
    """The partitions of each node, as the managers know them."""
    top = json.loads(at.ok("pool", "top", "--once", "--json"))
    return {node["id"]: node["partitions"] for node in top["nodes"]}


def check(at: Home, files: dict[str, bytes]) -> None:
    """All files have their bytes. One command reads them: each waits a while for a dead node of its host."""
    assert at.run("cat", *files).stdout == b"".join(files.values())


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process is stopped meanwhile, unless it has been killed."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


class Growing:
    """`pool grow 1`, whose new node is stopped as soon as the pool file names it."""

    def __init__(self, at: Home, node: int) -> None:
        self.home = at
        command = [at.binary, "pool", "grow", "1", "--memory", "128MiB", "--slots", "0"]
        self.process = subprocess.Popen(command, env=at.environment, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(at.pids()) == node, "it joins")
        self.pid = pid_of(at, node)

    def stop_in_a_move(self) -> None:
        """Stops the new node, and waits until partitions are on their way to it."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_for(lambda: bool(managers(self.home)["moves"]), "partitions move")

    def end(self) -> tuple[int, str]:
        """Waits for its end; returns the exit code, and what it has said."""
        said = self.process.communicate(timeout=SECONDS_MAX)[1]
        return self.process.returncode, said


def test_a_target_that_dies_in_a_move_leaves_the_partitions_where_they_were(home: Home) -> None:  # noqa: F811
    home.ok(*START, "1")
    # So many bytes that moves are not done before the new node is stopped.
    files = put_files(home, 6, 18_000_000)
    growing = Growing(home, 2)
    growing.stop_in_a_move()
    os.kill(growing.pid, signal.SIGKILL)
    code, said = growing.end()
    assert code == 1, said
    assert "node 2 has joined and does not answer" in said
    assert "pool shrink --node 2 --force" in said
    assert managers(home)["moves"] == []
    assert "stays at node 1" in home.ok("pool", "events")
    check(home, files)
    assert "left the pool" in home.run("pool", "shrink", "--node", "2", "--force").stderr.decode()
    assert partitions(home) == {1: 64}
    home.ok("pool", "grow", "1", "--memory", "128MiB", "--slots", "0")
    assert partitions(home) == {1: 32, 3: 32}
    check(home, files)
    home.ok("pool", "stop")
    assert home.node_processes() == []


def test_a_source_that_dies_in_a_move_takes_only_what_it_held(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--memory", "1GiB", "--partitions", "64", "--max-nodes", "8", "--slots", "0", "--nodes", "4")
    wait_for(lambda: len(list(managers(home)["members"])) == 3, "three managers")  # type: ignore[call-overload]
    files = put_files(home, 12, 500_000)
    # So many bytes that its moves are not done before it dies.
    large = random.Random(4).randbytes(60_000_000)
    for number in range(10):
        home.ok("put", "--placement", "at(4)", f"large{number}", "-", stdin=large)
    shrinking = subprocess.Popen([home.binary, "pool", "shrink", "--node", "4"], env=home.environment, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: managers(home)["draining"] == [4], "it is drained")
    os.kill(pid_of(home, 4), signal.SIGKILL)
    _, said = shrinking.communicate(timeout=SECONDS_MAX)
    assert shrinking.returncode == 2, said
    assert "node 4 does not answer any more, so the " in said
    wait_for(lambda: managers(home)["moves"] == [], "the moves from it are given up")
    left = shares(home)[4]
    assert 0 < left <= 16, "nobody begins its partitions anew"
    whole = [name for name, nodes in nodes_of(home, files).items() if 4 not in nodes]
    assert whole
    check(home, {name: files[name] for name in whole})
    for name in sorted(set(files) - set(whole))[:1]:
        assert "node 4" in home.fails("get", name, "-", code=1)
    assert "node 4 does not answer, so what it holds cannot move" in home.fails("pool", "shrink", "--node", "4")
    assert home.run("pool", "status").returncode == 1
    home.run("pool", "stop")


def test_a_node_that_is_stopped_keeps_what_it_holds_and_learns_what_has_changed(home: Home) -> None:  # noqa: F811
    home.ok(*START, "3")
    wait_for(lambda: len(list(managers(home)["members"])) == 3, "three managers")  # type: ignore[call-overload]
    files = put_files(home, 12, 500_000)
    leader = managers(home)["leader"]
    assert leader == 1
    there = next(name for name, nodes in nodes_of(home, files).items() if 1 in nodes)
    with stopped(pid_of(home, 1)):
        # The leader: the others choose another one, and go on with a map that it does not know.
        wait_for(lambda: managers(home)["leader"] not in (None, leader), "another leader")
        wait_for(lambda: managers(home)["silent"] == [1], "it is seen to be silent")
        assert "node 1 does not answer, so what it holds cannot move" in home.fails("pool", "shrink", "--node", "1")
        grown = home.run("pool", "grow", "1", "--memory", "128MiB", "--slots", "0")
        assert (grown.returncode, b"node 1 does not answer: what it holds stays there" in grown.stderr) == (0, True), grown.stderr
        known = shares(home)
        assert known[1] == 22, "its partitions stay, and are begun nowhere else"
        assert known[4] > 0
        waiting = subprocess.Popen([home.binary, "get", there, "-"], env=home.environment, stdout=subprocess.PIPE)
        down = [node["id"] for node in home.status() if node["state"] == "down"]
        assert down == [1]
        assert waiting.poll() is None, "what is there is unavailable"
    out, _ = waiting.communicate(timeout=SECONDS_MAX)
    assert out == files[there], "and is whole when it goes on"
    # It learns the new map, follows the new leader, and gives what is too much.
    wait_for(lambda: partitions(home) == {1: 16, 2: 16, 3: 16, 4: 16}, "each node has its share, and says so")
    assert managers(home)["silent"] == []
    check(home, files)
    home.ok("pool", "stop")
    assert home.is_clean()


def test_what_no_pool_can_be_is_refused_with_what_to_do(home: Home) -> None:  # noqa: F811
    said = home.fails("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "2", "--max-nodes", "3")
    assert "a pool of 2 partitions cannot have 3 nodes: each holds at least one" in said
    assert "--partitions" in said
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "2", "--max-nodes", "2", "--slots", "0")
    data = random.Random(1).randbytes(100_000)
    home.ok("put", "kept", "-", stdin=data)
    said = home.fails("pool", "grow", "1")
    assert "2 nodes and may have 2: 1 more are too many" in said
    assert "--max-nodes" in said
    assert "has no node 9; it has 1, 2" in home.fails("pool", "pins", "--node", "9")
    home.ok("pool", "shrink", "1")
    last = home.fails("pool", "shrink", "--node", "1")
    assert "one must stay" in last
    assert "pool stop" in last
    for words in (["grow"], ["grow", "0"], ["shrink"], ["shrink", "0"], ["shrink", "-1"], ["grow", "many"], ["shrink", "1", "--node", "1"]):
        assert "error: " in home.fails("pool", *words), words
    assert home.run("get", "kept", "-").stdout == data
    assert partitions(home) == {1: 2}
    home.ok("pool", "stop")
    assert home.is_clean()
    for words in (["grow", "1"], ["shrink", "1"], ["pins"], ["top", "--once"], ["events"]):
        assert "there is no pool file" in home.fails("pool", *words), words
