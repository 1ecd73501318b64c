"""`pool top`: what a pool does now, once, as JSON, and on a terminal that is restored."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import termios

import pytest
from test_elastic import put
from test_elastic_faults import put_files
from test_metrics import metrics
from test_pool import SECONDS_MAX, Home, home  # noqa: F401 - `home` is a fixture

ENTER = b"\x1b[?1049h"
LEAVE = b"\x1b[?25h\x1b[?1049l"


def start(at: Home, *flags: str) -> None:
    """Starts a pool of two nodes."""
    at.ok("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "64", "--max-nodes", "4", "--slots", "0", *flags)


def test_what_is_no_terminal_gets_one_view_and_json_is_an_object_a_second(home: Home) -> None:  # noqa: F811
    start(home)
    put(home, "f", 10_000_000)
    lines = home.ok("pool", "top").splitlines()
    assert lines[0].startswith("2 nodes, epoch ")
    assert lines[2].split() == ["node", "host", "state", "share", "memory", "pins", "req/s", "in/s", "out/s"]
    assert [line.split()[::2][:2] for line in lines[3:]] == [["1", "up"], ["2", "up"]]
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)
    assert home.ok("pool", "top", "--once").splitlines()[2:3] == lines[2:3]
    shown = json.loads(home.ok("pool", "top", "--once", "--json"))
    assert (shown["leader"], [node["partitions"] for node in shown["nodes"]]) == (1, [32, 32])
    assert sum(node["used"] for node in shown["nodes"]) >= 10_000_000
    assert all(node["moves"] == [] and node["pins"] == 0 for node in shown["nodes"])
    command = [home.binary, "pool", "top", "--json"]
    with subprocess.Popen(command, env=home.environment, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        json.loads(top.stdout.readline())
        put(home, "g", 20_000_000)
        received = 0.0
        while received < 1_000_000:
            received = sum(node["per_second"]["received"] for node in json.loads(top.stdout.readline())["nodes"])
        top.terminate()
    home.ok("pool", "stop")


def read_until(terminal: int, wanted: bytes) -> bytes:
    """Reads what is drawn until something of it comes."""
    drawn = b""
    while wanted not in drawn:
        drawn += os.read(terminal, 65536)
    return drawn


@pytest.mark.parametrize(("end", "code"), [(b"q", 0), (b"\x03", 130), ("SIGTERM", 143)])
def test_a_terminal_is_as_it_was_however_the_view_ends(home: Home, end: bytes | str, code: int) -> None:  # noqa: F811
    start(home)
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    # In a session whose terminal it is, so that Ctrl-C is a signal.
    command = ["setsid", "--ctty", home.binary, "pool", "top"]
    top = subprocess.Popen(command, env=home.environment, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        drawn = read_until(ours, b"req/s")
        assert ENTER in drawn
        assert not termios.tcgetattr(theirs)[3] & (termios.ICANON | termios.ECHO)
        if isinstance(end, bytes):
            os.write(ours, end)
        else:
            top.send_signal(signal.Signals[end])
        read_until(ours, LEAVE)
        assert top.wait(SECONDS_MAX) == code
        assert termios.tcgetattr(theirs) == before
    finally:
        top.kill()
        top.wait()
        os.close(ours)
        os.close(theirs)
    home.ok("pool", "stop")


def moves(of_node: dict[str, float], direction: str) -> list[float]:
    """The moves of a node in a direction that have begun, less those that were given up; and those that are done."""
    begun, ended, given_up = (of_node[f'tidemill_moves_{what}_total{{direction="{direction}"}}'] for what in ("begun", "ended", "given_up"))
    return [begun - given_up, ended]


def test_metrics_count_the_moves_of_partitions_and_tell_who_leads(home: Home) -> None:  # noqa: F811
    start(home, "--metrics", "127.0.0.1:0")
    put_files(home, 20, 500_000)
    address = str(home.status()[0]["metrics"])
    before = metrics(address)
    assert (before["tidemill_manager_leads"], before["tidemill_partitions"]) == (1, 32)
    assert moves(before, "in") == moves(before, "out") == [0, 0]
    home.ok("pool", "shrink", "--node", "2")
    merged = metrics(address)
    assert moves(merged, "in") == [32, 32]
    assert merged['tidemill_moved_bytes_total{direction="in"}'] > 1_000_000
    assert merged["tidemill_partitions"] == 64
    assert merged["tidemill_manager_entries"] > before["tidemill_manager_entries"]
    assert merged.get("tidemill_move_pause_seconds_count", 0) == 0, "it was no source"
    home.ok("pool", "grow", "1", "--memory", "64MiB", "--slots", "0", "--metrics", "127.0.0.1:0")
    after, new = metrics(address), metrics(str(home.status()[1]["metrics"]))
    assert moves(after, "out") == moves(new, "in") == [32, 32]
    assert after["tidemill_move_pause_seconds_count"] == after['tidemill_move_pause_seconds_bucket{le="5"}'] == 32
    for name in ("departing_partitions", "arriving_partitions", "pins"):
        assert (after[f"tidemill_{name}"], new[f"tidemill_{name}"]) == (0, 0), name
    assert (after["tidemill_manager_leads"], new["tidemill_manager_leads"]) == (1, 0)
    home.ok("pool", "stop")
