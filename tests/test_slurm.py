"""Runs on clusters of Slurm: a real one, whose nodes are network namespaces with an address each."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
import slurm
from dask_clusters import DaskCluster, next_event
from test_cluster import FAN, FAN_RESULT
from waiting import wait_for

# Not imported here: it would take over SIGINT of the process that runs all tests.
MISSING = None if importlib.util.find_spec("dask_jobqueue") else "no dask-jobqueue"
REASON = hosts.unsupported_reason() or slurm.unsupported_reason() or MISSING
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
# What users of a real cluster have in Dask's configuration.
JOB = ["cores=1", "memory=1GiB", "interface=eth0", 'job_script_prologue=["export XDG_RUNTIME_DIR={folder}/rt${{SLURMD_NODENAME#n}}"]']
SCRIPT = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1
exec {command} --on slurm --memory 64MiB --on-option scheduler_options.interface=eth0
"""


class SlurmHosts(DaskCluster):
    """The user's host with the controller of Slurm, and two nodes."""

    def __init__(self, binary: Path, folder: Path, net: hosts.Network) -> None:
        super().__init__(binary, folder, net, scheduler=0)
        self.slurm = slurm.Slurm(folder / "slurm", net, [1, 2])
        for host in (1, 2):
            self.runtime(host)

    def environment(self, host: int, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of users of Slurm."""
        return super().environment(host, {**self.slurm.environment, **(extra or {})})

    def on(self, *options: str, workers: int = 2) -> list[str]:
        """The flags of a run whose workers are jobs."""
        return [
            "--on",
            "slurm",
            "--workers",
            str(workers),
            "--memory",
            "64MiB",
            *(word for option in options for word in ("--on-option", option.format(folder=self.folder))),
        ]

    def assert_no_cluster_left(self) -> None:
        """Waits until jobs and processes of Dask have ended."""
        wait_for(lambda: not self.slurm.jobs(), "jobs were left")
        wait_for(lambda: not self.pythons(0, 1, 2), "processes of Dask were left")


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHosts]:
    """A Slurm with two nodes."""
    folder = tmp_path_factory.mktemp("slurm")
    with hosts.network(folder, 3) as net:
        made = SlurmHosts(binary, folder, net)
        try:
            made.slurm.up()
            yield made
        finally:
            made.slurm.close()
            made.close()


def check_result(cluster: SlurmHosts) -> None:
    """The result of a run is right, and both hosts had tasks."""
    assert (cluster.out / "C.txt").read_text() == FAN_RESULT
    assert [node["name"] for node in cluster.run_json["nodes"]] == [cluster.net.address(1), cluster.net.address(2)]
    assert {task["node"] for task in cluster.run_json["tasks"]} == {0, 1}


def test_a_run_submits_its_workers_as_jobs_and_leaves_nothing(cluster: SlurmHosts) -> None:
    cluster.script(FAN)
    done = cluster.run(*cluster.on(*JOB), on=False)
    assert done.returncode == 0, done.stderr
    check_result(cluster)
    cluster.assert_no_cluster_left()
    cluster.assert_nothing_left()


def test_inside_an_allocation_a_run_uses_its_hosts(cluster: SlurmHosts) -> None:
    cluster.script(FAN)
    script = cluster.folder / "job.sh"
    script.write_text(SCRIPT.format(command=" ".join(cluster.arguments(on=False))))
    command = cluster.net.inside(0, "sbatch", "--wait", "--output", str(cluster.folder / "job.log"), str(script))
    done = subprocess.run(command, env=cluster.environment(1), cwd=cluster.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr + (cluster.folder / "job.log").read_text()
    check_result(cluster)
    cluster.assert_no_cluster_left()
    cluster.assert_nothing_left()


def test_a_run_that_is_killed_leaves_no_jobs(cluster: SlurmHosts) -> None:
    cluster.script('shell({to: Data.define("A"), script: "echo a > $2; exec sleep 100000"});')
    command = cluster.net.inside(0, *cluster.arguments("--json", *cluster.on(*JOB), "--orphan-wait", "10", on=False))
    with subprocess.Popen(command, env=cluster.environment(0), cwd=cluster.folder, stdout=subprocess.PIPE, text=True) as run:
        next_event(run, "task_started")
        assert cluster.slurm.jobs()
        os.kill(run.pid, signal.SIGKILL)
    cluster.assert_no_cluster_left()
    # The run's own empty directory goes with the next run of this user.
    mine = str(cluster.runtime(0))
    wait_for(lambda: all(left.startswith(mine) for left in cluster.leftovers()), "agents, nodes, mounts or directories were left")


def test_a_run_that_is_interrupted_while_a_job_waits_cancels_it(cluster: SlurmHosts) -> None:
    cluster.script(FAN)
    command = cluster.net.inside(0, *cluster.arguments(*cluster.on(*JOB, workers=3), on=False))
    with subprocess.Popen(command, env=cluster.environment(0), cwd=cluster.folder) as run:
        # Two nodes of one processor.
        wait_for(lambda: " PD " in cluster.slurm.jobs(), "no job waits")
        run.send_signal(signal.SIGINT)
    assert run.returncode != 0
    cluster.assert_no_cluster_left()


@pytest.mark.parametrize(
    ("options", "why"),
    [([], "cores"), (["cores=1", "memory=1GiB", "colour=red"], "colour"), ([*JOB, "queue=nowhere"], "nvalid partition")],
    ids=["without-cores", "unknown-option", "unknown-queue"],
)
def test_what_slurm_or_dask_refuses_is_told(cluster: SlurmHosts, options: list[str], why: str) -> None:
    cluster.script(FAN)
    refused = cluster.run(*cluster.on(*options), on=False)
    assert refused.returncode != 0
    assert why in refused.stderr
    cluster.assert_no_cluster_left()


def test_without_dask_jobqueue_the_run_says_what_to_install(cluster: SlurmHosts) -> None:
    cluster.script(FAN)
    python = cluster.folder / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH={cluster.folder}/hidden\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    hidden = cluster.folder / "hidden" / "dask_jobqueue"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError(\"No module named 'dask_jobqueue'\")\n")
    refused = cluster.run(*cluster.on(*JOB), "--python", str(python), on=False)
    assert refused.returncode != 0
    assert "No module named 'dask_jobqueue'" in refused.stderr
    assert "pip install dask-jobqueue" in refused.stderr
