"""Runs on a cluster: real Dask, and hosts that are network namespaces with an address each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import hosts
import jsonschema
import pytest
from dask_clusters import TOOLS, DaskCluster, dask_cluster
from example_runs import ROOT

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

FAN = """
var i = Data.get("in.txt");
var a = Data.define("A", 8), b = Data.define("B", 8), c = Data.define("C");
for (var k = 0; k < 8; k++) {
    make({from: i, to: a[k], word: "w" + k});
    copy({from: a[k], to: b[k]});
}
join({from: b, to: c});
"""
FAN_RESULT = "".join(f"tide\nw{k}\n" for k in range(8))


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """Three hosts: the user's with the scheduler, and two with a worker of two threads."""
    folder = tmp_path_factory.mktemp("cluster")
    with hosts.network(folder, 3) as net, dask_cluster(binary, folder, net, {1: 2, 2: 2}) as made:
        yield made


@pytest.mark.parametrize("storage", ["mount", "preload", "staging"])
def test_a_workflow_runs_on_the_workers_and_leaves_nothing(cluster: DaskCluster, storage: str) -> None:
    cluster.script(FAN)
    done = cluster.run("--workers", "2", "--storage", storage)
    assert done.returncode == 0, done.stderr
    assert (cluster.out / "C.txt").read_text() == FAN_RESULT
    report = cluster.run_json
    assert [node["name"] for node in report["nodes"]] == [cluster.net.address(1), cluster.net.address(2)]
    assert {task["node"] for task in report["tasks"]} == {0, 1}, "both hosts had tasks"
    assert (report["settings"]["slots"], report["settings"]["mode"]) == (4, storage)
    assert report["warnings"] == []
    cluster.assert_nothing_left()


def test_copies_run_where_what_they_copy_was_made(cluster: DaskCluster) -> None:
    # Large enough that reading from afar takes longer than waiting for a place.
    (cluster.data / "large.bin").write_bytes(bytes(4 << 20))
    cluster.script(FAN.replace("in.txt", "large.bin").replace("8", "6"))
    assert cluster.run("--workers", "2").returncode == 0
    report = cluster.run_json
    node_of = {output: task["node"] for task in report["tasks"] for output in task["outputs"]}
    pairs = [(node_of[f"A[{k}]"], node_of[f"B[{k}]"]) for k in range(6)]
    assert sum(made == copied for made, copied in pairs) >= 5, pairs
    assert report["totals"]["reads"]["local"] > report["totals"]["reads"]["remote"] > 0


def test_short_tasks_are_sent_ahead_and_no_more_run_at_once_than_a_host_has_threads(cluster: DaskCluster) -> None:
    # Each takes one of the two places of its host while it runs.
    take = "d=$XDG_RUNTIME_DIR/place; mkdir $d.1 2> /dev/null && exec rmdir $d.1; mkdir $d.2 && exec rmdir $d.2"
    cluster.tools.write_text(f'version = 1\n[tools.take]\ncommand = ["sh", "-c", "{take}"]\n')
    cluster.script("for (var k = 0; k < 400; k++) { take({}); }")
    done = cluster.run("--workers", "2")
    cluster.tools.write_text(TOOLS)
    assert done.returncode == 0, done.stderr
    report = cluster.run_json
    assert {task["attempts"] for task in report["tasks"]} == {1}
    assert {task["slot"] for task in report["tasks"]} == {0, 1, 2, 3}, "the report shows threads"
    assert (cluster.report / "journal.jsonl").read_text().count('"reason":"sent-ahead"') > 100


def test_the_report_of_a_cluster_follows_its_schema(cluster: DaskCluster) -> None:
    cluster.script(FAN)
    assert cluster.run("--workers", "2", "--keep").returncode == 0
    schema = json.loads((ROOT / "docs/formats/run.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(cluster.run_json)
