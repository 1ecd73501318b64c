"""The carrier and the run itself end at bad moments: a run goes on or says why not, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster, descendants, next_event, next_warning
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

# Four tasks that wait for the file GO, deaf to SIGTERM.
WAIT = """
var b = Data.define("B", 4);
for (var k = 0; k < 4; k++) shell({to: b[k], script: "trap '' TERM; while [ ! -e GO ]; do sleep 0.02; done; echo tide > $1"});
"""


@pytest.fixture
def cluster(binary: Path, tmp_path: Path) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, and two with a worker of two threads."""
    with hosts.network(tmp_path, 3) as net, dask_cluster(binary, tmp_path, net, {1: 2, 2: 2}) as made:
        made.script(WAIT.replace("GO", str(tmp_path / "go")))
        yield made


def started(cluster: DaskCluster, *flags: str) -> subprocess.Popen[str]:
    """A run whose four tasks have started."""
    run = cluster.start("--workers", "2", *flags)
    for _ in range(4):
        next_event(run, "task_started")
    return run


def kill_carrier(run: subprocess.Popen[str]) -> None:
    """Kills the carrier of a run."""
    (carrier,) = (pid for pid in descendants(run.pid, set()) if b"-u\0-c\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(carrier, signal.SIGKILL)


def test_a_run_whose_carrier_is_killed_goes_on_with_another_one(cluster: DaskCluster) -> None:
    run = started(cluster)
    kill_carrier(run)
    next_warning(run, "it is made again")
    (cluster.folder / "go").touch()
    assert run.stdout is not None
    run.stdout.read()
    assert run.wait(timeout=100) == 0, cluster.errors()
    assert all(task["attempts"] == 1 for task in cluster.run_json["tasks"])
    cluster.assert_nothing_left()


def test_a_run_without_any_way_to_dask_fails_and_ends_its_agents(cluster: DaskCluster) -> None:
    run = started(cluster, "--wait", "10")
    for process in ("scheduler", "w1", "w2"):
        cluster.kill(process)
    next_warning(run, "cannot be reached")
    kill_carrier(run)
    assert run.stdout is not None
    run.stdout.read()
    assert run.wait(timeout=100) == 1
    assert "cannot use the Dask scheduler at" in cluster.run_json["problem"]
    assert cluster.run_json["outcome"] == "failed"
    cluster.assert_nothing_left()


def test_a_second_signal_ends_the_run_at_once_and_its_agents_with_it(cluster: DaskCluster) -> None:
    run = started(cluster)
    wait_for(lambda: run.poll() is not None or run.send_signal(signal.SIGTERM), "the run did not end")
    assert run.returncode == 128 + signal.SIGTERM
    cluster.assert_nothing_left()


def test_a_host_that_refuses_leaves_no_agents_at_the_others(cluster: DaskCluster) -> None:
    bad = cluster.folder / "bad-tidemill"
    bad.write_text(f'#!/bin/sh\n[ "$1" = agent ] && echo no agents here >&2 && exit 9\nexec {cluster.binary} "$@"\n')
    bad.chmod(0o755)
    cluster.kill("w2")
    cluster.start_worker("bad", 2, 2, extra={"TIDEMILL": str(bad)})
    done = cluster.run("--workers", "2")
    assert done.returncode == 2
    assert "no agents here" in done.stderr
    cluster.assert_nothing_left()


def test_an_interrupted_start_leaves_nothing(cluster: DaskCluster) -> None:
    run = cluster.start("--workers", "2")
    wait_for(cluster.agents, "no agent was started")
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    run.stdout.read()
    assert run.wait(timeout=60) in (2, 130)
    cluster.assert_nothing_left()
