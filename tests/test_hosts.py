"""A pool over several hosts: network namespaces of this machine with an address each."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from hosts import Network
from test_pool import SECONDS_MAX, Home
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

NODES = 4
# The last host has no node.
USER = NODES


class Cluster:
    """A pool with a node on each host but the last, and commands on any host."""

    def __init__(self, home: Home, net: Network) -> None:
        self.home = home
        self.net = net

    def run_on(self, host: int, *words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Runs a tidemill command on a host to its end."""
        command = self.net.inside(host, self.home.binary, *words)
        folder, environment = self.home.folder, self.home.environment
        return subprocess.run(command, env=environment, cwd=folder, input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False)

    def ok(self, host: int, *words: str | Path, stdin: bytes = b"") -> bytes:
        """The output of a tidemill command on a host, which must succeed."""
        done = self.run_on(host, *words, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.stderr.decode()}"
        return done.stdout

    def states(self) -> list[str]:
        """The states of the nodes, as the user's host sees them."""
        return [node["state"] for node in json.loads(self.run_on(USER, "pool", "status", "--json").stdout)["nodes"]]


@pytest.fixture
def cluster(binary: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A pool of four hosts."""
    home = Home(binary, tmp_path)
    with hosts.network(tmp_path, NODES + 1) as net:
        cluster = Cluster(home, net)
        cluster.ok(USER, "pool", "start", "--hosts", net.names(*range(NODES)), "--ssh", str(net.ssh), "--memory", "64MiB")
        yield cluster
    wait_for(lambda: not home.node_processes(), "nodes were left")
    shutil.rmtree(home.runtime)


def test_every_host_sees_what_any_has_put_over_the_network(cluster: Cluster) -> None:
    data = bytes(range(256)) * 40_000
    cluster.ok(USER, "put", "a/b", "-", stdin=data)
    for host in range(NODES + 1):
        assert cluster.ok(host, "cat", "a/b") == data
        cluster.ok(host, "put", f"from/{host}", "-", stdin=str(host).encode())
    assert cluster.ok(0, "ls", "from").split() == [str(host).encode() for host in range(NODES + 1)]
    status = json.loads(cluster.ok(USER, "pool", "status", "--json"))
    assert all(f"tls:{cluster.net.address(host)}:" in str(node["addresses"]) for host, node in enumerate(status["nodes"]))
    cluster.ok(USER, "pool", "stop")
    assert cluster.home.is_clean()


def test_a_host_that_is_cut_off_is_told_from_one_that_answers(cluster: Cluster) -> None:
    assert cluster.states() == ["up"] * NODES
    cluster.net.cut(2)
    assert cluster.states() == ["up", "up", "down", "up"]
    cluster.ok(USER, "put", "k", "-", stdin=b"the root and its small files are on the first host")
    assert cluster.ok(1, "cat", "k").startswith(b"the root")


def test_what_hosts_say_is_plain_only_where_that_was_asked_for_by_name(cluster: Cluster) -> None:
    start = ["pool", "start", "--pool", "plain", "--hosts", cluster.net.names(0, 1), "--ssh", str(cluster.net.ssh), "--memory", "64MiB"]
    cluster.ok(USER, *start, "--no-tls")
    file = json.loads((cluster.home.folder / "plain").read_text())
    assert "certificate" not in file
    assert all(str(node["addresses"][-1]).startswith("tcp:") for node in file["nodes"])
    cluster.ok(USER, "put", "--pool", "plain", "k", "-", stdin=b"v")
    assert cluster.ok(1, "cat", "--pool", "plain", "k") == b"v"
    cluster.ok(USER, "pool", "stop", "--pool", "plain")
