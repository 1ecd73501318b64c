"""What is refused before a run on a cluster starts, and that nothing is left then."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster, next_event

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

COPY = 'var a = Data.get("in.txt"), b = Data.define("B"); copy({from: a, to: b});'


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, one with a worker, and one whose worker has another version."""
    folder = tmp_path_factory.mktemp("start")
    other = folder / "other-tidemill"
    other.write_text("#!/bin/sh\necho tidemill 99.0.0\n")
    other.chmod(0o755)
    with hosts.network(folder, 3) as net, dask_cluster(binary, folder, net, {1: 1}) as made:
        made.start_worker("w2", 2, 1, extra={"TIDEMILL": str(other)})
        made.script(COPY)
        yield made


def refused(cluster: DaskCluster, *flags: str, on: bool = True) -> str:
    """The message of a run that is refused and leaves nothing."""
    done = cluster.run("--wait", "3", *flags, on=on)
    assert done.returncode == 2, (done.returncode, done.stderr)
    cluster.assert_nothing_left()
    return done.stderr


def test_a_scheduler_that_does_not_answer_is_named(cluster: DaskCluster) -> None:
    address = f"{cluster.net.address(0)}:1"
    assert address in refused(cluster, "--on", f"dask://{address}", on=False)


def test_a_cluster_is_named_in_one_of_the_known_ways(cluster: DaskCluster) -> None:
    assert "not a cluster that Tidemill knows" in refused(cluster, "--on", "spark://h:7077", on=False)


def test_too_few_workers_are_counted(cluster: DaskCluster) -> None:
    message = refused(cluster, "--workers", "9")
    assert "has 2 workers after 3 s, and 9 are wanted" in message


def test_a_python_without_dask_is_told_what_to_install(cluster: DaskCluster) -> None:
    bare = cluster.folder / "bare-python"
    bare.write_text('#!/bin/sh\nexec /usr/bin/env python3 -S -I "$@"\n')
    bare.chmod(0o755)
    assert "pip install" in refused(cluster, "--python", str(bare))


def test_a_task_that_needs_more_processors_than_any_host_has_is_refused(cluster: DaskCluster) -> None:
    tools = cluster.tools.read_text()
    cluster.tools.write_text(tools + '\n[tools.wide]\ncommand = ["true"]\ncpus = 64\n')
    cluster.script("wide({});")
    try:
        assert "needs 64 cpus, and the largest host of the cluster has 1" in refused(cluster)
    finally:
        cluster.tools.write_text(tools)
        cluster.script(COPY)


def test_workers_of_another_version_get_no_tasks_and_are_told(cluster: DaskCluster) -> None:
    done = cluster.run("--workers", "2")
    assert done.returncode == 0, done.stderr
    assert f"the workers at {cluster.net.address(2)} have tidemill 99.0.0" in done.stderr
    assert [node["name"] for node in cluster.run_json["nodes"]] == [cluster.net.address(1)]
    cluster.assert_nothing_left()


def test_an_interrupted_run_ends_its_tasks_and_leaves_nothing(cluster: DaskCluster) -> None:
    cluster.script('var b = Data.define("B"); shell({to: b, script: "sleep 600"});')
    run = cluster.start("--workers", "2")
    next_event(run, "task_started")
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    run.stdout.read()
    assert run.wait(timeout=60) == 130
    cluster.script(COPY)
    cluster.assert_nothing_left()
