"""Metrics and traces of nodes: what `--metrics` serves, how it is refused, and request ids in logs."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import mount_unsupported_reason
from test_pool import SECONDS_MAX, Home, home, mounted  # noqa: F401 - fixtures are found by their names
from waiting import wait_for
from workbench import Workbench

CAPACITY = 64 << 20


@pytest.fixture
def user(home: Home) -> Home:  # noqa: F811 - the fixture
    """The home of a user, without a pool."""
    return home


def fetched(address: str, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and text of a page."""
    connection = http.client.HTTPConnection(address, timeout=SECONDS_MAX)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.getheader("content-type", ""), answer.read().decode()


def metrics(address: str) -> dict[str, float]:
    """The values of a node by their names with labels."""
    status, kind, text = fetched(address)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def of_kind(name: str, kind: str) -> str:
    """Name of a metric with its label."""
    return f'tidemill_{name}{{kind="{kind}"}}'


def grown(before: dict[str, float], after: dict[str, float], name: str) -> float:
    """By how much a metric has grown."""
    return after.get(name, 0) - before.get(name, 0)


def start(user: Home, *flags: str, **more: str) -> str:
    """Starts a pool of one node, and returns the address of its metrics."""
    done = user.run("pool", "start", "--memory", "64MiB", "--partitions", "64", "--metrics", "127.0.0.1:0", *flags, **more)
    assert done.returncode == 0, done.stderr
    return str(user.status()[0]["metrics"])


def free_port() -> int:
    """A port that was free a moment ago, and the one after it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = first.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except (OSError, OverflowError):
                continue
            return port


def test_metrics_count_requests_and_the_bytes_of_files_by_kind(user: Home) -> None:
    address = start(user)
    data = bytes(3_000_000)
    before = metrics(address)
    user.ok("put", "k", "-", stdin=data)
    put = metrics(address)
    assert grown(before, put, "tidemill_received_bytes_total") == len(data)
    assert grown(before, put, of_kind("request_seconds_count", "PutObject")) == 1
    assert grown(before, put, of_kind("request_seconds_count", "StripeRead")) == 0
    assert user.run("get", "k", "-").stdout == data
    got = metrics(address)
    assert grown(put, got, "tidemill_sent_bytes_total") == len(data)
    assert grown(put, got, "tidemill_received_bytes_total") == 0
    assert grown(put, got, of_kind("request_seconds_count", "StripeRead")) == 3
    user.fails("get", "nothing", "-", code=1)
    missed = metrics(address)
    refused = {name for name in missed if name.startswith("tidemill_requests_refused_total") and grown(got, missed, name)}
    assert refused == {of_kind("requests_refused_total", "Lookup")}
    # Every series of times is whole: the last bucket has all requests, and they took some time.
    for name, count in missed.items():
        if found := re.fullmatch(r'tidemill_request_seconds_count\{kind="(\w+)"\}', name):
            assert missed[f'tidemill_request_seconds_bucket{{kind="{found[1]}",le="+Inf"}}'] == count
            assert missed[of_kind("request_seconds_sum", found[1])] > 0
    user.ok("pool", "stop")


def test_metrics_tell_the_state_of_a_node_at_the_moment(user: Home) -> None:
    address = start(user)
    empty = metrics(address)
    assert (empty["tidemill_partitions"], empty["tidemill_space_capacity_bytes"]) == (64, CAPACITY)
    assert (empty["tidemill_files"], empty["tidemill_stripes"], empty["tidemill_space_waiting"]) == (1, 0, 0)
    user.ok("put", "k", "-", stdin=bytes(2 << 20))
    # The end of its session gives back what it had reserved.
    wait_for(lambda: metrics(address)["tidemill_sessions"] == 0, "no session is left of the first put")
    filled = metrics(address)
    assert (filled["tidemill_files"], filled["tidemill_stripes"]) == (2, 2)
    assert filled["tidemill_space_used_bytes"] - empty["tidemill_space_used_bytes"] >= 2 << 20
    assert filled["tidemill_space_used_bytes"] == user.status()[0]["used"]
    # A put that has sent bytes and waits for more has a session; it ends with the command.
    command = [user.binary, "put", "slow", "-"]
    with subprocess.Popen(command, env=user.environment, stdin=subprocess.PIPE) as putting:
        assert putting.stdin is not None
        putting.stdin.write(bytes(8 << 20))
        putting.stdin.flush()
        wait_for(lambda: metrics(address)["tidemill_sessions"] == 1, "a put that goes on has a session")
        putting.stdin.close()
        assert putting.wait(SECONDS_MAX) == 0
    wait_for(lambda: metrics(address)["tidemill_sessions"] == 0, "the session ends with its command")
    user.ok("pool", "stop")


def test_metrics_count_requests_that_waited_for_space_in_vain(user: Home) -> None:
    address = start(user, TIDEMILL_SPACE_WAIT="0.1")
    before = metrics(address)
    assert "space" in user.fails("put", "large", "-", code=1, stdin=bytes(CAPACITY + 1))
    after = metrics(address)
    assert grown(before, after, "tidemill_space_refused_total") >= 1
    assert grown(before, after, "tidemill_space_waits_total") >= grown(before, after, "tidemill_space_refused_total")
    assert after["tidemill_space_waiting"] == 0
    user.ok("pool", "stop")


def test_nodes_of_one_host_serve_metrics_at_successive_ports_or_not_at_all(user: Home) -> None:
    port = free_port()
    user.ok("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "64", "--metrics", f"127.0.0.1:{port}")
    addresses = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    assert [node["metrics"] for node in user.status()] == addresses
    assert sum(metrics(address)["tidemill_partitions"] for address in addresses) == 64
    user.ok("pool", "stop")
    assert user.is_clean()
    user.ok("pool", "start", "--memory", "64MiB")
    assert "metrics" not in user.status()[0]
    user.ok("pool", "stop")


def test_only_the_page_of_metrics_is_served(user: Home) -> None:
    address = start(user)
    assert fetched(address, "/")[0] == 404
    assert fetched(address, method="POST")[0] == 405
    assert fetched(address, method="HEAD")[::2] == (200, "")
    assert metrics(address)["tidemill_partitions"] == 64, "and it goes on"
    user.ok("pool", "stop")


@pytest.mark.parametrize("address", ["", "9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:9464/metrics"])
def test_what_is_no_address_for_metrics_is_refused(user: Home, address: str) -> None:
    for command in (["pool", "start"], ["mount", user.folder], ["run", "none.js"]):
        said = user.fails(*command, "--metrics", address)
        assert f"invalid value '{address}' for '--metrics <IP:PORT>'" in said
    assert user.is_clean()


def test_an_address_that_cannot_be_used_is_refused_and_nothing_is_left(user: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = user.fails("pool", "start", "--memory", "64MiB", "--metrics", address)
    assert f"node 1 cannot start: metrics cannot be served at {address}: Address already in use" in said
    assert "hint: give --metrics an address of this host, and a port that no other process uses" in said
    # An address for documents, which no host has.
    said = user.fails("pool", "start", "--memory", "64MiB", "--metrics", "192.0.2.1:9464")
    assert "metrics cannot be served at 192.0.2.1:9464: Cannot assign requested address" in said
    said = user.fails("pool", "start", "--nodes", "2", "--memory", "64MiB", "--metrics", "127.0.0.1:65535")
    assert "--metrics 127.0.0.1:65535: there is no port for node 2" in said
    assert user.is_clean()


def test_a_mount_serves_the_metrics_of_its_embedded_pool_alone(user: Home) -> None:
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    address = f"127.0.0.1:{free_port()}"
    with mounted(user, "--memory", "64MiB", "--metrics", address) as folder:
        before = metrics(address)
        (folder / "file").write_bytes(bytes(100))
        after = metrics(address)
        assert grown(before, after, "tidemill_files") == 1
        assert grown(before, after, of_kind("request_seconds_count", "Create")) == 1
        with socket.create_server(("127.0.0.1", 0)) as taken:
            other = user.folder / "other"
            other.mkdir()
            said = user.fails("mount", "--memory", "64MiB", "--metrics", f"127.0.0.1:{taken.getsockname()[1]}", other)
        assert "Address already in use" in said
    user.ok("pool", "start", "--memory", "64MiB")
    said = user.fails("mount", "--metrics", address, other, TIDEMILL_POOL=str(user.runtime / "tidemill/pool"))
    assert "--metrics is for an embedded pool" in said
    user.ok("pool", "stop")


def test_a_run_serves_the_metrics_of_its_pool_as_long_as_it_goes_on(bench: Workbench) -> None:
    address = f"127.0.0.1:{free_port()}"
    fetch = f"import urllib.request as web; print(web.urlopen('http://{address}/metrics').read().decode())"
    shell = json.dumps(f'{shlex.quote(sys.executable)} -c "{fetch}" > $1')
    bench.script(f'var x = Data.define("X"); shell({{script: {shell}, to: x}});')
    run = bench.run("--memory", "64MiB", "--metrics", address)
    assert run.code == 0, run.err
    assert f"\ntidemill_space_capacity_bytes {CAPACITY}\n" in (bench.out / "X.txt").read_text()
    with pytest.raises(ConnectionRefusedError):
        fetched(address)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = bench.run("--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert run.code == 2
    assert "Address already in use" in run.err


def requests_in(text: str, span: str) -> set[tuple[str, str]]:
    """Sessions and numbers of the changes in a log."""
    return set(re.findall(rf"{span}\{{[^}}]*session=(\d+) number=(\d+)\}}", text))


def test_a_request_has_the_same_id_in_the_traces_of_client_and_node(user: Home) -> None:
    start(user, TIDEMILL_LOG="node=trace")
    log = Path(str(user.status()[0]["log"]))
    done = user.run("put", "k", "-", stdin=bytes(2_000_000), TIDEMILL_LOG="client=trace")
    assert done.returncode == 0
    called = requests_in(done.stderr.decode(), "call")
    assert called
    assert called <= requests_in(log.read_text(), "request")
    quiet = user.run("put", "k", "-", stdin=b"x")
    assert quiet.stderr == b"", "without it nothing is logged"
    user.ok("pool", "stop")


WORKERS = ["demotion", "thinning", "leases", "locks", "deletes", "hosted", "moves", "strays", "sessions", "pins", "metrics", "pages"]


def workers(user: Home) -> dict[str, dict[str, object]]:
    """The workers of the only node, by their names."""
    listed = user.status()[0]["workers"]
    assert isinstance(listed, list)
    return {worker["name"]: worker for worker in listed}


def test_the_status_of_a_pool_tells_what_its_nodes_do_beside_requests(user: Home) -> None:
    address = start(user)
    assert list(workers(user)) == WORKERS
    before = workers(user)["sessions"]["done"]
    user.ok("put", "k", "-", stdin=b"x")
    wait_for(lambda: workers(user)["sessions"]["done"] > before, "the session of a command has ended")
    # Each works without being asked: those that have nothing to do say so.
    idle = ["demotion", "thinning", "leases", "locks", "hosted", "moves", "strays", "metrics"]
    wait_for(lambda: all(workers(user)[name]["turns"] > 1 for name in idle), "the workers take turns")
    found = workers(user)
    assert {(worker["failed"], worker["last_error"], worker["backlog"]) for worker in found.values()} == {(0, None, 0)}
    shown = metrics(address)
    for name in WORKERS:
        assert shown[f'tidemill_background_turns_total{{worker="{name}"}}'] >= found[name]["turns"]
        assert shown[f'tidemill_background_failed_total{{worker="{name}"}}'] == 0
        assert shown[f'tidemill_background_backlog{{worker="{name}"}}'] == 0
    user.ok("pool", "stop")


def test_a_cleanup_that_fails_is_told_in_the_status_with_its_reason(user: Home) -> None:
    user.ok("pool", "start", "--nodes", "2", "--memory", "64MiB", "--partitions", "64")
    for number in range(100):
        user.ok("put", f"d{number}/small", "-", stdin=b"x")
        if json.loads(user.ok("locate", "--json", f"d{number}/large"))["inode"] == 2:
            break
    command = [user.binary, "put", f"d{number}/large", "-"]
    with subprocess.Popen(command, env=user.environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as putting:
        assert putting.stdin is not None
        putting.stdin.write(bytes(32 << 20))
        putting.stdin.flush()
        wait_for(lambda: all(node["used"] > 4 << 20 for node in user.status()), "both nodes have bytes of the put")
        # The first node cannot ask the other one, which would have the file, whether it does.
        os.kill(user.pids()[1], signal.SIGKILL)
        putting.kill()
    wait_for(lambda: any(worker["failed"] for worker in workers(user).values()), "the cleanup has failed")
    failed = [worker for worker in workers(user).values() if worker["failed"]]
    assert all("node 2" in str(worker["last_error"]) for worker in failed), failed
    user.ok("pool", "stop")
