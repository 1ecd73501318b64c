# mypy: allow-untyped-calls
"""The carrier of a run on a Dask cluster passes lines (docs/formats/carrier.md).

`tidemill run --on` contains clusters.py with this file behind it, and starts both as one program by
`python3 -c`. `Plugin`, `visit`, `carry` and `forget` run in processes of Dask. Cloudpickle sends
them by value, for no file has them there.
"""

import asyncio
import contextlib
import dataclasses
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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from clusters import close_cluster, correct_state, start_cluster

try:
    import distributed
    from distributed.protocol.pickle import dumps
except ImportError as missing:
    body = {"message": f"{sys.executable} cannot use Dask: {missing}", "hint": "pip install distributed"}
    print(json.dumps({"failed": body}), flush=True)
    sys.exit(1)

HINT = "is `dask scheduler` running at this address, with the same Python and distributed as here?"
HINT_OF_CLUSTER = "what its processes printed may say more; docs/CLUSTER.md has the options of --on-option"
# A message with many orders, or with captured output, has some MiB.
LINE_BYTES_MAX = 1 << 28
# An agent's lines that travel as one event, and the pause in which more of them collect. The
# scheduler keeps the last thousand events of a run.
EVENT_BYTES_MAX, EVENT_SECONDS = 1 << 17, 0.002
# The end of an agent's standard error, which explains its end.
STDERR_BYTES_MAX = 4096
# An agent that lives accepts within milliseconds. Lines wait longer than its socket is tried.
SOCKET_SECONDS_MAX, SOCKET_RETRY_SECONDS = 5.0, 0.2
# Answers of Dask, and of an agent that starts a node of the pool first.
CALL_SECONDS_MAX, SAY_SECONDS_MAX, CLOSE_SECONDS_MAX = 30.0, 600.0, 5.0
# Looks at the workers; those that are new together are waited for, and told in one message.
WATCH_SECONDS, NEW_WORKERS_SECONDS, RECONNECT_SECONDS = 0.5, 1.0, 1.0
# Looks at whether a cluster has as many workers as it should.
ADAPT_SECONDS = 0.5
# The last line of an agent, which serves no more.
OVER = '"over"'
# Values of JSON, and objects of Dask, which has few types.
Value = Any


class Plugin(distributed.WorkerPlugin):
    """The plug-in of one run in one worker: starts the host's agent, and passes lines.

    Its methods run on the worker's event loop, but for those that `visit` runs in threads.
    """

    def __init__(self, name: str, binary: str) -> None:
        self.name, self.binary = name, binary

    def setup(self, worker: Value) -> None:
        """Begins without an agent."""
        self.worker = worker
        self.address, self.socket = worker.address, ""
        self.linked, self.turn = asyncio.Event(), asyncio.Lock()
        self.link: Value = None
        self.writer: Value = None
        self.agent: Value = None
        self.is_over = False
        # The waits of tasks for the end of their orders, and tasks that ended before they came.
        self.waits: dict[str, asyncio.Future[None]] = {}
        self.early: set[str] = set()

    def teardown(self, worker: Value) -> None:  # noqa: ARG002 (Dask's signature)
        """Closes connections. An agent that was told its run goes on; one that was not ends."""
        self.is_over = True
        if self.link is not None:
            self.link.cancel()
        if self.agent is not None:
            with contextlib.suppress(OSError):
                self.agent.stdin.close()
        self.end(list(self.waits), "the worker or the plug-in ends")

    def transition(self, key: Value, start: str, finish: str, **_: Value) -> None:  # noqa: ARG002
        """Ends the wait of a task that Dask has cancelled: its thread would wait forever."""
        if key in self.waits and finish in {"cancelled", "released", "forgotten"}:
            self.end([key])

    def search(self, known: dict[str, str | None]) -> tuple[str | None, str | None]:
        """The path of `tidemill`, and its version if it runs; `known` are versions by path."""
        path = next(filter(None, map(shutil.which, (os.environ.get("TIDEMILL", ""), "tidemill", self.binary))), None)
        if path is None or path in known:
            return path, known.get(path or "")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=CALL_SECONDS_MAX / 2, check=True)
            return path, done.stdout.decode(errors="replace").split("\n")[0]
        return path, None

    def launch(self, path: str) -> str:
        """Starts an agent. asyncio would kill it at the end of the worker; this does not."""
        pipe, self.errors = subprocess.PIPE, tempfile.TemporaryFile()  # noqa: SIM115 (`say` reads it)
        self.agent = subprocess.Popen([path, "agent"], stdin=pipe, stdout=pipe, stderr=self.errors, start_new_session=True)
        # `teardown` ran meanwhile and saw no agent: this one would wait forever for its first line.
        if self.is_over:
            self.agent.stdin.close()
        return ""

    def say(self, line: str) -> str:
        """Writes a line to the agent that starts; returns the one that it answers."""
        with contextlib.suppress(OSError, ValueError):  # ValueError: `teardown` closed it
            self.agent.stdin.write(line.encode() + b"\n")
            self.agent.stdin.flush()
        if answer := self.agent.stdout.readline():
            return str(answer.decode(errors="replace").rstrip("\n"))
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
        end = time.monotonic() + SOCKET_SECONDS_MAX
        while True:
            try:
                reader, self.writer = await asyncio.open_unix_connection(self.socket, limit=EVENT_BYTES_MAX)
            except OSError as error:
                if time.monotonic() > end:
                    self.worker.log_event(self.name, {"worker": self.address, "socket": self.socket, "gone": f"{self.socket}: {error}"})
                    return self.end(list(self.waits), f"the agent's socket is gone: {error}")
            else:
                with contextlib.suppress(OSError, ValueError), contextlib.closing(self.writer):
                    await self.forward(reader)
                self.linked.clear()
                end = time.monotonic() + SOCKET_SECONDS_MAX
            await asyncio.sleep(SOCKET_RETRY_SECONDS)

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Says hello; sends lines to the carrier, with the keys of orders that ended in them."""
        hello = {"worker": self.address, "environment": dict(os.environ), "directory": os.getcwd()}  # noqa: PTH109
        self.writer.write(json.dumps({"hello": hello}).encode() + b"\n")
        self.linked.set()
        rest = b""
        while chunk := await reader.read(EVENT_BYTES_MAX):
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            if whole:
                text = whole.decode(errors="replace")
                messages = [json.loads(line) for line in text.split("\n") if '"ended"' in line]
                ended = [message["ended"]["key"] for message in messages if "ended" in message]
                self.worker.log_event(self.name, {"worker": self.address, "text": text, "ended": ended})
            await asyncio.sleep(EVENT_SECONDS)

    async def write(self, text: str) -> None:
        """Writes lines to the agent, as soon as the connection is there."""
        if self.link is not None and self.link.done():
            raise RuntimeError(f"the agent's socket {self.socket} is gone")
        await asyncio.wait_for(self.linked.wait(), 2 * SOCKET_SECONDS_MAX)
        async with self.turn:
            self.writer.write(text.encode() + b"\n")
            await self.writer.drain()

    async def carry(self, task: str, text: str, finished: list[str]) -> None:
        """Writes orders to the agent, and waits until the carrier says that they have ended."""
        self.end(finished)
        wait = self.waits[task] = asyncio.get_running_loop().create_future()
        try:
            await self.write(text)
            if task not in self.early:
                await wait
        finally:
            self.waits.pop(task, None)
            self.early.discard(task)

    def end(self, tasks: list[str], why: str = "") -> None:
        """Ends the waits of tasks. With a reason, they fail."""
        for task in tasks:
            if task not in self.waits:
                self.early.add(task)
            elif why:
                self.waits.pop(task).set_exception(RuntimeError(why))
            else:
                self.waits.pop(task).set_result(None)


async def visit(name: str, method: str, words: tuple[Value, ...], dask_worker: Value) -> Value:
    """Calls a method of the plug-in in a worker."""
    work = getattr(dask_worker.plugins[name], method)
    answer = asyncio.to_thread(work, *words) if method in {"search", "launch", "say"} else work(*words)
    return await answer if asyncio.iscoroutine(answer) else answer


def carry(name: str, *words: Value) -> None:
    """The Dask task that carries orders: runs as long as they, but takes no thread of the pool."""
    distributed.secede()
    worker: Value = distributed.get_worker()
    asyncio.run_coroutine_threadsafe(worker.plugins[name].carry(*words), worker.loop.asyncio_loop).result()


def forget(topic: str, dask_scheduler: Value) -> None:
    """Frees the scheduler's log of events. Dask has no call for that."""
    dask_scheduler._broker.truncate(topic)


class HostAdaptive(distributed.Adaptive):
    """Has a cluster have as many workers as the run wants.

    It closes workers of hosts that the run has released, for their nodes have left the pool. Of
    others it closes only those that have not come yet.
    """

    def __init__(self, cluster: Value, **options: Value) -> None:
        super().__init__(cluster, **{"interval": ADAPT_SECONDS, "wait_count": 1, **options})
        self.wanted = len(cluster.plan)
        self.released: set[str] = set()
        # What is called with the reason if workers cannot be started.
        self.on_failure: Callable[[str], None] = lambda _: None

    async def adapt(self) -> None:
        """Starts and closes workers, if there are too few or too many. Dask would only log failures."""
        try:
            await super().adapt()
        except Exception as error:  # noqa: BLE001 (whatever a kind of cluster raises)
            self.on_failure(str(error) or repr(error))

    async def scale_up(self, n: Value) -> None:
        """Starts workers, and waits for that. `Cluster.scale` would not tell that it failed."""
        made: Value = self.cluster
        while len(made.worker_spec) < n:
            made.worker_spec.update(made.new_worker_spec())
        await correct_state(made)

    def follow(self, workers: int, release: list[str]) -> None:
        """Takes what the run wants now."""
        self.wanted = workers
        self.released.update(release)

    async def target(self) -> int:
        """The number of workers that the run wants."""
        return self.wanted

    async def workers_to_close(self, target: int) -> list[Value]:  # noqa: ARG002 (Dask's signature)
        """The names of the workers of released hosts, however many there should be."""
        workers = self.cluster.scheduler_info["workers"].items()
        return [worker["name"] for address, worker in workers if place_of(address) in self.released]

    async def recommendations(self, target: int) -> dict[str, Value]:
        """Released workers go first: Dask would rather close others that it takes for late."""
        if names := await self.workers_to_close(target):
            return {"status": "down", "workers": names}
        # A host that is not there any more may come again.
        self.released.clear()
        return dict(await super().recommendations(target))


def place_of(address: str) -> str:
    """The part of a worker's address that names its host."""
    return address.rpartition("://")[2].rpartition(":")[0]


class Call:
    """A call that happens where it is unpickled.

    `Call(pickle.loads, dumps(f))` is the function `f`, pickled once for all uses. A task is
    `pickle.loads` of a pickled `Call`: the scheduler passes on bytes. It would unpickle and pickle a
    function by value, which costs half a millisecond.
    """

    def __init__(self, function: Callable[..., Value], *words: Value) -> None:
        self.call = function, words

    def __call__(self) -> None:
        """Makes pickle and Dask take it for a function."""

    def __reduce__(self) -> tuple[Callable[..., Value], tuple[Value, ...]]:
        return self.call


@dataclasses.dataclass
class Worker:
    """A Dask worker that has answered."""

    address: str
    host: str
    threads: int
    binary: str | None
    version: str | None
    # It lost the agent's socket.
    gone: bool = False
    batches: int = 0


@dataclasses.dataclass
class Batch:
    """Orders that one Dask task carries; `left` are those that have not ended."""

    task: str
    worker: Worker
    left: set[Value]
    future: Value


class Carrier:
    """The client of Dask. Its methods run on one event loop."""

    def __init__(self, out: BinaryIO, order: dict[str, Value]) -> None:
        self.out, self.run = out, order["run"]
        self.binary, self.wait = order["binary"], order["wait"]
        # The carrier of a run that was killed may be there still when the run is resumed.
        self.name = f"tidemill-{self.run}-{uuid.uuid4().hex[:8]}"
        # The cluster that this process starts, if it does, and the address of the scheduler.
        self.order, self.address = order.get("cluster", {}), order.get("address", "")
        self.cluster: Value = None
        self.adaptive: HostAdaptive | None = None
        self.client: Value = None
        self.stream: Value = None
        self.spawned: set[asyncio.Future[Value]] = set()
        self.visit, self.carry, self.forget = (Call(pickle.loads, dumps(function)) for function in (visit, carry, forget))
        # Workers that have answered, those that are asked, and those that neither close nor pause.
        self.workers: dict[str, Worker] = {}
        self.running: dict[str, int] = {}
        self.asked: set[str] = set()
        # By host: versions by path, where its agent started, the agent's socket, lines that wait.
        self.versions: dict[str, dict[str, str | None]] = {}
        self.launched: dict[str, str] = {}
        self.sockets: dict[str, str] = {}
        self.posts: dict[str, tuple[asyncio.Lock, list[str]]] = {}
        self.hosts: list[Value] | None = None
        # Open batches by task, and by host and key of their orders; tasks that ended, by worker.
        self.batches: dict[str, Batch] = {}
        self.carried: dict[tuple[str, Value], Batch] = {}
        self.ended: dict[str, list[str]] = {}

    def tell(self, kind: str, body: Value) -> None:
        """Prints a message."""
        self.out.write(json.dumps({kind: body}, separators=(",", ":")).encode() + b"\n")
        self.out.flush()

    def spawn(self, work: Value) -> asyncio.Future[Value]:
        """Lets something happen beside."""
        task: asyncio.Future[Value] = asyncio.ensure_future(work)
        self.spawned.add(task)
        task.add_done_callback(self.spawned.discard)
        return task

    async def call(self, worker: str, method: str, *words: Value, seconds: float = CALL_SECONDS_MAX) -> Value:
        """Calls a method of the plug-in in a worker."""
        if self.client is None:
            raise RuntimeError("the connection to the Dask scheduler is lost")
        run = self.client.run(self.visit, self.name, method, words, workers=[worker])
        return (await asyncio.wait_for(run, seconds))[worker]

    async def open(self) -> None:
        """Starts the cluster, if the run has none, and connects to it."""
        if self.order:
            self.cluster = await start_cluster(self.order, self.run, self.wait)
            self.address = self.cluster.scheduler_address
        await self.connect(self.wait)

    @property
    def host(self) -> str:
        """The scheduler's host."""
        return str(self.address.rpartition("://")[2].rpartition(":")[0])

    async def connect(self, seconds: float) -> None:
        """Connects to the scheduler, and installs the plug-in."""
        security = getattr(self.cluster, "security", None)
        client: Value = distributed.Client(self.address, asynchronous=True, timeout=seconds, security=security)
        try:
            await asyncio.wait_for(client, seconds)
            await asyncio.wait_for(self.install(client), CALL_SECONDS_MAX)
        except BaseException:
            self.spawn(client.close(CLOSE_SECONDS_MAX))
            raise
        self.client, self.stream, self.hosts = client, client.scheduler_comm, None
        # The address of this machine on the way to the scheduler.
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((self.host.strip("[]"), int(self.address.rpartition(":")[2])))
            self.tell("opened", {"dask": distributed.__version__, "address": probe.getsockname()[0]})  # type: ignore[attr-defined]

    async def install(self, client: Value) -> None:
        """Subscribes to lines, and installs the plug-in.

        A subscription travels apart from calls and may come later: one event must have come first.
        """
        heard = asyncio.Event()
        client.subscribe_topic(self.name, lambda event: self.hear(client, event[1]) if event[1] else heard.set())
        while not heard.is_set():
            await client.log_event(self.name, None)
            await asyncio.sleep(EVENT_SECONDS)
        plugin = self.spawn(client.register_plugin(Plugin(self.name, self.binary), self.name))
        # A worker that hangs does not hold up the others.
        if (await asyncio.wait([plugin], timeout=NEW_WORKERS_SECONDS))[0]:
            plugin.result()

    def host_of(self, address: str) -> str:
        """The host in a worker's address. Workers inside of the scheduler's process have none."""
        return self.host if address.startswith("inproc://") else place_of(address)

    def lost(self) -> bool:
        """Whether the connection to the scheduler broke, even if Dask has made another one."""
        return self.client is None or self.client.status != "running" or self.client.scheduler_comm is not self.stream

    async def watch(self) -> None:
        """Follows the workers, and the connection to the scheduler."""
        while True:
            why = "the connection to the Dask scheduler broke"
            with contextlib.suppress(OSError):
                try:
                    while not self.lost():
                        looks = self.client.scheduler.ncores(), self.client.scheduler.ncores_running()
                        await self.settle(*await asyncio.wait_for(asyncio.gather(*looks), CALL_SECONDS_MAX))
                        await asyncio.sleep(WATCH_SECONDS)
                except asyncio.TimeoutError:  # noqa: UP041 (another one before Python 3.11)
                    why = f"the Dask scheduler did not answer for {CALL_SECONDS_MAX} seconds"
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

    async def settle(self, threads: dict[str, int], running: dict[str, int]) -> None:
        """Does what is due with the workers that there are now, of which some take tasks."""
        self.workers = {address: worker for address, worker in self.workers.items() if address in threads}
        self.running = running
        # Orders that come back should not go there again.
        if self.hosts is not None:
            self.tell_hosts()
        for batch in [batch for batch in self.batches.values() if batch.worker.address not in threads]:
            self.give_up(batch, f"the Dask worker {batch.worker.address} left")
        if new := threads.keys() - self.workers.keys() - self.asked:
            self.asked |= new
            await asyncio.wait([self.spawn(self.ask(address, threads[address])) for address in new], timeout=NEW_WORKERS_SECONDS)
        self.tell_hosts()
        if self.ended:
            # The rest of those that no next task told its worker (`orders`).
            tasks = [task for ended in self.ended.values() for task in ended]
            self.spawn(self.client.run(self.visit, self.name, "end", (tasks,), workers=list(self.ended), on_error="ignore"))
            self.ended = {}

    async def ask(self, address: str, threads: int) -> None:
        """Learns which `tidemill` a new worker has. One that does not answer is asked again."""
        client, host = self.client, self.host_of(address)
        known = self.versions.setdefault(host, {})
        with contextlib.suppress(Exception):
            path, version = await self.call(address, "search", known)
            known[path] = version
            if client is self.client:
                self.workers[address] = Worker(address, host, threads, path, version)
                await self.attach_worker(self.workers[address])
        self.asked.discard(address)

    async def attach_worker(self, worker: Worker) -> None:
        """Tells a worker its agent's socket. One that does not answer is new at the next look."""
        if worker.host in self.sockets:
            try:
                worker.gone = False
                await self.call(worker.address, "attach", worker.address, self.sockets[worker.host])
            except Exception:  # noqa: BLE001 (whatever happens in a worker)
                self.workers.pop(worker.address, None)

    def of_host(self, host: str) -> list[Worker]:
        """The workers of a host that reach its agent. The first has the least to carry."""
        workers = [worker for worker in self.workers.values() if worker.host == host and not worker.gone]
        return sorted(workers, key=lambda worker: worker.batches / max(1, worker.threads))

    def tell_hosts(self) -> None:
        """Prints the hosts, if they have changed."""
        hosts: dict[str, dict[str, Value]] = {}
        for worker in sorted((self.workers[address] for address in self.workers.keys() & self.running), key=lambda worker: worker.address):
            host = hosts.setdefault(worker.host, {"host": worker.host, "workers": 0, "threads": 0, "binary": None, "version": None})
            host.update(workers=host["workers"] + 1, threads=host["threads"] + worker.threads)
            if host["version"] is None and worker.binary is not None:
                host.update(binary=worker.binary, version=worker.version)
        if self.hosts != (now := list(hosts.values())):
            self.hosts = now
            self.tell("hosts", now)

    async def answer(self, kind: str, body: dict[str, Value]) -> None:
        """Starts an agent, or passes it a line while it starts; prints what the worker answers."""
        host, word, said = body["host"], body.get("line"), {"id": body["id"]}
        workers = [worker for worker in self.workers.values() if worker.host == host and worker.version is not None]
        if kind == "launch" and workers:
            self.launched[host], word = workers[0].address, workers[0].binary
        try:
            seconds = SAY_SECONDS_MAX if kind == "say" else CALL_SECONDS_MAX
            said["line"] = await self.call(self.launched[host], kind, word, seconds=seconds)
        except KeyError:
            said["error"] = f"no Dask worker on {host} has a `tidemill` that runs (TIDEMILL, PATH)"
        except Exception as error:  # noqa: BLE001 (whatever happens in a worker)
            said["error"] = str(error) or repr(error)
        self.tell("said", said)

    async def orders(self, body: dict[str, Value]) -> None:
        """Submits a batch as one Dask task, and waits for its end.

        It takes along which waits in its worker are over: an agent sends all outcomes to one worker
        of its host, so most tasks wait in others, and only the carrier sees all lines.
        """
        host, keys = body["host"], body["keys"]
        workers = [worker for worker in self.of_host(host) if worker.address in self.running]
        if not workers or self.client is None:
            self.tell("undelivered", {"host": host, "keys": keys, "why": f"no Dask worker on {host} reaches an agent"})
            return
        worker, task = workers[0], f"{self.name}-{uuid.uuid4()}"
        call = Call(self.carry, self.name, task, "\n".join(body["lines"]), self.ended.pop(worker.address, []))
        future = self.client.submit(pickle.loads, dumps(call), key=task, workers=[worker.address], allow_other_workers=False, pure=False)
        batch = self.batches[task] = Batch(task, worker, set(keys), future)
        worker.batches += 1
        self.carried.update(((host, key), batch) for key in keys)
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await distributed.wait([future])
        if not self.lost():
            status = future.status
            why = await future.exception() if status == "error" else f"its Dask task was {status}"
            self.give_up(batch, str(why))

    def give_up(self, batch: Batch, why: str) -> None:
        """Forgets a batch and its task. Orders that have not ended are undelivered."""
        if self.batches.pop(batch.task, None) is None:
            return
        batch.worker.batches -= 1
        keys = [key for key in batch.left if self.carried.get((batch.worker.host, key)) is batch]
        for key in keys:
            del self.carried[batch.worker.host, key]
        # Dask cancels a task that nobody waits for.
        batch.future.release()
        if keys:
            self.tell("undelivered", {"host": batch.worker.host, "keys": keys, "why": why})

    async def post(self, host: str, lines: list[str]) -> None:
        """Passes lines by any worker of a host, in their order. Those that wait go together."""
        turn, waiting = self.posts.setdefault(host, (asyncio.Lock(), []))
        waiting += lines
        async with turn:
            text = "\n".join(waiting)
            waiting.clear()
            for worker in self.of_host(host) if text else ():
                with contextlib.suppress(Exception):
                    await self.call(worker.address, "write", text)
                    return
        if text:
            self.tell("undelivered", {"host": host, "keys": [], "why": f"no Dask worker on {host} reaches an agent"})

    def hear(self, client: Value, event: dict[str, Value]) -> None:
        """Takes an event of a plug-in: lines, or the loss of an agent's socket."""
        worker, host = self.workers.get(event["worker"]), self.host_of(event["worker"])
        if client is not self.client:
            return
        for key in event.get("ended", ()):
            if batch := self.carried.pop((host, key), None):
                batch.left.discard(key)
                if not batch.left:
                    self.ended.setdefault(batch.worker.address, []).append(batch.task)
        if "text" in event:
            lines = event["text"].split("\n")
            if OVER in lines:
                self.sockets.pop(host, None)
            self.tell("lines", {"host": host, "lines": lines})
        elif worker is not None and self.sockets.get(host) == event["socket"]:
            worker.gone = True
            # The agent is gone if all workers of its host have lost it.
            if not self.of_host(host):
                del self.sockets[host]
                self.tell("lines", {"host": host, "lines": [json.dumps({"gone": event["gone"]})]})

    def scale(self, workers: int, release: list[str]) -> None:
        """Has the cluster have so many workers, and close those of released hosts."""
        if self.adaptive is None:
            self.adaptive = self.cluster.adapt(Adaptive=HostAdaptive)
            self.adaptive.on_failure = lambda why: self.tell("unscaled", {"why": why})
        self.adaptive.follow(workers, release)

    async def close(self) -> None:
        """Removes the plug-in, and what Dask has of the run; ends a cluster that is the run's own."""
        client, self.client = self.client, None
        if client is not None:
            for batch in self.batches.values():
                batch.future.release()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(client.unregister_worker_plugin(self.name), CLOSE_SECONDS_MAX)
                await asyncio.wait_for(client.run_on_scheduler(self.forget, self.name), CLOSE_SECONDS_MAX)
                await client.close(CLOSE_SECONDS_MAX)
        if self.cluster is not None:
            await close_cluster(self.cluster)

    async def work(self, messages: asyncio.StreamReader) -> None:
        """Does everything, until the run says no more; what fails is raised."""
        obey, opening = self.spawn(self.obey(messages)), self.spawn(self.open())
        await asyncio.wait([obey, opening], return_when=asyncio.FIRST_COMPLETED)
        if obey.done():
            # A cluster that starts is soon there, and then closed in order.
            await asyncio.wait([opening], timeout=CLOSE_SECONDS_MAX)
            opening.cancel()
            await asyncio.wait([opening])
            obey.result()
            return
        opening.result()
        works = [obey, self.spawn(self.watch())]
        if hasattr(self.cluster, "ended"):
            works.append(self.spawn(self.cluster.ended()))
        for ended in (await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()
        for work in works:
            work.cancel()

    async def obey(self, messages: asyncio.StreamReader) -> None:
        """Does what the run says, until it says no more."""
        while line := await messages.readline():
            kind, body = next(iter(json.loads(line).items()))
            if kind == "close":
                if self.sockets and "line" in body:
                    await asyncio.wait([self.spawn(self.post(host, [body["line"]])) for host in self.sockets], timeout=CLOSE_SECONDS_MAX)
                return
            if kind in {"launch", "say"}:
                self.spawn(self.answer(kind, body))
            elif kind == "attach":
                self.sockets[body["host"]] = body["socket"]
                for worker in [worker for worker in self.workers.values() if worker.host == body["host"]]:
                    self.spawn(self.attach_worker(worker))
            elif kind == "orders":
                self.spawn(self.orders(body))
            elif kind == "scale":
                self.scale(body["workers"], body["release"])
            elif kind == "post":
                self.spawn(self.post(body["host"], body["lines"]))


async def main() -> int:
    """Carries for one run; returns the exit code."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    # Ctrl-C is for the run, which then closes the carrier.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Standard output is for messages alone.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(messages), sys.stdin)
    carrier = Carrier(out, json.loads(await messages.readline())["open"])
    try:
        await carrier.work(messages)
    except Exception as error:  # noqa: BLE001 (whatever Dask raises)
        where = f"the Dask scheduler at {carrier.address}" if carrier.address else f"a Dask cluster by {carrier.order.get('kind')}"
        why = f"cannot use {where}: {str(error) or repr(error)}"
        carrier.tell("failed", {"message": why, "hint": getattr(error, "hint", HINT if carrier.address else HINT_OF_CLUSTER)})
        return 1
    finally:
        await carrier.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
