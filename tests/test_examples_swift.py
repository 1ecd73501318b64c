"""The Swift examples: docking against plain Python, and places of tasks on the hosts of a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster
from example_runs import EXAMPLES, Run, ended, tree

SWIFT = EXAMPLES / "swift"
MOLECULES = 3
MIB = 1 << 20

on_hosts = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))


def plain(program: str, *arguments: object) -> str:
    """The output of a program of the examples."""
    words = [sys.executable, "-B", SWIFT / program, *arguments]
    return ended([str(word) for word in words], 0).stdout


@pytest.fixture(scope="module", autouse=True)
def _own_python() -> Iterator[None]:
    """Runs the programs by the tests' own Python: another `python3` in PATH may take long to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        yield


@pytest.fixture(scope="module")
def molecules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of molecules."""
    folder = tmp_path_factory.mktemp("molecules")
    plain("molecules.py", folder, "--count", MOLECULES, "--seed", 4)
    return folder


def assert_docked(done: Run, molecules: Path) -> None:
    """Fails unless a run has docked all pairs, and counted their labels as serial.py does."""
    expected = plain("serial.py", molecules)
    assert len(expected.splitlines()) == 3, "each label occurs"
    assert {name: text.decode() for name, text in done.files().items()} == {"results.txt": expected}
    assert done.tools() == {"dock": MOLECULES**2, "match": MOLECULES**2, "merge": 1}


def test_docking_counts_the_labels_that_plain_python_counts(binary: Path, storage: str, molecules: Path, tmp_path: Path) -> None:
    done = Run(tmp_path / "out", tmp_path / "report")
    places = ["--data", molecules, "--out", done.out, "--report", done.report]
    command = [binary, "run", SWIFT / "docking.swift", *places, "--", f"--programs={SWIFT}"]
    ended([str(word) for word in command], 0, cwd=tmp_path, env=os.environ | {"TIDEMILL_STORAGE": storage})
    assert_docked(done, molecules)


def test_docking_finds_its_programs_in_the_data_directory(binary: Path, molecules: Path, tmp_path: Path) -> None:
    data = shutil.copytree(molecules, tmp_path / "data")
    for name in ("dock.py", "match.py", "merge.py"):
        shutil.copy(SWIFT / name, data)
    command = [str(binary), "flow", "check", str(SWIFT / "docking.swift"), "--data", str(data)]
    assert "3 app functions; all is well" in ended(command, 0, cwd=tmp_path).stdout


def test_molecules_of_one_seed_are_the_same(molecules: Path, tmp_path: Path) -> None:
    plain("molecules.py", tmp_path / "again", "--count", MOLECULES, "--seed", 4)
    plain("molecules.py", tmp_path / "other", "--count", MOLECULES, "--seed", 2)
    assert tree(tmp_path / "again") == tree(molecules)
    assert tree(tmp_path / "other") != tree(molecules)


def test_the_readers_next_door_need_a_second_host(binary: Path, tmp_path: Path) -> None:
    command = [str(binary), "run", str(SWIFT / "locality.swift"), "--", "--mode=remote"]
    assert "--mode=remote needs two hosts" in ended(command, 1, cwd=tmp_path).stderr


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, and two with a worker of two threads."""
    folder = tmp_path_factory.mktemp("cluster")
    with hosts.network(folder, 3) as net, dask_cluster(binary, folder, net, {1: 2, 2: 2}) as made:
        yield made


def run(cluster: DaskCluster, name: str, *arguments: str) -> list[dict]:
    """Runs a script of the examples that succeeds; its tasks in run.json."""
    cluster.workflow = SWIFT / f"{name}.swift"
    shutil.rmtree(cluster.out, ignore_errors=True)
    done = cluster.run("--workers", "2", "--", *arguments)
    assert done.returncode == 0, done.stderr
    return cluster.run_json["tasks"]


def sums(cluster: DaskCluster) -> dict[str, bytes]:
    """The check sums that the readers of locality.swift wrote, each of another file of 1 MiB."""
    found = tree(cluster.out / "sums")
    assert sorted(found) == [f"{number:02}.txt" for number in range(32)]
    assert {text.split()[1] for text in found.values()} == {str(MIB).encode()}
    assert len(set(found.values())) == 32
    return found


@on_hosts
def test_docking_on_hosts_counts_the_same(cluster: DaskCluster, molecules: Path) -> None:
    cluster.data = molecules
    tasks = run(cluster, "docking", f"--programs={SWIFT}")
    assert_docked(Run(cluster.out, cluster.report), molecules)
    assert {task["node"] for task in tasks} == {0, 1}
    cluster.assert_nothing_left()


@on_hosts
def test_each_file_is_read_where_the_mode_says(cluster: DaskCluster) -> None:
    """Paper 002, section V: 32 tasks write, 32 tasks read, at the same host or at another."""
    found, reads = {}, {}
    for mode in ("local", "remote", "balanced"):
        tasks = run(cluster, "locality", f"--mode={mode}", "--mb=1")
        found[mode], reads[mode] = sums(cluster), cluster.run_json["totals"]["reads"]
        writers = {task["outputs"][0]: task["node"] for task in tasks if task["tool"] == "write_mb"}
        near = [writers[task["inputs"][0]] == task["node"] for task in tasks if task["tool"] == "read_all"]
        assert len(near) == 32
        assert mode == "balanced" or set(near) == {mode == "local"}
        assert set(writers.values()) == {0, 1}
    assert found["local"] == found["remote"] == found["balanced"]
    # A file may count with the memory of its inode.
    for mode in ("local", "remote"):
        assert 32 * MIB <= reads[mode].pop(mode) < 33 * MIB
        assert set(reads[mode].values()) == {0}
    assert 32 * MIB <= sum(reads["balanced"].values()) < 33 * MIB
    assert reads["balanced"]["local"] > 0


@on_hosts
def test_the_stricter_a_place_is_the_less_may_idle_slots_help(cluster: DaskCluster) -> None:
    """Paper 002, section V: tasks at chosen places load slots unevenly, unless the place is a host or a wish."""
    # Tasks of less than half a second are sent ahead to the host that they prefer, and stay there.
    lengths_ms = {"rank": 100, "node": 100, "soft": 2000, "balanced": 100}
    slots = {how: placed(cluster, how, longest_ms) for how, longest_ms in lengths_ms.items()}
    ranks = {f"works/{number:02}.txt": number % 4 for number in range(16)}
    hosts_of_ranks = {name: rank // 2 for name, rank in ranks.items()}
    assert slots["rank"] == {name: (rank // 2, rank) for name, rank in ranks.items()}
    assert slots["node"] != slots["rank"], "slots of a host help each other"
    assert nodes(slots["node"]) == hosts_of_ranks
    for how in ("node", "soft", "balanced"):
        assert {slot for _, slot in slots[how].values()} == {0, 1, 2, 3}, "no slot is idle all the time"
    assert Counter(nodes(slots["soft"]).values())[1] > 8, "the host with the short tasks helps the other one"
    assert nodes(slots["balanced"]) != hosts_of_ranks
    cluster.assert_nothing_left()


def placed(cluster: DaskCluster, how: str, longest_ms: int) -> dict[str, tuple[int, int]]:
    """The node and slot of the writer of each file of imbalance.swift."""
    tasks = run(cluster, "imbalance", f"--how={how}", f"--ms={longest_ms}")
    written = {name: text.split() for name, text in tree(cluster.out / "works").items()}
    assert written == {f"{number:02}.txt": [b"%d" % number, b"%d" % (number % 4)] for number in range(16)}
    found = {task["outputs"][0]: (task["node"], task["slot"]) for task in tasks}
    assert_summary(cluster, found)
    return found


def nodes(slots: dict[str, tuple[int, int]]) -> dict[str, int]:
    """The node alone of each writer."""
    return {name: node for name, (node, _) in slots.items()}


def assert_summary(cluster: DaskCluster, slots: dict[str, tuple[int, int]]) -> None:
    """Fails unless slots.py has a line for each slot, and one for each kind of read."""
    counts = Counter(slots.values())
    lines = plain("slots.py", cluster.report).splitlines()
    assert [line.partition(" tasks")[0] for line in lines[1:-3]] == [f"node {node}, slot {slot}: {counts[node, slot]:3}" for node, slot in sorted(counts)]
    assert lines[-3:] == ["local: 0.0 MiB", "cached: 0.0 MiB", "remote: 0.0 MiB"]
