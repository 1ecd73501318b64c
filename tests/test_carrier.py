"""The carrier (python/carrier/carrier.py) on a real Dask cluster, driven as a run drives it.

Workers at several addresses of the loopback interface stand for hosts. A script stands for
`tidemill`: it is spoken to as an agent is, and does what tests tell it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from example_runs import ROOT
from waiting import WAIT_SECONDS_MAX, wait_for

distributed = pytest.importorskip("distributed")

CARRIER = "".join((ROOT / "python" / "carrier" / name).read_text() for name in ("clusters.py", "carrier.py"))
VERSION = "tidemill 0.0.1"
AGENT = '''\
"""An agent: echoes lines until it serves. Then orders end at once, or when they are released."""

import json, os, socket, sys, threading

if sys.argv[1:] == ["--version"]:
    sys.exit(print("tidemill 0.0.1"))
for line in sys.stdin:
    message = json.loads(line)
    if "die" in message:
        print(message["die"], file=sys.stderr)
        sys.exit(7)
    if "serve" in message:
        break
    print(json.dumps({"echo": message}), flush=True)
else:
    sys.exit(0)
server = socket.socket(socket.AF_UNIX)
server.bind(message["serve"])
server.listen(64)
print(json.dumps({"pid": os.getpid()}), flush=True)
workers, held, turn = [], {}, threading.RLock()


def tell(message):
    with turn:
        if workers:
            workers[-1].sendall(json.dumps(message).encode() + b"\\n")


def obey(message, connection):
    if "hello" in message:
        workers.append(connection)
        tell({"welcome": message["hello"]})
    elif "order" in message and message["order"] != "hold":
        tell({"ended": {"key": message["key"], "order": message["order"]}})
    elif "order" in message:
        held[message["key"]] = message["order"]
        tell({"held": message["key"]})
    elif "release" in message:
        for key in message["release"]:
            tell({"ended": {"key": key, "order": held.pop(key)}})
    else:
        tell({"got": message})


def serve(connection):
    for line in connection.makefile():
        with turn:
            obey(json.loads(line), connection)
    with turn:
        if connection in workers:
            workers.remove(connection)


while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
'''


class Cluster:
    """A Dask scheduler and workers, processes of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tidemill = folder / "tidemill"
        self.tidemill.write_text(f"#!{sys.executable} -SE\n{AGENT}")
        self.tidemill.chmod(0o755)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.agents: list[int] = []
        self.address = ""

    def start(self, kind: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a process of Dask."""
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words, "--no-dashboard"]
        clean = {name: value for name, value in os.environ.items() if name != "TIDEMILL"}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=clean | environment, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_scheduler(self, port: int = 0) -> subprocess.Popen[bytes]:
        """Starts a scheduler, and waits until it has an address."""
        file = self.folder / f"scheduler{len(self.processes)}"
        process = self.start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--scheduler-file", str(file))
        wait_for(lambda: file.exists() and file.read_text().endswith("}"), "no scheduler")
        self.address = json.loads(file.read_text())["address"]
        return process

    def start_worker(self, host: str, *, tidemill: bool = True) -> subprocess.Popen[bytes]:
        """Starts a worker of a host."""
        environment = {"TIDEMILL": str(self.tidemill)} if tidemill else {}
        return self.start("worker", self.address, "--host", host, "--nthreads", "2", "--no-nanny", **environment)

    def close(self) -> None:
        """Ends all that was started."""
        for process in self.processes:
            process.kill()
            process.wait()
        for agent in self.agents:
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent, signal.SIGKILL)


class Run:
    """The side of a run: starts the carrier, and speaks with it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.process = subprocess.Popen([sys.executable, "-c", CARRIER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.hosts: dict[str, dict[str, Any]] = {}
        self.hellos: list[dict[str, Any]] = []

    def read(self) -> None:
        """Reads what the carrier prints."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.messages.put(json.loads(line))

    def say(self, kind: str, **body: object) -> None:
        """Writes a message."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({kind: body}).encode() + b"\n")
        self.process.stdin.flush()

    def open(self, wait: float = 30) -> None:
        """Writes the first message."""
        self.say("open", address=self.cluster.address, run=self.name, binary="/nowhere/tidemill", wait=wait)

    def hear_any(self, *kinds: str) -> tuple[str, Any]:
        """Waits for a message of one of these kinds; leaves out others."""
        while True:
            kind, body = next(iter(self.messages.get(timeout=WAIT_SECONDS_MAX).items()))
            if kind == "hosts":
                self.hosts = {host["host"]: host for host in body}
            if kind in kinds:
                return kind, body

    def hear(self, kind: str, accept: Callable[[Any], bool] = lambda _: True) -> Any:  # noqa: ANN401 (JSON)
        """Waits for a message of a kind that is accepted; leaves out others."""
        while True:
            _, body = self.hear_any(kind)
            if accept(body):
                return body

    def hear_workers(self, host: str, count: int) -> None:
        """Waits until a host has so many workers."""
        if self.hosts.get(host, {}).get("workers") != count:
            self.hear("hosts", lambda hosts: any(told["host"] == host and told["workers"] == count for told in hosts))

    def hear_lines(self, host: str, field: str, count: int) -> list[dict[str, Any]]:
        """Waits for so many lines of an agent that have a field."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            lines = map(json.loads, self.hear("lines", lambda lines: lines["host"] == host)["lines"])
            found += [line for line in lines if field in line]
        return found

    def ask(self, kind: str, host: str, **body: object) -> dict[str, Any]:
        """Writes `launch` or `say`, and waits for the answer."""
        self.say(kind, host=host, id=7, **body)
        said = self.hear("said")
        assert said.pop("id") == 7
        return dict(said)

    def serve(self, host: str, workers: int) -> int:
        """Starts the agent of a host, and attaches its workers; returns the agent's process."""
        self.hear_workers(host, workers)
        assert self.ask("launch", host) == {"line": ""}
        path = str(self.cluster.folder / f"{host}.socket")
        answer = self.ask("say", host, line=json.dumps({"serve": path}))
        self.cluster.agents.append(json.loads(answer["line"])["pid"])
        self.say("attach", host=host, socket=path)
        self.hellos = [line["welcome"] for line in self.hear_lines(host, "welcome", workers)]
        return self.cluster.agents[-1]

    def order(self, host: str, order: str, *keys: str) -> None:
        """Sends orders as one batch."""
        self.say("orders", host=host, lines=[json.dumps({"order": order, "key": key}) for key in keys], keys=keys)

    def post(self, host: str, **message: object) -> None:
        """Posts a line."""
        self.say("post", host=host, lines=[json.dumps(message)])

    def close(self) -> int:
        """Ends the carrier as the end of a run does; returns its exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(WAIT_SECONDS_MAX)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a scheduler, to which tests add hosts of their own."""
    cluster = Cluster(tmp_path_factory.mktemp("dask"))
    try:
        cluster.start_scheduler()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def run(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A run that has opened the carrier."""
    run = Run(cluster, request.node.name.replace("_", "-"))
    try:
        run.open()
        yield run
        assert run.close() == 0
    finally:
        run.process.kill()


def test_an_address_without_a_scheduler_fails(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cluster.address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        run = Run(cluster, "wrong")
        run.open(wait=1)
        failed = run.hear("failed")
        assert cluster.address in failed["message"]
        assert "dask scheduler" in failed["hint"]
        assert run.process.wait(WAIT_SECONDS_MAX) == 1


def test_without_distributed_the_carrier_says_what_to_install() -> None:
    carrier = subprocess.run([sys.executable, "-S", "-c", CARRIER], capture_output=True, check=False)
    assert carrier.returncode == 1
    assert "pip install distributed" in json.loads(carrier.stdout)["failed"]["hint"]


def test_hosts_are_told_with_their_versions(cluster: Cluster, run: Run) -> None:
    for host, tidemill in (("127.0.1.1", True), ("127.0.1.1", True), ("127.0.1.2", False)):
        cluster.start_worker(host, tidemill=tidemill)
    opened = run.hear("opened")
    assert opened == {"dask": distributed.__version__, "address": "127.0.0.1"}
    run.hear_workers("127.0.1.1", 2)
    run.hear_workers("127.0.1.2", 1)
    assert run.hosts["127.0.1.1"] == {"host": "127.0.1.1", "workers": 2, "threads": 4, "binary": str(cluster.tidemill), "version": VERSION}
    assert run.hosts["127.0.1.2"] == {"host": "127.0.1.2", "workers": 1, "threads": 2, "binary": None, "version": None}
    assert "127.0.1.2" in run.ask("launch", "127.0.1.2")["error"]
    assert "127.0.1.3" in run.ask("launch", "127.0.1.3")["error"]


def test_an_agent_answers_line_by_line_and_its_end_is_explained(cluster: Cluster, run: Run) -> None:
    cluster.start_worker("127.0.2.1")
    run.hear_workers("127.0.2.1", 1)
    assert run.ask("launch", "127.0.2.1") == {"line": ""}
    for word in ("short", "long" * 1_000_000):
        answer = run.ask("say", "127.0.2.1", line=json.dumps({"word": word}))
        assert json.loads(answer["line"]) == {"echo": {"word": word}}
    error = run.ask("say", "127.0.2.1", line='{"die": "no memory for a node"}')["error"]
    assert "exit code 7" in error
    assert "no memory for a node" in error


def test_an_agent_that_starts_while_its_run_ends_ends_too(tmp_path: Path) -> None:
    carrier: dict[str, Any] = {"__name__": __name__}
    exec(CARRIER, carrier)  # noqa: S102 (as the binary runs it)
    plugin = carrier["Plugin"]("run", "")
    plugin.setup(SimpleNamespace(address="tcp://127.0.0.1:1"))
    plugin.teardown(None)
    plugin.launch(str(Cluster(tmp_path).tidemill))
    try:
        assert plugin.agent.wait(WAIT_SECONDS_MAX) == 0
    finally:
        plugin.agent.kill()
    with pytest.raises(RuntimeError, match="exit code 0"):
        plugin.say("{}")


def test_orders_are_dask_tasks_that_run_as_long_as_they(cluster: Cluster, run: Run) -> None:
    host, tasks = "127.0.3.1", "tidemill-" + run.name
    cluster.start_worker(host)
    cluster.start_worker(host)
    agent = run.serve(host, 2)
    assert all(hello["worker"].startswith(f"tcp://{host}:") for hello in run.hellos)
    assert all(hello["environment"]["TIDEMILL"] == str(cluster.tidemill) for hello in run.hellos)
    assert {hello["directory"] for hello in run.hellos} == {str(cluster.folder)}
    run.post(host, text="é" * 100_000)
    assert run.hear_lines(host, "got", 1) == [{"got": {"text": "é" * 100_000}}]

    keys = [f"key{number}" for number in range(1000)]
    for start in range(0, 1000, 40):
        run.order(host, "echo", *keys[start : start + 40])
    assert sorted(line["ended"]["key"] for line in run.hear_lines(host, "ended", 1000)) == sorted(keys)

    for key in ("a", "b", "c", "d", "e", "f"):
        run.order(host, "hold", key)
    run.hear_lines(host, "held", 6)
    with distributed.Client(cluster.address, set_as_default=False) as client:

        def open_tasks() -> int:
            return sum(str(task).startswith(tasks) for task in client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))

        # More than threads: they take none of the pool.
        wait_for(lambda: open_tasks() == 6, "not one task for each batch")
        run.post(host, release=["a", "b", "c", "d", "e", "f"])
        run.hear_lines(host, "ended", 6)
        wait_for(lambda: open_tasks() == 0, "tasks did not end with their orders")
        assert run.close() == 0
        left = client.run(lambda dask_worker: list(dask_worker.plugins)).values()
        assert not any(plugin.startswith(tasks) for plugins in left for plugin in plugins)
    os.kill(agent, 0)


def test_orders_of_a_killed_worker_are_undelivered_and_end_by_another_one(cluster: Cluster, run: Run) -> None:
    host = "127.0.5.1"
    first = cluster.start_worker(host)
    cluster.start_worker(host)
    run.serve(host, 2)
    for key in ("a", "b", "c", "d"):
        run.order(host, "hold", key)
    run.hear_lines(host, "held", 4)
    first.kill()
    undelivered = run.hear("undelivered", lambda undelivered: undelivered["host"] == host)
    run.hear_workers(host, 1)
    assert undelivered["keys"]
    assert "left" in undelivered["why"] or "127.0.5.1" in undelivered["why"]
    run.post(host, release=["a", "b", "c", "d"])
    assert {line["ended"]["key"] for line in run.hear_lines(host, "ended", 4)} == {"a", "b", "c", "d"}

    # A worker that comes later is attached, and takes orders.
    cluster.start_worker(host)
    # The agent may greet it before the scheduler tells of it, and what is not waited for is left out.
    run.hear_lines(host, "welcome", 1)
    run.hear_workers(host, 2)
    run.order(host, "echo", "e")
    assert run.hear_lines(host, "ended", 1) == [{"ended": {"key": "e", "order": "echo"}}]


def test_a_worker_that_hangs_holds_up_no_other_one(cluster: Cluster, run: Run) -> None:
    hangs = cluster.start_worker("127.0.8.1")
    cluster.start_worker("127.0.8.2")
    run.hear_workers("127.0.8.1", 1)
    hangs.send_signal(signal.SIGSTOP)
    other = Run(cluster, "other")
    try:
        other.open()
        other.serve("127.0.8.2", 1)
        assert "127.0.8.1" not in other.hosts
        hangs.send_signal(signal.SIGCONT)
        other.hear_workers("127.0.8.1", 1)
        assert other.close() == 0
    finally:
        hangs.send_signal(signal.SIGCONT)
        other.process.kill()


def test_a_worker_that_is_about_to_leave_gets_no_orders_and_passes_lines_on(cluster: Cluster, run: Run) -> None:
    host = "127.0.9.1"
    cluster.start_worker(host)
    run.serve(host, 1)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        (address,) = (address for address in client.nthreads() if host in address)

        def set_status(name: str) -> None:
            client.run(lambda dask_worker: setattr(dask_worker, "status", distributed.Status[name]), workers=[address])

        set_status("closing_gracefully")
        run.hear("hosts", lambda hosts: all(told["host"] != host for told in hosts))
        run.order(host, "echo", "a")
        assert run.hear("undelivered")["keys"] == ["a"]
        run.post(host, text="still")
        assert run.hear_lines(host, "got", 1) == [{"got": {"text": "still"}}]
        set_status("running")
        run.hear("hosts", lambda hosts: any(told["host"] == host for told in hosts))
        run.order(host, "echo", "b")
        assert run.hear_lines(host, "ended", 1) == [{"ended": {"key": "b", "order": "echo"}}]


def test_an_agent_that_ended_is_gone(cluster: Cluster, run: Run) -> None:
    host = "127.0.6.1"
    cluster.start_worker(host)
    agent = run.serve(host, 1)
    run.order(host, "hold", "a")
    run.hear_lines(host, "held", 1)
    os.kill(agent, signal.SIGKILL)
    # Either message may come first.
    told = [run.hear_any("undelivered", "lines") for _ in range(2)]
    assert sorted(kind for kind, _ in told) == ["lines", "undelivered"]
    for kind, body in told:
        assert body["host"] == host
        if kind == "undelivered":
            assert body["keys"] == ["a"]
        else:
            assert "socket" in json.loads(body["lines"][0])["gone"]
    run.order(host, "echo", "b")
    assert run.hear("undelivered")["keys"] == ["b"]


def test_a_scheduler_that_comes_back_is_opened_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    run = None
    try:
        scheduler = cluster.start_scheduler()
        cluster.start_worker("127.0.7.1")
        run = Run(cluster, "again")
        run.open()
        run.serve("127.0.7.1", 1)
        run.order("127.0.7.1", "hold", "a")
        run.hear_lines("127.0.7.1", "held", 1)
        scheduler.kill()
        scheduler.wait()
        assert run.hear_any("cut", "undelivered")[0] == "cut"
        cluster.start_scheduler(int(cluster.address.rpartition(":")[2]))
        cluster.start_worker("127.0.7.1")
        assert run.hear_any("opened", "undelivered")[0] == "opened"
        run.hear_lines("127.0.7.1", "welcome", 1)
        run.post("127.0.7.1", release=["a"])
        assert run.hear_lines("127.0.7.1", "ended", 1) == [{"ended": {"key": "a", "order": "hold"}}]
        run.say("close")
        assert run.process.wait(WAIT_SECONDS_MAX) == 0
    finally:
        if run is not None:
            run.process.kill()
        cluster.close()
