"""`tidemill run --on ssh:.. --elastic MIN:MAX`: hosts come when the files need them, and go when they do not."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import TOOLS, DaskCluster, next_event, next_warning
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))
asyncssh = pytest.importorskip("asyncssh")
SERVER = Path(__file__).parent / "programs/ssh_server.py"
SIZES = """
[tools.sizes]
command = ["wc", "-c", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = {}
"""
# Six temporaries of 20 MB, of which one node of 64 MiB holds three. The others are written when the
# pool has grown, and the last task ends when it has shrunk.
OUTGROWS = """
var parts = Data.define("Part", 6), gate = Data.define("Gate"), sums = Data.define("Sizes"), out = Data.define("Out");
for (var k = 0; k < 3; k++) {
    shell({to: parts[k], script: "head -c 20000000 /dev/zero > $1"});
}
shell({from: parts[2], to: gate, script: "until [ -e FOLDER/grown ]; do sleep 0.05; done; echo grown > $2"});
for (var k = 3; k < 6; k++) {
    shell({from: gate, to: parts[k], script: "head -c 20000000 /dev/zero > $2"});
}
sizes({from: parts, to: sums});
shell({from: sums, to: out, script: "until [ -e FOLDER/shrunk ]; do sleep 0.05; done; tail -n 1 $1 > $2"});
"""


class SshHosts(DaskCluster):
    """The user's host, and others with an SSH server each, which have nothing of Dask yet."""

    def __init__(self, binary: Path, folder: Path, net: hosts.Network, count: int) -> None:
        super().__init__(binary, folder, net, scheduler=0)
        self.others = range(1, count)
        self.tools.write_text(TOOLS + SIZES)
        for name in ("host_key", "user_key"):
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(folder / name)
            key.write_public_key(folder / f"{name}.pub")
        for host in self.others:
            self.spawn(f"sshd{host}", host, sys.executable, str(SERVER), net.address(host), str(folder / "host_key"), str(folder / "user_key.pub"))
        for host in self.others:
            wait_for(lambda log=folder / f"sshd{host}.log": "listening" in log.read_text(), "no SSH server")

    def elastic(self, limits: str, *flags: str) -> list[str]:
        """The flags of a run on these hosts whose pool grows and shrinks."""
        names = ",".join(map(self.net.address, self.others))
        options = ["connect_options.known_hosts=null", f'connect_options.client_keys=["{self.folder}/user_key"]', "worker_options.nthreads=1"]
        pairs = [word for option in options for word in ("--on-option", option)]
        return ["--on", f"ssh:{names}", "--memory", self.memory, "--elastic", limits, *pairs, *flags]

    def begin(self, *flags: str) -> subprocess.Popen[str]:
        """Starts a run in the background that prints events."""
        command = self.net.inside(0, *self.arguments("--json", *flags, on=False))
        stderr = (self.folder / "run.err").open("ab")
        return subprocess.Popen(command, env=self.environment(0), cwd=self.folder, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def workers(self, host: int) -> list[str]:
        """The processes that keep Dask's workers on a host. The scheduler is on the first."""
        return [words for words in self.pythons(host) if "Nanny" in words]

    def assert_nothing_left(self) -> None:
        """Waits until neither runs nor their clusters have left anything."""
        super().assert_nothing_left()
        wait_for(lambda: all("ssh_server" in words for words in self.pythons(*self.others)), "processes of Dask were left")


def next_pool_event(run: subprocess.Popen[str], text: str) -> None:
    """Reads events of a run until its pool has changed in this way."""
    while text not in next_event(run, "pool")["text"]:
        pass


def end_of(run: subprocess.Popen[str]) -> int:
    """Waits for the end of a run; returns its exit code."""
    assert run.stdout is not None
    run.stdout.read()
    return run.wait(timeout=60)


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """The user's host, and two with an SSH server."""
    folder = tmp_path_factory.mktemp("elastic")
    with hosts.network(folder, 3) as net:
        made = SshHosts(binary, folder, net, 3)
        try:
            yield made
        finally:
            made.close()


def test_a_host_comes_when_temporaries_outgrow_the_first_and_goes_when_they_are_gone(cluster: SshHosts) -> None:
    cluster.script(OUTGROWS.replace("FOLDER", str(cluster.folder)))
    run = cluster.begin(*cluster.elastic("1:2"))
    next_event(run, "task_done")
    assert not cluster.workers(2), "the run began with one host"
    next_pool_event(run, "has got node 3")
    assert cluster.workers(1)
    assert cluster.workers(2)
    (cluster.folder / "grown").touch()
    next_pool_event(run, "has given up node")
    # The task that waits is at the host that stays.
    wait_for(lambda: bool(cluster.workers(1)) != bool(cluster.workers(2)), "the host whose node has left was kept")
    (cluster.folder / "shrunk").touch()
    assert end_of(run) == 0, cluster.errors()
    assert (cluster.out / "Out").read_text() == "120000000 total\n"
    report = cluster.run_json
    assert report["warnings"] == []
    assert {task["attempts"] for task in report["tasks"]} == {1}, "no task lost its host or its data"
    assert {task["node"] for task in report["tasks"]} == {0, 1}, "both hosts had tasks"
    cluster.assert_nothing_left()


def test_a_cluster_that_gives_no_other_host_is_a_warning_and_the_run_goes_on(cluster: SshHosts) -> None:
    weak = cluster.folder / "python-without-workers"
    weak.write_text(f'#!/bin/sh\ncase "$*" in *dask_spec*) exit 1 ;; esac\nexec {shlex.quote(sys.executable)} "$@"\n')
    weak.chmod(0o755)
    script = "head -c 4000000 /dev/zero > $1; until [ -e FLAG ]; do sleep 0.05; done; echo done >> $1".replace("FLAG", str(cluster.folder / "go"))
    cluster.script(f'shell({{to: Data.define("Out"), script: "{script}"}});')
    pythons = f'remote_python=["{sys.executable}", "{weak}"]'
    run = cluster.begin(*cluster.elastic("1:2", "--on-option", pythons, "--elastic-policy", "step(2, 1, 1, 1)"))
    assert "could not start another worker" in next_warning(run, "no node could be added")
    (cluster.folder / "go").touch()
    assert end_of(run) == 0, cluster.errors()
    assert (cluster.out / "Out").read_bytes() == bytes(4_000_000) + b"done\n"
    cluster.assert_nothing_left()


def test_what_the_run_cannot_scale_is_refused(cluster: SshHosts) -> None:
    cluster.script('shell({to: Data.define("Out"), script: "echo done > $2"});')
    done = cluster.run("--on", "dask://198.51.100.1:8786", "--elastic", "1:2", on=False)
    assert done.returncode == 2
    assert "not the run's to grow and shrink" in done.stderr
    many = cluster.run(*cluster.elastic("1:3"), on=False)
    assert many.returncode == 2
    assert "3 nodes are more than hosts" in many.stderr
