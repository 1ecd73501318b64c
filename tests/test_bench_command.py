"""`tidemill bench`: every small experiment runs on every target and leaves nothing behind.

Times are not checked.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
import servers
from example_runs import ROOT
from waiting import wait_for

SECONDS_MAX = 120


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose path is in the command lines of all processes of a benchmark."""
    with tempfile.TemporaryDirectory(prefix="tidemill-test-", dir="/tmp") as made:
        yield Path(made)


def bench(binary: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a benchmark to its end."""
    environment = os.environ | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    command = [str(binary), "bench", *words]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def rows(binary: Path, folder: Path, *words: str) -> list[dict[str, object]]:
    """The measurements of a benchmark; checks that it left nothing behind."""
    done = bench(binary, folder, *words, "--runs", "2", "--json", "rows.json", "--plot", "plot.svg")
    assert done.returncode == 0, done.stderr
    assert (folder / "plot.svg").read_text().startswith("<svg")
    measured = json.loads((folder / "rows.json").read_text())
    assert len(done.stderr.splitlines()) == len(measured), done.stderr
    for made in ("rows.json", "plot.svg"):
        (folder / made).unlink()
    assert nothing_is_left(folder)
    return measured


def nothing_is_left(folder: Path) -> bool:
    """True if no process of the benchmark runs, its directory has only lock files, and its hosts are gone."""
    left = [path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return not left and not processes(folder) and not hosts_of_the_dead()


def hosts_of_the_dead() -> list[str]:
    """Network namespaces of benchmarks that have ended; other tests may be running theirs."""
    made = (re.fullmatch(r"tb(\d+)h\d+", path.name) for path in Path("/run/netns").glob("*"))
    return [found[0] for found in made if found and not Path("/proc", found[1]).exists()]


def processes(folder: Path) -> list[str]:
    """Nodes whose pool file is in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in line and b"node" in line.split(b"\0"):
                found.append(line.decode())
    return found


@pytest.mark.parametrize(("experiment", "cases"), [("chunks", 1), ("io-nodes", 4), ("crowded", 4), ("worker-nodes", 4)])
def test_each_experiment_of_the_paper_runs_on_pools_and_folders(binary: Path, folder: Path, experiment: str, cases: int) -> None:
    (folder / "plain").mkdir()
    measured = rows(binary, folder, "filecopy", "--experiment", experiment, "--file-size", "1MiB", "--on", f"pool,dir:{folder}/plain")
    assert [row["target"] for row in measured] == ["pool", f"dir:{folder}/plain"] * cases
    for row in measured:
        for phase in ("write", "read"):
            assert len(row[phase]["megabytes_per_second"]["runs"]) == 2
            assert row[phase]["megabytes_per_second"]["median"] > 0


def test_redis_and_memcached_do_the_same_work(binary: Path, folder: Path) -> None:
    command = [sys.executable, str(ROOT / "bench/filecopy.py"), "--binary", str(binary), "--out", str(folder / "out"), "--disk", str(folder)]
    small = ["--experiments", "io-nodes", "--ways", "unshaped", "--runs", "1", "--scale", "0.002"]
    done = subprocess.run([*command, *small], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    kinds = [str(row["target"]).split(":", maxsplit=1)[0] for row in json.loads((folder / "out/io-nodes.json").read_text())]
    assert kinds == ["pool", "dir", "dir", "redis", "memcached"] * 4


@pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))
def test_hosts_with_links_of_their_own_come_and_go(binary: Path, folder: Path) -> None:
    flags = ["filecopy", "--links", "480,900", "--io-nodes", "2", "--worker-nodes", "2", "--workers", "1", "--file-size", "4MiB"]
    [row] = rows(binary, folder, *flags)
    assert row["links_mbit"] == {"workers": 480, "io_nodes": 900}
    # The links allow bursts, so over so few bytes the measured rate may exceed theirs a little.
    assert 0 < row["write"]["of_the_links"] < 2


@pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))
def test_files_near_and_far_are_measured_beside_a_shared_directory(binary: Path, folder: Path) -> None:
    (folder / "plain").mkdir()
    small = ["--files", "8", "--file-size", "1MiB", "--chunk-size", "256KiB", "--no-tls", "--shared", f"{folder}/plain", "--shared-rate", "400"]
    measured = rows(binary, folder, "locality", "--across", "nodes", *small)
    kinds = ["remote", "local", "shared directory"]
    assert [(row["nodes"], row["kept"]) for row in measured] == [(count, kind) for count in (1, 2, 4, 8) for kind in kinds if (count, kind) != (1, "remote")]
    for row in measured:
        for phase in ("write", "read"):
            assert row[phase]["megabytes_per_second_each"] * row["nodes"] == pytest.approx(row[phase]["megabytes_per_second"]["median"])
            assert ("of_remote" in row[phase]) == (row["kept"] == "local" and row["nodes"] > 1)


def test_metadata_is_measured_in_every_layout(binary: Path, folder: Path) -> None:
    (folder / "plain").mkdir()
    measured = rows(binary, folder, "metadata", "--files", "200", "--workers", "1,2", "--io-nodes", "2", "--on", f"pool,dir:{folder}/plain")
    assert len(measured) == 4 * 2 * 2
    phases = {row["layout"]: list(row["phases"]) for row in measured}
    assert phases["one-directory"] == phases["tree"] == ["create", "stat", "read", "rename", "remove"]
    assert phases["own-file"] == phases["shared-file"] == ["stat", "read"]
    assert all(phase["per_second"]["median"] > 0 for row in measured for phase in row["phases"].values())


def test_objects_are_measured_in_every_store(binary: Path, folder: Path) -> None:
    (folder / "plain").mkdir()
    sizes = ["--size", "64,128KiB", "--under-way", "1,4", "--workers", "2", "--objects", "200"]
    with servers.redis(folder) as redis, servers.memcached(folder, 512) as memcached:
        targets = ["--on", f"pool,dir:{folder}/plain,redis:{redis},memcached:{memcached}"]
        measured = rows(binary, folder, "objects", "--io-nodes", "2", *sizes, *targets)
    assert len(measured) == 2 * 2 * 4
    assert all(row[verb]["per_second"]["median"] > 0 for row in measured for verb in ("put", "get"))


def test_an_interrupted_benchmark_leaves_nothing(binary: Path, folder: Path) -> None:
    environment = os.environ | {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    command = [str(binary), "bench", "filecopy", "--runs", "99", "--workers", "2", "--file-size", "64MiB"]
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(processes(folder)), "no node has started")
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS_MAX) == 128 + signal.SIGTERM
    assert nothing_is_left(folder)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["filecopy", "--on", "disk:/tmp"], "`disk:/tmp` is not a target"),
        (["filecopy", "--on", "dir:/not/there"], "/not/there: there is no such directory"),
        (["filecopy", "--on", "redis:127.0.0.1:1"], "redis at 127.0.0.1:1: Connection refused"),
        (["filecopy", "--links", "480"], "--links takes two numbers"),
        (["filecopy", "--links", "1,1", "--on", "dir:/tmp"], "has no links that could be shaped"),
        (["filecopy", "--file-size", "0"], "at least one byte"),
        (["filecopy", "--pool", "/not/there"], "/not/there"),
        (["filecopy", "--json", "/not/there/rows"], "/not/there/rows: no file can be written there"),
        (["filecopy", "--experiment", "chunks", "--chunk-size", "1MiB"], "cannot be used with"),
        (["filecopy", "--experiment", "chunks", "--io-nodes", "2"], "cannot be used with"),
        (["metadata", "--on", "memcached:127.0.0.1:1"], "has no metadata to measure"),
    ],
)
def test_what_cannot_be_measured_is_said(binary: Path, folder: Path, words: list[str], said: str) -> None:
    done = bench(binary, folder, *words)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert nothing_is_left(folder)
