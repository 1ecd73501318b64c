# mypy: allow-untyped-calls
"""The carrier of a run on a Dask cluster passes lines (docs/formats/carrier.md).

`tidemill run --on` contains this file and starts it as `python3 -c`. `Plugin`, `visit`, `carry` and
`forget` run in processes of Dask. Cloudpickle sends them by value, for no file has them there.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from typing import Any, BinaryIO, Callable

try:
    import distributed
    from distributed.protocol.pickle import dumps
except ImportError as missing:
    why = {"message": f"{sys.executable} cannot use Dask: {missing}", "hint": "pip install distributed"}
    print(json.dumps({"failed": why}), flush=True)
    sys.exit(1)

# What a worker answers, and the key of an order: values of JSON.
Value = Any

# A message: orders of many attempts and outcomes with captured output take some MiB.
LINE_BYTES_MAX = 1 << 28
# Lines of an agent that travel as one event, and the pause in which more of them collect.
EVENT_BYTES_MAX = 1 << 20
EVENT_SECONDS = 0.002
# The end of an agent's standard error, which explains its end.
STDERR_BYTES_MAX = 4096
# An agent that lives accepts within milliseconds. Lines wait longer than its socket is tried.
SOCKET_SECONDS_MAX = 5.0
SOCKET_RETRY_SECONDS = 0.2
LINK_SECONDS_MAX = 2 * SOCKET_SECONDS_MAX
# Answers of a worker, and of an agent that starts a node of the pool before it answers.
CALL_SECONDS_MAX = 30.0
SAY_SECONDS_MAX = 600.0
# The scheduler is asked for its workers so often, and is lost without an answer for so long.
WATCH_SECONDS = 0.5
SCHEDULER_SECONDS_MAX = 30.0
RECONNECT_SECONDS = 1.0
# Workers that are new together are waited for, so that one message tells of them.
NEW_WORKERS_SECONDS = 1.0
# A task that was told that its orders have ended takes milliseconds to end.
ENDED_SECONDS_MAX = 2.0
CLOSE_SECONDS_MAX = 5.0
# The scheduler keeps the last thousand events, which it need not: it forgets them so often.
LOG_BYTES_MAX = 8 << 20
HINT = "is `dask scheduler` running at this address, with the same Python and distributed as here?"


class Plugin(distributed.WorkerPlugin):
    """The plug-in of one run in one worker: starts the host's agent, and passes lines.

    Its methods run on the worker's event loop.
    """

    def __init__(self, name: str, binary: str) -> None:
        self.name = name
        self.binary = binary

    def setup(self, worker: Value) -> None:
        """Begins without a connection to an agent."""
        self.worker = worker
        self.address, self.socket = worker.address, ""
        self.link: asyncio.Future[None] | None = None
        self.linked, self.turn = asyncio.Event(), asyncio.Lock()
        self.writer: asyncio.StreamWriter | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        # Tasks that wait here for the end of their orders, by Dask's key: what is left of them.
        self.waits: dict[str, tuple[asyncio.Future[None], set[Value]]] = {}

    def teardown(self, worker: Value) -> None:  # noqa: ARG002 (Dask's)
        """Closes connections. The agent goes on."""
        for closed in (self.link and self.link.cancel, self.writer and self.writer.close, self.agent and self.agent.stdin.close):
            with contextlib.suppress(OSError):
                closed and closed()
        self.fail("the worker or the plug-in ends")

    def transition(self, key: Value, start: str, finish: str, **_: Value) -> None:  # noqa: ARG002
        """Ends the wait of a task that Dask has cancelled: its thread would wait forever."""
        if key in self.waits and finish in {"cancelled", "released", "forgotten"}:
            self.finish([key])

    async def search(self, known: dict[str, str | None]) -> tuple[str, str, str | None] | None:
        """Finds `tidemill`: its path, path with time of change, and version if it runs."""
        paths = (os.environ.get("TIDEMILL"), shutil.which("tidemill"), self.binary)
        path = next((path for path in paths if path and os.path.isfile(path) and os.access(path, os.X_OK)), None)
        if path is None:
            return None
        stamp = f"{path} {os.stat(path).st_mtime_ns}"
        if stamp not in known:
            try:
                command = [path, "--version"]
                call = asyncio.to_thread(subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_SECONDS_MAX / 2, check=True)
                known[stamp] = (await call).stdout.decode(errors="replace").split("\n")[0]
            except (OSError, subprocess.SubprocessError):
                known[stamp] = None
        return path, stamp, known[stamp]

    async def launch(self, path: str) -> str:
        """Starts an agent. asyncio would kill it at the end of the worker; this does not."""
        pipe, self.errors = subprocess.PIPE, tempfile.TemporaryFile()
        self.agent = subprocess.Popen([path, "agent"], stdin=pipe, stdout=pipe, stderr=self.errors, start_new_session=True)
        return ""

    async def say(self, line: str) -> str:
        """Writes a line to the agent that starts; returns the one that it answers."""
        return await asyncio.to_thread(self.exchange, line)

    def exchange(self, line: str) -> str:
        """`say`, in a thread of its own, which waits."""
        if self.agent is None:
            raise RuntimeError("no agent was started from this worker")
        with contextlib.suppress(OSError):
            self.agent.stdin.write(line.encode() + b"\n")
            self.agent.stdin.flush()
        if answer := self.agent.stdout.readline():
            return answer.decode(errors="replace").rstrip("\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.agent.wait(1)
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - STDERR_BYTES_MAX))
        tail = self.errors.read().decode(errors="replace").strip()
        raise RuntimeError(f"`{self.agent.args[0]} agent` ended with exit code {self.agent.returncode}: {tail}")

    async def attach(self, address: str, path: str) -> None:
        """Connects to the agent's socket, and stays connected."""
        if self.link is not None:
            if path == self.socket and not self.link.done():
                return
            self.link.cancel()
        self.address, self.socket = address, path
        self.link = asyncio.ensure_future(self.serve())

    async def serve(self) -> None:
        """Passes on the agent's lines until its socket is gone."""
        try:
            while True:
                reader = await self.connect()
                with contextlib.suppress(OSError, ValueError):
                    await self.forward(reader)
                self.linked.clear()
                await asyncio.sleep(SOCKET_RETRY_SECONDS)
        except OSError as error:
            self.fail(f"the agent's socket is gone: {error}")
            self.worker.log_event(self.name, {"worker": self.address, "gone": f"{self.socket}: {error}"})

    async def connect(self) -> asyncio.StreamReader:
        """Connects and says hello."""
        end = time.monotonic() + SOCKET_SECONDS_MAX
        while True:
            try:
                reader, self.writer = await asyncio.open_unix_connection(self.socket, limit=EVENT_BYTES_MAX)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(SOCKET_RETRY_SECONDS)
        hello = {"worker": self.address, "environment": dict(os.environ), "directory": os.getcwd()}
        self.writer.write(json.dumps({"hello": hello}).encode() + b"\n")
        self.linked.set()
        return reader

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Sends lines to the carrier as events, with the keys of orders that ended in them."""
        rest = b""
        while chunk := await reader.read(EVENT_BYTES_MAX):
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            if whole:
                text = whole.decode(errors="replace")
                messages = [json.loads(line) for line in text.split("\n") if '"ended"' in line]
                ended = [message["key"] for message in messages if "ended" in message]
                self.worker.log_event(self.name, {"worker": self.address, "text": text, "ended": ended})
                for task, (_, left) in self.waits.items():
                    left.difference_update(ended)
                    if not left:
                        self.finish([task])
            await asyncio.sleep(EVENT_SECONDS)

    async def write(self, text: str) -> None:
        """Writes lines to the agent, as soon as the connection is there."""
        if self.link is not None and self.link.done():
            raise RuntimeError(f"the agent's socket {self.socket} is gone")
        await asyncio.wait_for(self.linked.wait(), LINK_SECONDS_MAX)
        async with self.turn:
            self.writer.write(text.encode() + b"\n")
            await self.writer.drain()

    async def carry(self, task: str, text: str, keys: list[Value]) -> None:
        """Writes orders to the agent, and waits until all of them have ended."""
        done = asyncio.get_running_loop().create_future()
        self.waits[task] = (done, set(keys))
        try:
            await self.write(text)
            await done
        finally:
            del self.waits[task]

    def finish(self, tasks: list[str]) -> None:
        """Ends the waits of tasks, if they wait here."""
        for task in self.waits.keys() & set(tasks):
            done, _ = self.waits[task]
            done.done() or done.set_result(None)

    async def finished(self, tasks: list[str]) -> None:
        """`finish`, for the carrier."""
        self.finish(tasks)

    def fail(self, why: str) -> None:
        """Lets all tasks fail that wait here."""
        for done, _ in self.waits.values():
            done.done() or done.set_exception(RuntimeError(why))


async def visit(name: str, method: str, words: tuple[Value, ...], dask_worker: Value) -> Value:
    """Calls a method of the plug-in in a worker."""
    return await getattr(dask_worker.plugins[name], method)(*words)


def carry(name: str, task: str, text: str, keys: list[Value], finished: list[str]) -> None:
    """The Dask task that carries orders: runs as long as they, but takes no thread of the pool."""
    distributed.secede()
    worker: Value = distributed.get_worker()
    plugin = worker.plugins[name]
    worker.loop.add_callback(plugin.finish, finished)
    asyncio.run_coroutine_threadsafe(plugin.carry(task, text, keys), worker.loop.asyncio_loop).result()


def forget(topic: str, dask_scheduler: Value) -> None:
    """Frees the scheduler's log of events. Dask has no call for that."""
    dask_scheduler._broker.truncate(topic)


class Call:
    """A call that happens where it is unpickled.

    `Call(pickle.loads, dumps(f))` is the function `f`, pickled once for many uses. `pickle.loads` of
    a pickled `Call` is a task of Dask that the scheduler passes on as bytes: it would unpickle and
    pickle a function by value, which takes it half a millisecond.
    """

    def __init__(self, function: Callable[..., Value], *words: Value) -> None:
        self.function = function
        self.words = words

    def __call__(self) -> Value:
        """Pickle and Dask want a callable where they get a function."""

    def __reduce__(self) -> tuple[Callable[..., Value], tuple[Value, ...]]:
        return self.function, self.words


@dataclasses.dataclass
class Worker:
    """A Dask worker that has answered. It was told the socket of its agent, or lost it (`gone`)."""

    address: str
    host: str
    threads: int
    binary: str | None
    version: str | None
    socket: str = ""
    gone: bool = False
    batches: int = 0


@dataclasses.dataclass
class Batch:
    """Orders that one Dask task carries. Ends that came by another worker are unknown to it."""

    task: str
    worker: Worker
    left: set[Value]
    future: Value
    elsewhere: bool = False
    over: float = 0.0


class Carrier:
    """The client of Dask. Its methods run on one event loop."""

    def __init__(self, out: BinaryIO, order: dict[str, Value]) -> None:
        self.out = out
        self.address, self.binary, self.wait = order["address"], order["binary"], order["wait"]
        self.name = f"tidemill-{order['run']}"
        self.host, _, self.port = self.address.rpartition("://")[2].rpartition(":")
        self.client: Value = None
        self.stream: Value = None
        self.spawned: set[asyncio.Future[Value]] = set()
        self.visit, self.carry, self.forget = (Call(pickle.loads, dumps(function)) for function in (visit, carry, forget))
        # Workers that have answered, those that are asked, and the versions by host.
        self.workers: dict[str, Worker] = {}
        self.asked: set[str] = set()
        self.versions: dict[str, dict[str, str | None]] = {}
        self.hosts: list[Value] | None = None
        # By host: where its agent started, the agent's socket, lines that wait.
        self.launched: dict[str, str] = {}
        self.sockets: dict[str, str] = {}
        self.posts: dict[str, list[str]] = {}
        # Open batches by task, and by host and key of their orders.
        self.batches: dict[str, Batch] = {}
        self.carried: dict[tuple[str, Value], Batch] = {}
        # Tasks whose orders ended in another worker's lines, by worker.
        self.ended: dict[str, list[str]] = {}
        self.logged = 0

    def tell(self, kind: str, body: Value) -> None:
        """Prints a message."""
        self.out.write(json.dumps({kind: body}, separators=(",", ":")).encode() + b"\n")
        self.out.flush()

    def spawn(self, work: Value) -> asyncio.Future[Value]:
        """Lets something happen beside."""
        task = asyncio.ensure_future(work)
        self.spawned.add(task)
        task.add_done_callback(self.spawned.discard)
        return task

    async def call(self, worker: str, method: str, *words: Value, seconds: float = CALL_SECONDS_MAX) -> Value:
        """Calls a method of the plug-in in a worker."""
        if self.client is None:
            raise RuntimeError("the connection to the Dask scheduler is lost")
        run = self.client.run(self.visit, self.name, method, words, workers=[worker])
        return (await asyncio.wait_for(run, seconds))[worker]

    async def connect(self, seconds: float) -> None:
        """Connects to the scheduler, and installs the plug-in."""
        client = distributed.Client(self.address, asynchronous=True, timeout=seconds)
        try:
            await asyncio.wait_for(client, seconds)
            client.subscribe_topic(self.name, lambda event: client is self.client and self.hear(event[1]))
            self.client, self.stream, self.hosts = client, client.scheduler_comm, None
            await asyncio.wait_for(client.register_plugin(Plugin(self.name, self.binary), self.name), SCHEDULER_SECONDS_MAX)
        except BaseException:
            self.client = None
            self.spawn(client.close(CLOSE_SECONDS_MAX))
            raise
        self.tell("opened", {"dask": distributed.__version__, "address": self.own_address()})

    def own_address(self) -> str:
        """The address of this machine on the way to the scheduler."""
        family, kind, number, _, address = socket.getaddrinfo(self.host.strip("[]"), self.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])

    def host_of(self, address: str) -> str:
        """The host in a worker's address. Workers inside of the scheduler's process have none."""
        scheme, _, place = address.rpartition("://")
        return self.host if scheme == "inproc" else place.rpartition(":")[0]

    def lost(self) -> bool:
        """Whether the connection to the scheduler broke, even if Dask has made another one."""
        return self.client is None or self.client.status != "running" or self.client.scheduler_comm is not self.stream

    async def watch(self) -> None:
        """Follows the workers, and the connection to the scheduler."""
        while True:
            why = "the connection to the Dask scheduler broke"
            if not self.lost():
                try:
                    threads = await asyncio.wait_for(self.client.nthreads(), SCHEDULER_SECONDS_MAX)
                    await self.settle(threads)
                    await asyncio.sleep(WATCH_SECONDS)
                    continue
                except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041 (two before Python 3.11)
                    why = str(error) or f"the Dask scheduler did not answer for {SCHEDULER_SECONDS_MAX} s"
            await self.reconnect(why)

    async def reconnect(self, why: str) -> None:
        """Tries until the scheduler is there again. Agents go on, so open orders are not told."""
        self.tell("cut", {"why": why})
        self.spawn(self.client.close(CLOSE_SECONDS_MAX))
        self.client = None
        for state in (self.workers, self.asked, self.batches, self.carried, self.ended):
            state.clear()
        while self.client is None:
            await asyncio.sleep(RECONNECT_SECONDS)
            with contextlib.suppress(Exception):
                await self.connect(min(self.wait, CLOSE_SECONDS_MAX))

    async def settle(self, threads: dict[str, int]) -> None:
        """Does what is due with the workers that there are now."""
        for address in self.workers.keys() - threads.keys():
            worker = self.workers.pop(address)
            for batch in [batch for batch in self.batches.values() if batch.worker is worker]:
                self.give_up(batch, f"the Dask worker {address} left")
        if new := threads.keys() - self.workers.keys() - self.asked:
            self.asked |= new
            await asyncio.wait([self.spawn(self.ask(address, threads[address])) for address in new], timeout=NEW_WORKERS_SECONDS)
        self.tell_hosts()
        self.attach_workers()
        self.tell_ended()
        if self.logged > LOG_BYTES_MAX:
            self.logged = 0
            self.spawn(self.client.run_on_scheduler(self.forget, self.name))

    async def ask(self, address: str, threads: int) -> None:
        """Learns which `tidemill` a new worker has. One that does not answer is asked again."""
        client, host = self.client, self.host_of(address)
        with contextlib.suppress(Exception):
            known = self.versions.setdefault(host, {})
            found = await self.call(address, "search", known)
            path, stamp, version = found or (None, "", None)
            known[stamp] = version
            if client is self.client:
                self.workers[address] = Worker(address, host, threads, path, version)
        self.asked.discard(address)

    def of_host(self, host: str) -> list[Worker]:
        """The workers of a host that reach its agent. The first has the least to carry."""
        workers = [worker for worker in self.workers.values() if worker.host == host and not worker.gone]
        return sorted(workers, key=lambda worker: worker.batches / max(1, worker.threads))

    def tell_hosts(self) -> None:
        """Prints the hosts, if they have changed."""
        hosts: dict[str, dict[str, Value]] = {}
        for worker in sorted(self.workers.values(), key=lambda worker: worker.address):
            host = hosts.setdefault(worker.host, {"host": worker.host, "workers": 0, "threads": 0, "binary": None, "version": None})
            host["workers"] += 1
            host["threads"] += worker.threads
            if host["version"] is None and worker.binary is not None:
                host.update(binary=worker.binary, version=worker.version)
        now = list(hosts.values())
        if now != self.hosts:
            self.hosts = now
            self.tell("hosts", now)

    async def launch(self, body: dict[str, Value]) -> None:
        """Starts the agent of a host."""
        workers = self.of_host(body["host"])
        worker = next((worker for worker in workers if worker.version is not None), None)
        if worker is None:
            why = "Dask worker that has a tidemill (TIDEMILL, PATH)" if workers else "Dask worker"
            self.tell("said", {"id": body["id"], "error": f"no {why} on {body['host']}"})
            return
        self.launched[body["host"]] = worker.address
        await self.answer(body, "launch", worker.binary)

    async def say(self, body: dict[str, Value]) -> None:
        """Passes a line to an agent that starts."""
        await self.answer(body, "say", body["line"])

    async def answer(self, body: dict[str, Value], method: str, word: Value) -> None:
        """Prints what the worker answers from which the agent of a host was started."""
        try:
            line = await self.call(self.launched[body["host"]], method, word, seconds=SAY_SECONDS_MAX)
            self.tell("said", {"id": body["id"], "line": line})
        except Exception as error:  # noqa: BLE001 (whatever happens in a worker)
            self.tell("said", {"id": body["id"], "error": str(error) or repr(error)})

    async def attach(self, body: dict[str, Value]) -> None:
        """Connects the workers of a host to its agent."""
        self.sockets[body["host"]] = body["socket"]
        for worker in self.workers.values():
            if worker.host == body["host"]:
                worker.socket, worker.gone = "", False
        self.attach_workers()

    def attach_workers(self) -> None:
        """Tells their agent's socket to workers that do not know it."""
        for worker in self.workers.values():
            if worker.socket != self.sockets.get(worker.host, worker.socket):
                worker.socket = self.sockets[worker.host]
                self.spawn(self.attach_worker(worker))

    async def attach_worker(self, worker: Worker) -> None:
        """Tells a worker the socket; later again, if it does not answer."""
        try:
            await self.call(worker.address, "attach", worker.address, worker.socket)
        except Exception:  # noqa: BLE001 (whatever happens in a worker)
            worker.socket = ""

    async def orders(self, body: dict[str, Value]) -> None:
        """Submits a batch as one Dask task."""
        host, keys, workers = body["host"], body["keys"], self.of_host(body["host"])
        if not workers or self.client is None:
            self.tell("undelivered", {"host": host, "keys": keys, "why": f"no Dask worker on {host} reaches an agent"})
            return
        worker, task = workers[0], f"{self.name}-{uuid.uuid4()}"
        call = Call(self.carry, self.name, task, "\n".join(body["lines"]), keys, self.ended.pop(worker.address, []))
        future = self.client.submit(pickle.loads, dumps(call), key=task, workers=[worker.address], allow_other_workers=False, pure=False)
        batch = self.batches[task] = Batch(task, worker, set(keys), future)
        worker.batches += 1
        self.carried.update(((host, key), batch) for key in keys)
        self.spawn(self.follow(batch))

    async def follow(self, batch: Batch) -> None:
        """Waits for the end of a batch's task."""
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await distributed.wait([batch.future])
        if not self.lost():
            status = batch.future.status
            error = await batch.future.exception() if status == "error" else f"its Dask task was {status}"
            self.give_up(batch, "" if status == "finished" else str(error))

    def give_up(self, batch: Batch, why: str) -> None:
        """Forgets a batch. Orders that have not ended are undelivered, if there is a reason."""
        if self.batches.pop(batch.task, None) is None:
            return
        batch.worker.batches -= 1
        keys = [key for key in batch.left if self.carried.get((batch.worker.host, key)) is batch]
        for key in keys:
            del self.carried[batch.worker.host, key]
        # Dask cancels a task that nobody waits for.
        batch.future.release()
        if why and keys:
            self.tell("undelivered", {"host": batch.worker.host, "keys": keys, "why": why})

    async def post(self, body: dict[str, Value]) -> None:
        """Passes lines in their order. Those that come meanwhile go together."""
        host = body["host"]
        if host in self.posts:
            self.posts[host] += body["lines"]
            return
        lines = body["lines"]
        while lines:
            self.posts[host] = []
            await self.deliver(host, "\n".join(lines))
            lines = self.posts.pop(host)

    async def deliver(self, host: str, text: str) -> None:
        """Passes lines by any worker of a host."""
        why = f"no Dask worker on {host} reaches an agent"
        for worker in self.of_host(host):
            try:
                await self.call(worker.address, "write", text)
            except Exception as error:  # noqa: BLE001 (whatever happens in a worker)
                why = str(error) or repr(error)
            else:
                return
        self.tell("undelivered", {"host": host, "keys": [], "why": why})

    def hear(self, event: dict[str, Value]) -> None:
        """Takes an event of a plug-in."""
        host = self.host_of(event["worker"])
        if "gone" in event:
            self.lose(host, event)
            return
        self.tell("lines", {"host": host, "lines": event["text"].split("\n")})
        self.logged += len(event["text"])
        for key in event["ended"]:
            batch = self.carried.pop((host, key), None)
            if batch is None:
                continue
            batch.left.discard(key)
            batch.elsewhere |= batch.worker.address != event["worker"]
            batch.over = 0.0 if batch.left else time.monotonic()
            if batch.over and batch.elsewhere:
                self.ended.setdefault(batch.worker.address, []).append(batch.task)

    def lose(self, host: str, event: dict[str, Value]) -> None:
        """Notes that a worker lost its agent's socket. An agent that all have lost is gone."""
        if (worker := self.workers.get(event["worker"])) and not worker.gone:
            worker.gone = True
            if not self.of_host(host):
                self.sockets.pop(host, None)
                self.tell("lines", {"host": host, "lines": [json.dumps({"gone": event["gone"]})]})

    def tell_ended(self) -> None:
        """Ends tasks whose orders ended in lines that came by other workers.

        An agent sends all outcomes to one worker of its host; most tasks wait in others. The carrier
        sees all lines. The next task that goes to a worker tells it which waits are over (`carry`),
        at no cost; the rest is told here. A task that was not there yet to be told is cancelled.
        """
        ended, self.ended = self.ended, {}
        if ended:
            tasks = list(itertools.chain(*ended.values()))
            self.spawn(self.client.run(self.visit, self.name, "finished", (tasks,), workers=list(ended), on_error="ignore"))
        now = time.monotonic()
        for batch in [batch for batch in self.batches.values() if batch.over and now - batch.over > ENDED_SECONDS_MAX]:
            self.give_up(batch, "")

    async def close(self) -> None:
        """Removes the plug-in, and what Dask has of the run."""
        client, self.client = self.client, None
        if client is None:
            return
        for batch in self.batches.values():
            batch.future.release()
        for step in (
            lambda: client.unregister_worker_plugin(self.name),
            lambda: client.run_on_scheduler(self.forget, self.name),
            client.close,
        ):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(step(), CLOSE_SECONDS_MAX)

    async def obey(self, lines: asyncio.StreamReader) -> None:
        """Does what the run says, until it says no more."""
        works = {"launch": self.launch, "say": self.say, "attach": self.attach, "orders": self.orders, "post": self.post}
        while line := await lines.readline():
            kind, body = next(iter(json.loads(line).items()))
            if kind == "close":
                break
            if kind == "orders":
                await self.orders(body)
            elif kind in works:
                self.spawn(works[kind](body))


def quiet() -> BinaryIO:
    """Keeps standard output for messages and returns it; of Dask, only errors are printed."""
    warnings.simplefilter("ignore")
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.ERROR)
    # Ctrl-C is for the run, which then closes the carrier.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


async def main() -> int:
    """Carries for one run; returns the exit code."""
    out = quiet()
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    carrier = Carrier(out, json.loads(await lines.readline())["open"])
    watch = None
    try:
        await carrier.connect(carrier.wait)
        watch, obey = carrier.spawn(carrier.watch()), carrier.spawn(carrier.obey(lines))
        for ended in (await asyncio.wait([watch, obey], return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
    except Exception as error:  # noqa: BLE001 (whatever Dask raises)
        message = f"cannot use the Dask scheduler at {carrier.address}: {str(error) or repr(error)}"
        carrier.tell("failed", {"message": message, "hint": HINT})
        return 1
    watch.cancel()
    await carrier.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
