"""Hosts, workers and schedulers that die while a run goes on: the right result comes all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import TOOLS, DaskCluster, dask_cluster, next_event, next_warning
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

# Eight chains of two tasks, whose second ones wait for the file GO before they copy.
CHAINS = """
var i = Data.get("in.txt");
var a = Data.define("A", 8), b = Data.define("B", 8), c = Data.define("C");
for (var k = 0; k < 8; k++) {
    make({from: i, to: a[k], word: "w" + k});
    shell({from: a[k], to: b[k], script: 'echo began >> BEGAN; while [ ! -e GO ]; do sleep 0.02; done; cat "$1" > "$2"; echo run >> COUNT'});
}
join({from: b, to: c});
"""
RESULT = "".join(f"tide\nw{k}\n" for k in range(8))


@pytest.fixture
def cluster(binary: Path, tmp_path: Path) -> Iterator[DaskCluster]:
    """Three hosts: the user's with the scheduler, and two with a worker of two threads."""
    with hosts.network(tmp_path, 3) as net, dask_cluster(binary, tmp_path, net, {1: 2, 2: 2}) as made:
        made.script(CHAINS.replace("GO", str(tmp_path / "go")).replace("COUNT", str(tmp_path / "count")).replace("BEGAN", str(tmp_path / "began")))
        yield made


def started(cluster: DaskCluster, *flags: str) -> subprocess.Popen[str]:
    """A run in which a second task waits in each of the four slots."""
    run = cluster.start("--workers", "2", *flags)
    for _ in range(4):
        next_event(run, "task_started", tool="shell")
    # The event comes before the order has reached its host.
    began = cluster.folder / "began"
    wait_for(lambda: began.exists() and len(began.read_text().split()) >= 4, "the tasks did not begin")
    return run


def finish(cluster: DaskCluster, run: subprocess.Popen[str], result: str = RESULT) -> list[dict]:
    """Lets the run go on to its end; returns its tasks."""
    (cluster.folder / "go").touch()
    run.stdout.read()
    assert run.wait(timeout=100) == 0, cluster.errors()
    assert (cluster.out / "C.txt").read_text() == result
    cluster.assert_nothing_left()
    return cluster.run_json["tasks"]


def test_tasks_and_data_of_a_killed_node_are_made_again(cluster: DaskCluster) -> None:
    run = started(cluster)
    os.kill(cluster.node_of(1), signal.SIGKILL)
    next_warning(run, "is lost")
    tasks = finish(cluster, run)
    again = [task["tool"] for task in tasks if task["attempts"] > 1]
    assert 0 < again.count("make") < 8, "only what lay there was made again"


@pytest.mark.parametrize("victim", [1, 2])
def test_a_lost_host_takes_its_copies_along_or_what_others_copied(cluster: DaskCluster, victim: int) -> None:
    # One host has what all second tasks read, and the other one a copy.
    (cluster.data / "in.txt").write_text("tide\n" * 50_000)
    script = cluster.workflow.read_text().replace("make({from: i, to: a[k]", "if (k == 0) make({from: i, to: a").replace("shell({from: a[k]", "shell({from: a")
    cluster.script(script.replace('Data.define("A", 8)', 'Data.define("A")').replace('cat "$1"', 'cat "$1" | sort -u'))
    run = started(cluster)
    os.kill(cluster.node_of(victim), signal.SIGKILL)
    next_warning(run, "is lost")
    tasks = finish(cluster, run, "tide\nw0\n" * 8)
    assert any(task["attempts"] > 1 for task in tasks)


def test_a_tool_that_goes_on_after_a_read_error_does_not_decide_the_result(cluster: DaskCluster) -> None:
    # Four tasks on both hosts read a file of one of them, which dies before they do.
    folder = cluster.folder
    script = f'echo began >> {folder}/began; while [ ! -e {folder}/go ]; do sleep 0.02; done; cat "$1" > "$2"; true'
    cluster.script(f"""
        var i = Data.get("in.txt"), a = Data.define("A"), b = Data.define("B", 4), c = Data.define("C");
        make({{from: i, to: a, word: "w"}});
        for (var k = 0; k < 4; k++) shell({{from: a, to: b[k], script: {json.dumps(script)}}});
        join({{from: b, to: c}});
    """)
    run = started(cluster)
    victim = host_of_task(cluster, 0)
    os.kill(cluster.node_of(victim), signal.SIGKILL)
    tasks = finish(cluster, run, "tide\nw\n" * 4)
    assert sum(task["attempts"] > 1 for task in tasks if task["tool"] == "shell") >= 2


def host_of_task(cluster: DaskCluster, task: int) -> int:
    """The host at which a task of the run that goes on was started last."""
    records = [json.loads(line) for line in (cluster.report / "journal.jsonl").read_text().splitlines()]
    names = {record["worker"]: record["name"] for record in records if record.get("event") == "worker_joined"}
    worker = [record["worker"] for record in records if record.get("event") == "started" and record["task"] == task][-1]
    return next(host for host in (1, 2) if cluster.net.address(host) == names[worker])


def test_a_killed_agent_takes_its_tools_along_and_the_host_computes_on(cluster: DaskCluster) -> None:
    run = started(cluster)
    os.kill(cluster.agent_of(2), signal.SIGKILL)
    next_warning(run, "is lost")
    tasks = finish(cluster, run)
    assert any(task["attempts"] > 1 for task in tasks)


def test_a_worker_that_its_nanny_restarts_finds_its_tasks(cluster: DaskCluster) -> None:
    run = started(cluster)
    log = (cluster.folder / "w1.log").read_bytes
    registered = log().count(b"Registered to")
    nanny = cluster.processes["w1"].pid
    for pid in children(nanny):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: log().count(b"Registered to") > registered, "the nanny did not restart its worker")
    tasks = finish(cluster, run)
    assert all(task["attempts"] == 1 for task in tasks), "nothing ran again"


def test_tasks_go_on_while_the_scheduler_is_away(cluster: DaskCluster) -> None:
    run = started(cluster)
    cluster.kill("scheduler")
    next_warning(run, "cannot be reached")
    for worker in ("w1", "w2"):
        cluster.kill(worker)
    (cluster.folder / "go").touch()
    count = cluster.folder / "count"
    wait_for(lambda: count.exists() and len(count.read_text().split()) >= 4, "the tasks did not go on")
    cluster.start_scheduler()
    cluster.start_worker("w1", 1, 2)
    cluster.start_worker("w2", 2, 2)
    tasks = finish(cluster, run)
    assert all(task["attempts"] == 1 for task in tasks), "nothing ran again"


def test_a_host_that_is_cut_off_loses_its_lease(cluster: DaskCluster) -> None:
    run = started(cluster, "--lease", "5")
    cluster.net.cut(2)
    next_warning(run, "is lost")
    (cluster.folder / "go").touch()
    run.stdout.read()
    assert run.wait(timeout=100) == 0, cluster.errors()
    assert (cluster.out / "C.txt").read_text() == RESULT


def test_a_host_whose_workers_leave_ends_its_tasks_and_gets_no_new_ones(cluster: DaskCluster) -> None:
    run = started(cluster)
    retire(cluster, 1)
    next_warning(run, f"{cluster.net.address(1)} has no Dask worker any more")
    tasks = finish(cluster, run)
    assert all(task["attempts"] == 1 for task in tasks), "its tasks ended, and its data was read"
    (node,) = (number for number, node in enumerate(cluster.run_json["nodes"]) if node["name"] == cluster.net.address(1))
    assert sum(task["tool"] == "shell" and task["node"] == node for task in tasks) == 2, "it got no new ones"


def test_a_host_that_gets_workers_again_gets_tasks_again(cluster: DaskCluster) -> None:
    run = started(cluster)
    retire(cluster, 1)
    next_warning(run, "has no Dask worker any more")
    cluster.start_worker("again", 1, 3)
    retire(cluster, 2)
    next_warning(run, f"{cluster.net.address(2)} has no Dask worker any more")
    tasks = finish(cluster, run)
    assert all(task["attempts"] == 1 for task in tasks)
    slots = {node["name"]: node["slots"] for node in cluster.run_json["nodes"]}
    assert slots == {cluster.net.address(1): 3, cluster.net.address(2): 2}, "no new agent was needed"


def test_a_run_that_waits_for_a_larger_host_says_so(cluster: DaskCluster) -> None:
    cluster.tools.write_text(
        TOOLS
        + '\n[tools.wide]\ncommand = ["cat", "{from}"]\nstdout = "{to}"\ninputs.from = { array = "args" }\noutputs.to = { extension = ".txt" }\ncpus = 2\n'
    )
    cluster.workflow.write_text(cluster.workflow.read_text().replace("join(", "wide("))
    run = started(cluster)
    for host in (1, 2):
        cluster.kill(f"w{host}")
        next_warning(run, f"{cluster.net.address(host)} has no Dask worker any more")
        cluster.start_worker(f"narrow{host}", host, 1)
    (cluster.folder / "go").touch()
    why = next_warning(run, "nothing runs")
    assert "wide needs 2 processors, more than any host that is left has; it waits for one to join" in why
    cluster.start_worker("more", 2, 1)
    finish(cluster, run)
    assert why in cluster.run_json["warnings"]


def retire(cluster: DaskCluster, host: int) -> None:
    """Retires the worker of a host, as adaptive scaling does."""
    code = "import sys, distributed; distributed.Client(sys.argv[1]).retire_workers(names=[sys.argv[2]], close_workers=True)"
    address = cluster.address.replace("dask", "tcp")
    command = cluster.net.inside(cluster.scheduler_host, sys.executable, "-c", code, address, f"w{host}")
    subprocess.run(command, env=cluster.environment(cluster.scheduler_host), check=True, timeout=60)


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
