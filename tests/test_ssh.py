"""Runs on a cluster that they start by SSH: real SSH servers, one in each of three network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, descendants, next_event
from test_cluster import FAN, FAN_RESULT
from waiting import wait_for

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
REASON = hosts.unsupported_reason() or (None if Path(SSHD).exists() else "no sshd: install openssh-server")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
asyncssh = pytest.importorskip("asyncssh")
SERVER = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
SetEnv XDG_RUNTIME_DIR={runtime} TIDEMILL={binary}
"""


class SshHosts(DaskCluster):
    """Hosts with an SSH server each. The first is the user's, who has no cluster yet."""

    def __init__(self, binary: Path, folder: Path, net: hosts.Network) -> None:
        super().__init__(binary, folder, net, scheduler=0)
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        for host in (1, 2):
            config = folder / f"sshd{host}.conf"
            config.write_text(SERVER.format(address=net.address(host), folder=folder, runtime=self.runtime(host), binary=binary))
            self.spawn(f"sshd{host}", host, SSHD, "-D", "-e", "-f", str(config))

    def on(self, *names: str) -> list[str]:
        """The flags of a run on these hosts."""
        options = ["connect_options.known_hosts=null", f'connect_options.client_keys=["{self.folder}/user_key"]', "worker_options.nthreads=2"]
        return ["--on", f"ssh:{','.join(names)}", "--memory", "64MiB", *(word for option in options for word in ("--on-option", option))]

    def assert_nothing_left(self) -> None:
        """Waits until neither runs nor their clusters have left anything."""
        super().assert_nothing_left()
        wait_for(lambda: not self.pythons(1, 2), "processes of Dask were left")


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """The user's host, and two with an SSH server."""
    folder = tmp_path_factory.mktemp("ssh")
    Path("/run/sshd").mkdir(exist_ok=True)
    with hosts.network(folder, 3) as net:
        made = SshHosts(binary, folder, net)
        try:
            for host in (1, 2):
                wait_for(lambda log=folder / f"sshd{host}.log": "listening" in log.read_text(), "no SSH server")
            yield made
        finally:
            made.close()


def assert_only_own_directory_left(cluster: SshHosts) -> None:
    """Waits until a killed run has left its own empty directory, which goes with this user's next run."""
    mine = str(cluster.runtime(0))
    wait_for(lambda: all(left.startswith(mine) for left in cluster.leftovers()), "agents, nodes, mounts or directories were left")


def test_a_run_starts_its_cluster_by_ssh_and_leaves_nothing(cluster: SshHosts) -> None:
    cluster.script(FAN)
    done = cluster.run(*cluster.on(cluster.net.address(1), cluster.net.address(2)), on=False)
    assert done.returncode == 0, done.stderr
    assert (cluster.out / "C.txt").read_text() == FAN_RESULT
    report = cluster.run_json
    assert [node["name"] for node in report["nodes"]] == [cluster.net.address(1), cluster.net.address(2)]
    assert {task["node"] for task in report["tasks"]} == {0, 1}, "both hosts had tasks"
    assert report["settings"]["slots"] == 4
    cluster.assert_nothing_left()


def test_a_run_that_is_killed_leaves_no_cluster(cluster: SshHosts) -> None:
    cluster.script('shell({to: Data.define("A"), script: "echo a > $2; exec sleep 100000"});')
    names = (cluster.net.address(1), cluster.net.address(2))
    command = cluster.net.inside(0, *cluster.arguments("--json", *cluster.on(*names), "--orphan-wait", "10", on=False))
    with subprocess.Popen(command, env=cluster.environment(0), cwd=cluster.folder, stdout=subprocess.PIPE, text=True) as run:
        next_event(run, "task_started")
        assert cluster.pythons(1, 2)
        os.kill(run.pid, signal.SIGKILL)
    wait_for(lambda: not cluster.pythons(1, 2), "the cluster was left")
    assert_only_own_directory_left(cluster)


def test_a_cluster_ends_with_the_connection_that_started_it(cluster: SshHosts) -> None:
    cluster.script('shell({to: Data.define("A"), script: "echo a > $2; exec sleep 100000"});')
    names = (cluster.net.address(1), cluster.net.address(2))
    command = cluster.net.inside(0, *cluster.arguments("--json", *cluster.on(*names), "--orphan-wait", "10", on=False))
    with subprocess.Popen(command, env=cluster.environment(0), cwd=cluster.folder, stdout=subprocess.PIPE, text=True) as run:
        next_event(run, "task_started")
        carrier = next(pid for pid in descendants(run.pid, set()) if b"\0-u\0-c\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(carrier, signal.SIGKILL)
        wait_for(lambda: not cluster.pythons(1, 2), "the cluster was left")
        run.kill()
    assert_only_own_directory_left(cluster)


def test_hosts_that_cannot_be_used_are_named(cluster: SshHosts) -> None:
    cluster.script(FAN)
    unknown = cluster.run(*cluster.on(cluster.net.address(1), "no-such-host.invalid"), on=False)
    assert unknown.returncode != 0
    assert "no-such-host.invalid" in unknown.stderr
    assert cluster.net.address(1) not in unknown.stderr
    python = cluster.run(*cluster.on(cluster.net.address(2)), "--on-option", "remote_python=/no/such/python", on=False)
    assert python.returncode != 0
    assert f"{cluster.net.address(2)}: /no/such/python cannot use Dask" in python.stderr
    cluster.assert_nothing_left()
