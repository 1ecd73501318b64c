"""Pools that grow and shrink while they are used: what was done is there, and nothing fails."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import mount_unsupported_reason
from test_pool import Home, home, mounted  # noqa: F401 - `home` is a fixture
from waiting import wait_for

PROGRAMS = Path(__file__).parent / "programs"
SECONDS_MAX = 120


def managers(at: Home) -> dict[str, object]:
    """What `pool status --json` says of the managers."""
    return json.loads(at.run("pool", "status", "--json").stdout)["managers"]


def partitions(at: Home) -> dict[int, int]:
    """The number of partitions of each node."""
    return {int(str(node["id"])): int(str(node["partitions"])) for node in at.status()}


def put(at: Home, name: str, length: int) -> bytes:
    """Puts random bytes under a name; returns them."""
    data = random.Random(name).randbytes(length)
    at.ok("put", name, "-", stdin=data)
    return data


class Workers:
    """Programs that change files or objects and check them, until they are stopped."""

    def __init__(self, at: Home) -> None:
        self.home = at
        self.stop = at.folder / "stop"
        self.running: list[subprocess.Popen[str]] = []

    def start(self, program: str, folder: str, seed: int, *prefix: str | Path) -> None:
        """Starts one in a directory; `prefix` is a command that runs it."""
        command = [*map(str, prefix), sys.executable, str(PROGRAMS / program), folder, str(seed), str(self.stop)]
        process = subprocess.Popen(command, env=self.home.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.running.append(process)

    def finish(self) -> list[int]:
        """Ends them; returns how many operations each has done."""
        self.stop.touch()
        done = []
        for process in self.running:
            out, errors = process.communicate(timeout=SECONDS_MAX)
            assert process.returncode == 0, errors
            done.append(int(out.split()[0]))
        return done


def test_nothing_fails_while_a_pool_grows_from_two_nodes_to_eight_and_shrinks_to_three(home: Home) -> None:  # noqa: F811
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    home.ok("pool", "start", "--nodes", "2", "--memory", "512MiB", "--partitions", "64", "--max-nodes", "8", "--slots", "0")
    before = put(home, "before", 20_000_000)
    workers = Workers(home)
    with mounted(home) as folder:
        for seed in range(3):
            workers.start("checked_files.py", str(folder / f"mount{seed}"), seed)
        for seed in range(2):
            workers.start("checked_files.py", f"/tidemill/preload{seed}", seed, home.binary, "exec", "--")
        workers.start("checked_objects.py", "objects", 0)
        assert "nodes 3, 4 joined" in home.run("pool", "grow", "2", "--memory", "512MiB", "--slots", "0").stderr.decode()
        assert "nodes 5, 6, 7, 8 joined" in home.run("pool", "grow", "4", "--memory", "512MiB", "--slots", "0").stderr.decode()
        assert set(partitions(home).values()) == {8}, "each has its share"
        assert "left the pool" in home.run("pool", "shrink", "5").stderr.decode()
        counts = partitions(home)
        assert sorted(counts) == [1, 2, 3]
        assert sorted(counts.values()) == [21, 21, 22]
        done = workers.finish()
    assert min(done) > 20, done
    assert home.run("get", "before", "-").stdout == before
    home.ok("pool", "stop")
    assert home.is_clean()


def test_every_node_of_a_pool_can_be_replaced_also_the_first_and_old_pool_files_lead_in(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--nodes", "2", "--memory", "256MiB", "--partitions", "64", "--slots", "0")
    data = {f"d{number}/f": put(home, f"d{number}/f", 1_500_000) for number in range(8)}
    pool = home.runtime / "tidemill/pool"
    old = shutil.copy(pool, home.folder / "old")
    home.ok("pool", "grow", "1", "--memory", "256MiB", "--slots", "0", "--quiet")
    home.ok("pool", "shrink", "--node", "1")
    for name, bytes_put in data.items():
        assert home.run("get", name, "-").stdout == bytes_put
        assert home.run("get", "--pool", str(old), name, "-").stdout == bytes_put, "node 2 leads to the others"

    def is_placed_elsewhere() -> bool:
        return b"node 1 has left the pool" in home.run("put", "--placement", "at(1)", "late", "-", stdin=bytes(2_000_000)).stderr

    wait_for(is_placed_elsewhere, "the other node knows that it has left")
    assert home.run("get", "late", "-").stdout == bytes(2_000_000)
    home.ok("pool", "shrink", "--node", "2")
    assert partitions(home) == {3: 64}
    for name, bytes_put in data.items():
        assert home.run("get", name, "-").stdout == bytes_put
    home.ok("pool", "grow", "1", "--memory", "256MiB", "--slots", "0")
    assert partitions(home) == {3: 32, 4: 32}, "no number is given twice"
    wait_for(lambda: len(home.node_processes()) == 2, "the others have ended")
    assert "node 4 has joined" in home.ok("pool", "events")
    home.ok("pool", "stop")
    assert home.is_clean()


def test_memory_decides_the_shares(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--nodes", "1", "--memory", "64MiB", "--partitions", "64", "--max-nodes", "4", "--slots", "0")
    home.ok("pool", "grow", "1", "--memory", "192MiB", "--slots", "0")
    assert partitions(home) == {1: 16, 2: 48}
    home.ok("pool", "stop")


def test_what_cannot_be_is_refused_and_the_pool_stays_as_it_was(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "64", "--max-nodes", "3", "--slots", "0")
    kept = put(home, "kept", 70_000_000)
    more = home.fails("pool", "grow", "2")
    assert "2 nodes and may have 3: 2 more are too many" in more
    assert "--max-nodes" in more
    dead = home.fails("pool", "grow", "--hosts", "nowhere", "--ssh", "false")
    assert "ended before it was ready" in dead
    small = home.fails("pool", "shrink", "1")
    assert "the nodes that stay have 64 MiB" in small
    assert "remove files" in small
    assert "has no node 7; it has 1, 2" in home.fails("pool", "shrink", "--node", "7")
    assert "one must stay" in home.fails("pool", "shrink", "2")
    assert sorted(partitions(home)) == [1, 2]
    assert len(home.node_processes()) == 2
    assert home.run("get", "kept", "-").stdout == kept
    home.ok("pool", "stop")
    assert home.is_clean()


def test_the_loss_of_the_leader_leaves_a_pool_that_can_grow(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB", "--partitions", "64", "--max-nodes", "8", "--slots", "0")
    wait_for(lambda: len(list(managers(home)["members"])) == 3, "three managers")  # type: ignore[call-overload]
    leader = managers(home)["leader"]
    assert leader == 1
    os.kill(home.pids()[0], signal.SIGKILL)
    wait_for(lambda: managers(home)["leader"] not in (None, leader), "another leader")
    home.ok("pool", "grow", "1", "--memory", "64MiB", "--slots", "0")
    up = {node["id"]: node["partitions"] for node in home.status() if node["state"] == "up"}
    assert sorted(up) == [2, 3, 4, 5]
    assert int(str(up[5])) > 0, "the others have given it some of theirs"
    home.run("pool", "stop")
