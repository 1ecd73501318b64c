"""Pools that grow and shrink by themselves: by policies, by commands that start machines, and with a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from test_elastic import managers, put
from test_pool import Home, home  # noqa: F401 - `home` is a fixture
from waiting import wait_for
from workbench import Workbench

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 90


class Policy:
    """`tidemill pool policy` of a pool, while it runs."""

    def __init__(self, at: Home, *flags: str) -> None:
        command = [str(at.binary), "pool", "policy", *flags]
        self.log = at.folder / "policy.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=at.environment, stderr=log, stdin=subprocess.DEVNULL)

    def said(self, text: str) -> bool:
        """Whether it has said this."""
        return text in self.log.read_text()

    def end(self) -> int:
        """Ends it as Ctrl-C does; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS_MAX)


@contextmanager
def policy(at: Home, *flags: str) -> Iterator[Policy]:
    """Lets a pool grow and shrink by itself."""
    running = Policy(at, *flags)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def start(at: Home, *flags: str) -> None:
    """Starts a small pool of one node."""
    at.ok("pool", "start", "--nodes", "1", "--memory", "64MiB", "--partitions", "64", "--slots", "0", *flags)


def nodes(at: Home) -> list[int]:
    """The nodes of the pool file."""
    return sorted(int(str(node["id"])) for node in at.status())


def test_a_pool_grows_while_writers_wait_for_space_and_shrinks_when_it_is_emptied(home: Home) -> None:  # noqa: F811
    start(home, "--max-nodes", "4")
    with policy(home, "cso+csi", "--hold", "1") as running:
        wait_for(lambda: managers(home)["elastic"] is not None, "the managers know of it")
        assert managers(home)["elastic"] == {"policy": "cso+csi", "min": 1, "max": 4}
        # They need three nodes, and no put fails meanwhile.
        data = {f"f{number}": put(home, f"f{number}", 15_000_000) for number in range(10)}
        assert len(nodes(home)) >= 3
        assert all(home.run("get", name, "-").stdout == bytes_put for name, bytes_put in data.items())
        for name in list(data)[1:]:
            home.ok("rm", name)
        wait_for(lambda: nodes(home) == [1], "the nodes that were added leave")
        assert home.run("get", "f0", "-").stdout == data["f0"]
        assert running.end() == 130
        assert managers(home)["elastic"] is None, "the managers know that it has ended"
    events = home.ok("pool", "events")
    assert "cso+csi adds 1 node: " in events
    assert "cso+csi removes" in events
    home.ok("pool", "stop")
    assert home.is_clean()


def test_a_start_command_has_a_machine_join_and_a_stop_command_gets_what_it_printed(home: Home) -> None:  # noqa: F811
    start(home, "--max-nodes", "3")
    join = f"echo machine-of-{{name}}; exec {home.binary} pool join --pool {{pool}} --name {{name}} --memory 64MiB --slots 0"
    stopped = home.folder / "stopped"
    with policy(home, "aso+csi", "--hold", "1", "--start-command", join, "--stop-command", f"echo {{name}} {{output}} >> {stopped}") as running:
        for number in range(5):
            put(home, f"f{number}", 15_000_000)
        assert len(nodes(home)) > 1
        for number in range(5):
            home.ok("rm", f"f{number}")
        wait_for(lambda: nodes(home) == [1], "the machines leave")
        wait_for(stopped.exists, "the stop command has run")
        name, output = stopped.read_text().splitlines()[0].split()
        assert output == f"machine-of-{name}"
        running.end()
    home.ok("pool", "stop")
    assert home.is_clean()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo no machine is free >&2; exit 7 # {pool} {name}", "no machine is free"),
        ("sleep 1000 # {pool} {name}", "no node has joined within 1"),
        ("true # {pool} {name}", "no node has joined within 1"),
    ],
)
def test_a_start_command_that_starts_no_node_is_told_and_the_pool_stays_up(home: Home, command: str, why: str) -> None:  # noqa: F811
    start(home, "--max-nodes", "3")
    home.environment["TIDEMILL_SPACE_WAIT"] = "1"
    with policy(home, "cso", "--start-command", command, "--start-timeout", "1") as running:
        put(home, "f0", 65_000_000)
        wait_for(lambda: running.said(why), "it is told")
        wait_for(lambda: "no node could be added" in home.ok("pool", "events"), "the event log has it")
        assert home.run("get", "f0", "-").stdout
        running.end()
    group = subprocess.run(["pgrep", "-f", "sleep 1000 #"], capture_output=True, check=False)
    assert group.returncode == 1, "a command that hangs is ended"
    home.ok("pool", "stop")
    assert home.is_clean()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["often"], "is no policy"),
        (["cso", "--nodes", "3:2"], "the most nodes are fewer than the least"),
        (["cso", "--nodes", "1:9"], "the pool may have 2 nodes, not 9"),
        (["cso", "--start-command", "sbatch run.sh {pool}"], "has no {name}"),
        (["cso", "--start-command", "run {pool} {name} {host}"], "there is no {host}"),
        (["cso", "--stop-command", "scancel {output}"], "--start-command"),
    ],
)
def test_what_is_no_policy_or_no_command_is_refused(home: Home, flags: list[str], why: str) -> None:  # noqa: F811
    start(home, "--max-nodes", "2")
    assert why in home.fails("pool", "policy", *flags)
    home.ok("pool", "stop")


def test_a_machine_that_is_told_to_end_leaves_with_its_data_moved(home: Home) -> None:  # noqa: F811
    start(home, "--max-nodes", "2")
    kept = put(home, "kept", 20_000_000)
    command = [str(home.binary), "pool", "join", "--memory", "64MiB", "--slots", "0"]
    joined = subprocess.Popen(command, env=home.environment, stderr=subprocess.PIPE, text=True)
    try:
        assert joined.stderr is not None
        assert "node 2 joined" in joined.stderr.readline()
        wait_for(lambda: int(str(home.status()[1]["partitions"])) == 32, "it has its share")
        joined.send_signal(signal.SIGTERM)
        assert joined.wait(SECONDS_MAX) == 143
        assert "node 2 left" in joined.stderr.read()
    finally:
        joined.kill()
        joined.wait()
    assert nodes(home) == [1]
    assert home.run("get", "kept", "-").stdout == kept
    home.ok("pool", "stop")
    assert home.is_clean()


def test_a_workflow_that_outgrows_a_node_ends_on_a_pool_that_grew_and_shrank(bench: Workbench) -> None:
    text, marker = (ROOT / "examples/elastic/workflow.swift").read_text(), bench.root / "marker"
    assert "sleep 1;" in text
    bench.workflow = bench.root / "flow.swift"
    bench.tools.write_text('version = 1\n[tools.unused]\ncommand = ["true"]\n')
    # The last tasks go on when the pool has shrunk. By the preload library they have their output
    # open at nodes that are to leave, and those wait for them.
    awaited = "removes" if bench.storage == "preload" else "has given up"
    bench.script(text.replace("sleep 1;", f"while ! test -e {marker}; do sleep 0.1; done;"))
    with bench.start("--json", "--elastic", "1:4", "--memory", "128MiB", "--slots", "2") as process:
        told: list[str] = []
        while not any(awaited in line for line in told):
            event = bench.next_event(process)
            assert event["event"] != "ended", told
            if event["event"] == "pool" or "cut short" in event.get("text", ""):
                told.append(event["text"])
        marker.touch()
        assert bench.wait_for_event(process, "ended")["outcome"] == "done"
    assert (bench.out / "bytes.txt").read_text().split() == ["240000000"]
    assert len(list((bench.out / "refined").iterdir())) == 20
    assert "will be used" in told[0], "it grew before it was full"
    assert not any("cut short" in line for line in told), "no write was refused"
    report = json.loads((bench.report / "run.json").read_text())
    capacities = [sample[2] for sample in report["pool"]["samples"]]
    assert max(capacities) >= 2 * capacities[0]
    assert bench.storage == "preload" or capacities[-1] < max(capacities)
    assert bench.leftovers() == []


def test_a_killed_run_leaves_no_node_of_its_pool(bench: Workbench) -> None:
    bench.workflow = bench.root / "flow.swift"
    bench.tools.write_text('version = 1\n[tools.unused]\ncommand = ["true"]\n')
    bench.script('app (file o) sleeps() { "sh" "-c" "sleep 1000 > $0" o }\nfile f<"f"> = sleeps();')
    process = bench.start("--elastic", "2:3", "--memory", "64MiB")

    def children() -> list[int]:
        found = []
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):
                if f"PPid:\t{process.pid}\n" in status.read_text() and b"node\0--pool" in (status.parent / "cmdline").read_bytes():
                    found.append(int(status.parent.name))
        return found

    wait_for(lambda: len(children()) == 2, "two nodes run")
    started = children()
    os.kill(process.pid, signal.SIGKILL)
    process.wait(SECONDS_MAX)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the nodes end with it")
