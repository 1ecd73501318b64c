"""Inputs that many tasks read are copied to the nodes of hosts: each comes once, and copies go first when a node gets full."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster
from hosts import Network

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

MIB = 1 << 20
# Each task reads a file of its own beside the one that all read. Hosts have the last file
# themselves, but use their own files only if they have all.
SHARE = """
var large = Data.get("private/large.bin"), c = Data.define("C", 6);
for (var k = 0; k < 6; k++) join({from: [large, Data.get("private/small" + k), Data.get("seen.txt")], to: c[k]});
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """The hosts of both clusters."""
    with hosts.network(tmp_path_factory.mktemp("net"), 5) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(binary: Path, net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, and two of two slots that do not see all of the user's data."""
    with blind_cluster(binary, tmp_path_factory.mktemp("cluster"), net, 0, {1: 2, 2: 2}) as made:
        yield made


@pytest.fixture(scope="module")
def small(binary: Path, net: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The same with one host of one slot."""
    with blind_cluster(binary, tmp_path_factory.mktemp("small"), net, 3, {4: 1}) as made:
        yield made


@contextmanager
def blind_cluster(binary: Path, folder: Path, net: Network, scheduler: int, workers: dict[int, int]) -> Iterator[DaskCluster]:
    """A cluster with a worker of so many threads on each of these hosts, which do not see what is private."""
    made = DaskCluster(binary, folder, net, scheduler)
    (made.data / "private").mkdir()
    try:
        made.start_scheduler()
        for host, threads in workers.items():
            made.start_worker(f"w{host}", host, threads, hidden=[made.data / "private"])
        yield made
    finally:
        made.close()


def write_input(cluster: DaskCluster, name: str, mib: int) -> bytes:
    """Writes an input; returns its bytes."""
    content = name.encode().ljust(MIB, b"~") * mib
    (cluster.data / "private" / name).write_bytes(content)
    return content


def run(cluster: DaskCluster, script: str, *flags: str) -> dict[str, int]:
    """Runs a workflow that succeeds; returns where its tasks had their bytes from."""
    cluster.script(script)
    done = cluster.run(*flags)
    assert done.returncode == 0, done.stderr
    cluster.assert_nothing_left()
    return cluster.run_json["totals"]["reads"]


@pytest.mark.parametrize("storage", ["mount", "preload", "staging"])
def test_an_input_of_many_tasks_comes_to_each_host_once(cluster: DaskCluster, storage: str) -> None:
    content = write_input(cluster, "large.bin", 8)
    for k in range(6):
        (cluster.data / f"private/small{k}").write_text("beside it")
    (cluster.data / "seen.txt").write_text(", seen")
    before = cluster.net.sent_bytes(0)
    reads = run(cluster, SHARE, "--workers", "2", "--storage", storage)
    sent = cluster.net.sent_bytes(0) - before
    assert all((cluster.out / f"C/C_{k}.txt").read_bytes() == content + b"beside it, seen" for k in range(6))
    used = len({task["node"] for task in cluster.run_json["tasks"]})
    assert reads == {"local": 0, "cached": (6 - used) * 8 * MIB, "remote": used * 8 * MIB + 6 * len("beside it, seen")}
    assert used * 8 * MIB < sent < used * 8 * MIB + 4 * MIB


def test_a_temporary_of_many_tasks_comes_to_the_other_host_once(cluster: DaskCluster) -> None:
    content = write_input(cluster, "large.bin", 8)
    before = [cluster.net.sent_bytes(host) for host in (1, 2)]
    script = 'var t = Data.define("T"); copy({from: Data.get("private/large.bin"), to: t});'
    script += 'var c = Data.define("C", 8); for (var k = 0; k < 8; k++) shell({from: t, to: c[k], script: "sha256sum < $1 > $2"});'
    reads = run(cluster, script, "--workers", "2", "--policy", "fifo")
    sent = sum(cluster.net.sent_bytes(host) - start for host, start in zip((1, 2), before, strict=True))
    assert len({(cluster.out / f"C/C_{k}").read_text() for k in range(8)}) == 1
    read = [round(reads[part] / len(content), 2) for part in ("local", "cached", "remote")]
    assert (read[0] + read[1], read[2]) == (7, 2), "the input and the temporary came from afar once"
    assert sent < 2 * len(content)


def test_copies_go_when_a_node_gets_full_and_results_are_right(small: DaskCluster) -> None:
    # Each of four inputs takes more than a third of what copies may take: 16 MiB.
    contents = [write_input(small, f"in{k}.bin", 6) for k in range(4)]
    script = 'var c = Data.define("C", 24); for (var k = 0; k < 24; k++) copy({from: Data.get("private/in" + Math.floor(k / 2) % 4 + ".bin"), to: c[k]});'
    reads = run(small, script, "--policy", "fifo")
    assert all((small.out / f"C/C_{k:02}").read_bytes() == contents[k // 2 % 4] for k in range(24))
    assert reads["remote"] > 4 * 6 * MIB, "copies went, and came again"
    assert reads["cached"] > 0


@pytest.mark.parametrize("policy", ["algorithm1", "locality"])
def test_a_lane_of_algorithm1_leaves_no_copies_behind(small: DaskCluster, policy: str) -> None:
    write_input(small, "A.bin", 2)
    write_input(small, "B.bin", 2)
    # The tasks of A come first, since its copy is there; the last one waits for those of B.
    script = """
    var a = Data.get("private/A.bin"), b = Data.get("private/B.bin"), x = Data.define("X", 3), y = Data.define("Y", 4);
    for (var k = 0; k < 4; k++) {
        if (k < 3) shell({from: a, to: x[k], script: "ls ${1%/*} > $2"});
        shell({from: b, to: y[k], script: "ls ${1%/*} > $2"});
    }
    join({from: [a, y[0], y[1], y[2], y[3]], to: Data.define("Z")});
    """
    run(small, script, "--policy", policy, "--export", "Y")
    seen = [set((small.out / f"Y/Y_{k}").read_text().split()) for k in range(4)]
    assert seen[-1] == ({"B.bin"} if policy == "algorithm1" else {"A.bin", "B.bin"})


def test_algorithm1_leaves_no_tools_behind_and_they_come_again(small: DaskCluster) -> None:
    # Each tool waits until the copy of the other's files is gone: `...-tools0` and `...-tools1`.
    script = 'while test -e "${{1%?}}$2"; do :; done; cat "$1/mark" "$3" > "$4"'
    file = {"name": "from", "kind": {"input": {}}}, {"name": "to", "kind": {"output": {}}}
    tools = []
    for number in range(2):
        here = small.data / f"private/kit{number}"
        here.mkdir()
        (here / "mark").write_text(f"{number}\n")
        command = ["sh", "-c", script, "sh", "{here}", str(1 - number), "{from}", "{to}"]
        tools.append({"name": f"T{number}", "command": command, "here": str(here), "files": ["mark"], "params": file, "timeout_ms": 60_000})
    # The copy of the second tool's files is there from the beginning, so a first task lets it go.
    names = ["in.txt", "A", "B", "C", "D"]
    elements = [{"name": name, **({"input": name} if name == "in.txt" else {})} for name in names]
    plain = {**tools[1], "name": "Plain", "command": ["cat", "{here}/mark", "{from}"], "stdout": "{to}"}
    calls = zip(("Plain", "T0", "T1", "T0"), names, names[1:], strict=False)
    tasks = [{"tool": tool, "files": {"from": source, "to": target}} for tool, source, target in calls]
    small.workflow = small.folder / "flow.json"
    small.script(json.dumps({"tidemill_flow": 1, "name": "f", "tools": [*tools, plain], "elements": elements, "tasks": tasks}))
    words = small.arguments("--policy", "algorithm1")
    at = words.index("--tools")
    del words[at : at + 2]
    shutil.rmtree(small.report, ignore_errors=True)
    done = subprocess.run(small.net.inside(3, *words), env=small.environment(3), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert (small.out / "D").read_text() == "0\n1\n0\n1\ntide\n"
    small.assert_nothing_left()
    small.workflow = small.folder / "flow.js"
