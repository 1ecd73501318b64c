"""Runs on a cluster that lose their first node, or are killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster, next_event, next_warning
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

# Two outputs that are soon there, and one whose task waits for the gate. Each task adds its name to
# the log, which is outside of the pool.
FLOW = """
var i = Data.get("in.txt");
var a = Data.define("A", 2), b = Data.define("B", 2), c = Data.define("C"), d = Data.define("D");
var cat = function (name, more) { return 'echo ' + name + ' >> LOG; ' + more + 'cat "$1" > "$2"; echo ' + name + ' >> "$2"'; };
for (var k = 0; k < 2; k++) {
    shell({from: i, to: a[k], script: cat('a' + k, '')});
    shell({from: a[k], to: b[k], script: cat('b' + k, '')});
}
shell({from: a[0], to: c, script: cat('c', 'while [ ! -e GO ]; do sleep 0.02; done; ')});
shell({from: c, to: d, script: cat('d', '')});
"""
OUTPUTS = {"B[0]": "tide\na0\nb0\n", "B[1]": "tide\na1\nb1\n", "D": "tide\na0\nc\nd\n"}


@pytest.fixture
def cluster(binary: Path, tmp_path: Path) -> Iterator[DaskCluster]:
    """Three hosts: the user's with the scheduler, and two with a worker of two threads."""
    with hosts.network(tmp_path, 3) as net, dask_cluster(binary, tmp_path, net, {1: 2, 2: 2}) as made:
        made.script(FLOW.replace("GO", str(tmp_path / "go")).replace("LOG", str(tmp_path / "log")))
        yield made


def ran(cluster: DaskCluster) -> list[str]:
    """The tasks that have begun."""
    log = cluster.folder / "log"
    return log.read_text().split() if log.exists() else []


def outputs(cluster: DaskCluster) -> dict[str, str]:
    """The outputs of the last run, by their names."""
    return {member["name"]: Path(member["exported"]).read_text() for member in cluster.run_json["data"] if member.get("exported")}


def started(cluster: DaskCluster, *flags: str) -> subprocess.Popen[str]:
    """A run in which two outputs are exported, and a task waits for the gate."""
    run = cluster.start("--workers", "2", *flags)
    for _ in range(2):
        next_event(run, "exported")
    wait_for(lambda: "c" in ran(cluster), "the task did not begin")
    return run


def finished(cluster: DaskCluster, run: subprocess.Popen[str]) -> None:
    """Lets a run go on to its end, and checks its outputs."""
    (cluster.folder / "go").touch()
    run.stdout.read()
    assert run.wait(timeout=100) == 0, cluster.errors()
    assert outputs(cluster) == OUTPUTS
    assert [task["status"] for task in cluster.run_json["tasks"]] == ["done"] * 6
    cluster.assert_nothing_left()


def test_a_run_whose_first_node_dies_forms_its_pool_anew(cluster: DaskCluster) -> None:
    run = started(cluster)
    before = set(cluster.agents())
    (cluster.folder / "log").unlink()
    os.kill(cluster.node_of(0), signal.SIGKILL)
    next_warning(run, "the pool is formed anew")
    next_event(run, "task_started")
    assert not before & set(cluster.agents()), "the agents and nodes of the pool that is lost have ended"
    finished(cluster, run)
    assert ran(cluster) == ["a0", "c", "d"], "what is exported is not made again"
    report = cluster.run_json
    assert (len(report["nodes"]), sum("lost_s" in node for node in report["nodes"])) == (4, 2)


def test_a_run_that_loses_its_pool_again_and_again_gives_up(cluster: DaskCluster) -> None:
    gate = cluster.folder / "go"
    cluster.script(f"""shell({{from: Data.get("in.txt"), to: Data.define("A"), script: 'while [ ! -e {gate} ]; do sleep 0.02; done'}});""")
    run = cluster.start("--workers", "2")
    for _ in range(3):
        next_event(run, "task_started")
        os.kill(cluster.agent_of(0), signal.SIGKILL)
        next_warning(run, "the pool is formed anew")
    next_event(run, "task_started")
    os.kill(cluster.agent_of(0), signal.SIGKILL)
    run.stdout.read()
    assert run.wait(timeout=100) == 1
    report = cluster.run_json
    assert "again and again" in report["problem"]
    assert "lost its pool" in report["tasks"][0]["reason"]["text"]
    cluster.assert_nothing_left()


@pytest.mark.parametrize("meanwhile", ["a task runs", "a task ends"])
def test_a_killed_run_goes_on_where_its_pool_waits(cluster: DaskCluster, meanwhile: str) -> None:
    run = started(cluster)
    run.kill()
    run.wait()
    before = set(cluster.agents())
    (cluster.folder / "log").unlink()
    if meanwhile == "a task ends":
        (cluster.folder / "go").touch()
    run = cluster.resume()
    event = next_event(run, "resumed")
    assert (event["settled"], event["again"]) == (4, 0)
    assert set(cluster.agents()) == before, "the pool is the same"
    second = cluster.resume()
    assert second.wait(timeout=60) == 2
    assert "is resumed already" in cluster.errors()
    finished(cluster, run)
    assert ran(cluster) == ["d"], "what was done or ran is not run again"
    assert {task["attempts"] for task in cluster.run_json["tasks"]} == {1}


def test_a_killed_run_whose_first_node_is_gone_goes_on_in_a_new_pool(cluster: DaskCluster) -> None:
    run = started(cluster)
    run.kill()
    run.wait()
    os.kill(cluster.agent_of(0), signal.SIGKILL)
    before = set(cluster.agents())
    (cluster.folder / "log").unlink()
    run = cluster.resume()
    event = next_event(run, "resumed")
    assert (event["settled"], event["again"]) == (3, 1)
    assert not before & set(cluster.agents()), "the agents and nodes of the killed run have ended"
    finished(cluster, run)
    assert sorted(ran(cluster)) == ["a0", "c", "d"]
    assert len(cluster.run_json["nodes"]) == 4


def test_a_killed_run_whose_host_is_gone_makes_what_lay_there_again(cluster: DaskCluster) -> None:
    run = started(cluster)
    run.kill()
    run.wait()
    there, agent = cluster.node_of(2), cluster.agent_of(1)
    os.kill(agent, signal.SIGKILL)
    (cluster.folder / "log").unlink()
    run = cluster.resume()
    next_event(run, "resumed")
    assert there in cluster.agents(), "the rest of the pool is the same"
    finished(cluster, run)
    assert sorted(ran(cluster)) in (["d"], ["a0", "d"], ["c", "d"], ["a0", "c", "d"])


def test_a_run_on_a_cluster_reuses_results_of_an_earlier_one(cluster: DaskCluster) -> None:
    (cluster.folder / "go").touch()
    assert cluster.run("--workers", "2").returncode == 0
    (cluster.folder / "log").unlink()
    first, again = cluster.report, cluster.folder / "again"
    cluster.report, cluster.out = again, cluster.folder / "out2"
    done = cluster.run("--workers", "2", "--reuse", str(first), "--export", "A")
    assert done.returncode == 0, done.stderr
    assert sorted(ran(cluster)) == ["a0", "a1"], "only what was not exported is made again"
    assert outputs(cluster) == {"A[0]": "tide\na0\n", "A[1]": "tide\na1\n", **OUTPUTS}
    assert all(str(cluster.out) in member["exported"] for member in cluster.run_json["data"] if member.get("exported"))
    cluster.assert_nothing_left()
