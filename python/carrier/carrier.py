"""The carrier of a run on a Dask cluster: a client of Dask that passes lines (docs/formats/carrier.md).

`tidemill run --on` contains this file and starts it as `python3 -c`. It reads messages of the run
on standard input and prints its own on standard output. It knows nothing of workflows.

`Plugin` and `Dialogue`, `visit`, `carry` and `forget` run in Dask's processes. Cloudpickle sends
them by value, because no file has them there: they use the standard library and `distributed` only.
"""

from __future__ import annotations

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
import time
import uuid
import warnings
from typing import Any, BinaryIO

try:
    from distributed import Client, Future, WorkerPlugin, __version__, get_worker, secede, wait
    from distributed.protocol.pickle import dumps
except ImportError as missing:
    print(json.dumps({"failed": {"message": f"{sys.executable} cannot import distributed: {missing}", "hint": "pip install distributed"}}), flush=True)
    sys.exit(1)

# One message or line. Orders of many attempts and outcomes with captured output take some MiB.
LINE_BYTES_MAX = 1 << 28
# Lines from an agent that travel as one event, and the pause in which they collect.
EVENT_BYTES_MAX = 1 << 20
EVENT_SECONDS = 0.002
# The end of an agent's standard error that explains why it ended.
STDERR_BYTES_MAX = 4096
# An agent's socket is tried again for so long: an agent that lives accepts within milliseconds.
SOCKET_SECONDS_MAX = 5.0
SOCKET_RETRY_SECONDS = 0.2
# Lines wait so long for the connection to the agent: longer than it is tried.
LINK_SECONDS_MAX = 10.0
VERSION_SECONDS_MAX = 10.0
# Answers of workers. An agent's answer may need the start of a node of the pool.
CALL_SECONDS_MAX = 30.0
SAY_SECONDS_MAX = 600.0
# The scheduler is asked for its workers so often. Without an answer for so long it is lost.
WATCH_SECONDS = 0.5
SCHEDULER_SECONDS_MAX = 30.0
# New workers are waited for so long, so that one message tells of all of them.
NEW_WORKERS_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
CLOSE_SECONDS_MAX = 5.0
# The scheduler keeps a thousand events of a topic. It forgets them after so many bytes.
LOG_BYTES_MAX = 8 << 20
HINT = "is `dask scheduler` running at this address? Its workers need the same Python and distributed as this machine"


class Dialogue:
    """The standard streams of an agent that starts.

    It is not asyncio's own process, because the end of that one would kill the agent.
    """

    def __init__(self, binary: str) -> None:
        pipe = subprocess.PIPE
        self.binary = binary
        self.process = subprocess.Popen([binary, "agent"], stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self.reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        self.tail = b""
        self.turn = asyncio.Lock()

    async def open(self) -> None:
        """Watches the streams."""
        loop = asyncio.get_running_loop()
        errors = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self.reader), self.process.stdout)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(errors), self.process.stderr)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self.process.stdin)
        self.writer = asyncio.StreamWriter(transport, protocol, None, loop)
        self.drained = asyncio.ensure_future(self.drain(errors))

    async def drain(self, errors: asyncio.StreamReader) -> None:
        """Reads standard error, so that the agent never waits, and keeps its end."""
        while chunk := await errors.read(STDERR_BYTES_MAX):
            self.tail = (self.tail + chunk)[-STDERR_BYTES_MAX:]

    async def say(self, line: str) -> str:
        """Writes a line; returns the one that answers."""
        async with self.turn:
            with contextlib.suppress(OSError):
                self.writer.write(line.encode() + b"\n")
                await self.writer.drain()
            answer = await self.reader.readline()
        if answer.endswith(b"\n"):
            return answer[:-1].decode(errors="replace")
        raise RuntimeError(await self.ending())

    async def ending(self) -> str:
        """Why there is no answer: the exit code and the end of standard error."""
        await asyncio.wait([self.drained], timeout=1)
        try:
            code = await asyncio.to_thread(self.process.wait, 1)
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        except subprocess.TimeoutExpired:
            how = "closed its standard output"
        tail = self.tail.decode(errors="replace").strip()
        return f"`{self.binary} agent` ended: {how}" + (f": {tail}" if tail else "")


class Plugin(WorkerPlugin):
    """The plug-in of one run in one worker: starts the host's agent, and passes lines to and from it.

    All its methods run on the worker's event loop.
    """

    def __init__(self, name: str, binary: str) -> None:
        self.name = name
        self.binary = binary

    def setup(self, worker: Any) -> None:
        """Begins without a connection."""
        self.worker = worker
        self.address = worker.address
        self.socket = ""
        self.link: asyncio.Future[None] | None = None
        self.linked = asyncio.Event()
        self.turn = asyncio.Lock()
        self.writer: asyncio.StreamWriter | None = None
        self.dialogue: Dialogue | None = None
        # Tasks that wait here, by Dask's key, and which of them waits for an order's end.
        self.waits: dict[str, tuple[asyncio.Future[None], set[Any]]] = {}
        self.tasks: dict[Any, str] = {}

    def teardown(self, worker: Any) -> None:  # noqa: ARG002
        """Leaves the agent alone: it outlives the workers."""
        if self.link is not None:
            self.link.cancel()
        if self.writer is not None:
            self.writer.close()
        self.end_waits("the worker or the run's plug-in ends")

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:  # noqa: ARG002
        """Ends the wait of a task that Dask has cancelled: its thread would wait forever."""
        if key in self.waits and finish in {"cancelled", "released", "forgotten"}:
            self.finish([key])

    def find(self) -> tuple[str, int] | None:
        """The host's `tidemill`, and its time of change."""
        for path in (os.environ.get("TIDEMILL"), shutil.which("tidemill"), self.binary):
            if path and os.path.isfile(path) and os.access(path, os.X_OK):
                return path, os.stat(path).st_mtime_ns
        return None

    async def search(self) -> tuple[str, int] | None:
        """`find`, for the carrier."""
        return self.find()

    async def version(self, path: str) -> str | None:
        """The first line of `tidemill --version`; None if it does not run."""
        command = [path, "--version"]
        try:
            done = await asyncio.to_thread(subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_SECONDS_MAX, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return next(iter(done.stdout.decode(errors="replace").splitlines()), None)

    async def launch(self) -> str:
        """Starts the agent of this host."""
        found = self.find()
        if found is None:
            raise RuntimeError("no tidemill here: neither TIDEMILL, nor PATH, nor the run's own path has one")
        self.dialogue = Dialogue(found[0])
        await self.dialogue.open()
        return ""

    async def say(self, line: str) -> str:
        """Writes a line to the agent that starts; returns its answer."""
        if self.dialogue is None:
            raise RuntimeError("no agent was started from this worker")
        return await self.dialogue.say(line)

    async def attach(self, address: str, path: str) -> None:
        """Connects to the agent's socket, and stays connected."""
        if self.link is not None and not self.link.done() and path == self.socket:
            return
        if self.link is not None:
            self.link.cancel()
        self.address, self.socket = address, path
        self.link = asyncio.ensure_future(self.serve())

    async def serve(self) -> None:
        """Passes on lines of the agent, until its socket is gone."""
        try:
            while True:
                reader = await self.connect()
                self.linked.set()
                with contextlib.suppress(OSError):
                    await self.forward(reader)
                self.linked.clear()
                await asyncio.sleep(SOCKET_RETRY_SECONDS)
        except OSError as error:
            why = f"{self.socket}: {error}"
            self.end_waits(why)
            self.worker.log_event(self.name, {"worker": self.address, "gone": why})

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
        return reader

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Sends lines to the carrier as they come. More lines collect in the pause after each event."""
        rest = b""
        while chunk := await reader.read(EVENT_BYTES_MAX):
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            if whole:
                text = whole.decode(errors="replace")
                ended = [json.loads(line).get("key") for line in text.split("\n") if line.startswith('{"ended"') or '"ended":' in line]
                self.worker.log_event(self.name, {"worker": self.address, "text": text, "ended": ended})
                self.note(ended)
            await asyncio.sleep(EVENT_SECONDS)

    async def write(self, text: str) -> None:
        """Writes lines to the agent, when the connection is there."""
        if self.link is not None and self.link.done():
            raise RuntimeError(f"the agent's socket {self.socket} is gone")
        await asyncio.wait_for(self.linked.wait(), LINK_SECONDS_MAX)
        async with self.turn:
            assert self.writer is not None
            self.writer.write(text.encode() + b"\n")
            await self.writer.drain()

    async def carry(self, task: str, text: str, keys: list[Any]) -> None:
        """Writes orders to the agent, and waits until all have ended."""
        done = asyncio.get_running_loop().create_future()
        self.waits[task] = (done, set(keys))
        self.tasks.update(dict.fromkeys(keys, task))
        try:
            await self.write(text)
            await done
        finally:
            self.waits.pop(task, None)
            for key in keys:
                if self.tasks.get(key) == task:
                    del self.tasks[key]

    def note(self, ended: list[Any]) -> None:
        """Ends the waits whose orders have all ended."""
        for key in ended:
            task = self.tasks.get(key)
            if task in self.waits:
                self.waits[task][1].discard(key)
                if not self.waits[task][1]:
                    self.finish([task])

    def finish(self, tasks: list[str]) -> None:
        """Ends the waits of these tasks, those that wait here."""
        for task in tasks:
            done, _ = self.waits.get(task, (None, None))
            if done is not None and not done.done():
                done.set_result(None)

    async def finished(self, tasks: list[str]) -> None:
        """`finish`, for the carrier."""
        self.finish(tasks)

    def end_waits(self, why: str) -> None:
        """Lets all tasks that wait here fail."""
        for done, _ in self.waits.values():
            if not done.done():
                done.set_exception(RuntimeError(why))


async def visit(name: str, method: str, words: tuple[Any, ...], dask_worker: Any) -> Any:
    """Calls a method of the plug-in."""
    return await getattr(dask_worker.plugins[name], method)(*words)


def carry(name: str, task: str, text: str, keys: list[Any], ended: list[str]) -> None:
    """The Dask task that carries orders. It runs as long as they, and takes no thread of the worker."""
    secede()
    worker = get_worker()
    plugin = worker.plugins[name]
    worker.loop.add_callback(plugin.finish, ended)
    asyncio.run_coroutine_threadsafe(plugin.carry(task, text, keys), worker.loop.asyncio_loop).result()


def forget(topic: str, last: bool, dask_scheduler: Any) -> None:
    """Frees the scheduler's log of a topic. Dask has no call for that, and keeps it forever."""
    dask_scheduler._broker.truncate(topic)
    if last:
        dask_scheduler._broker._topics.pop(topic, None)


class Frozen:
    """A function that is pickled once. Cloudpickle takes half a millisecond for each of ours."""

    def __init__(self, function: Any) -> None:
        self.bytes = dumps(function)

    def __call__(self) -> None:
        """Dask and pickle want something that can be called."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.bytes,)


class Call:
    """A call that happens where it is unpickled.

    A task is `pickle.loads` with these bytes: the scheduler passes them on, and need not unpickle and
    pickle the function by value.
    """

    def __init__(self, function: Frozen, *words: Any) -> None:
        self.function = function
        self.words = words

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.words


@dataclasses.dataclass
class Worker:
    """A Dask worker that has answered."""

    address: str
    host: str
    threads: int
    binary: str | None
    version: str | None
    # The socket that it was told; empty before.
    socket: str = ""
    # It lost the agent's socket.
    gone: bool = False
    batches: int = 0


@dataclasses.dataclass
class Batch:
    """Orders that one Dask task carries."""

    task: str
    worker: Worker
    left: set[Any]
    future: Future
    # An end came by another worker, so the one that waits does not know of it.
    elsewhere: bool = False


class Carrier:
    """The carrier. All its methods run on one event loop."""

    def __init__(self, out: BinaryIO, address: str, run: str, binary: str, wait: float) -> None:
        self.out = out
        self.address = address
        self.name = f"tidemill-{run}"
        self.binary = binary
        self.wait = wait
        self.client: Client | None = None
        self.stream: Any = None
        self.spawned: set[asyncio.Future[Any]] = set()
        # Workers that have answered, and those that are asked.
        self.workers: dict[str, Worker] = {}
        self.asked: set[str] = set()
        # What `tidemill --version` says, by host, path and time of change.
        self.versions: dict[tuple[str, str, int], asyncio.Future[Any]] = {}
        self.told_hosts: list[dict[str, Any]] | None = None
        # Where agents started, and the sockets of those that serve.
        self.launched: dict[str, str] = {}
        self.sockets: dict[str, str] = {}
        # Open batches by task, and by host and key of their orders.
        self.batches: dict[str, Batch] = {}
        self.orders_of: dict[tuple[str, Any], Batch] = {}
        # Tasks whose wait ends elsewhere, by worker, and those that were told so.
        self.ended: dict[str, list[str]] = {}
        self.told: list[str] = []
        self.posts: dict[str, list[str]] = {}
        self.logged = 0
        self.visit, self.carry, self.forget = Frozen(visit), Frozen(carry), Frozen(forget)

    def tell(self, kind: str, body: Any) -> None:
        """Prints a message."""
        self.out.write(json.dumps({kind: body}, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n")
        self.out.flush()

    def spawn(self, work: Any) -> None:
        """Lets something happen beside. A failure there is nobody's answer."""
        task = asyncio.ensure_future(work)
        self.spawned.add(task)
        task.add_done_callback(self.spawned.discard)

    async def call(self, worker: str, method: str, *words: Any, seconds: float = CALL_SECONDS_MAX) -> Any:
        """Calls a method of the plug-in in a worker."""
        if self.client is None:
            raise RuntimeError("the connection to the scheduler is lost")
        answers = await asyncio.wait_for(self.client.run(self.visit, self.name, method, words, workers=[worker]), seconds)
        return answers[worker]

    async def connect(self, seconds: float) -> None:
        """Connects to the scheduler, and installs the plug-in."""
        client = Client(self.address, asynchronous=True, timeout=seconds)
        try:
            await asyncio.wait_for(client, seconds)
            client.subscribe_topic(self.name, lambda event: self.hear(client, event[1]))
            await asyncio.wait_for(client.register_plugin(Plugin(self.name, self.binary), name=self.name), SCHEDULER_SECONDS_MAX)
        except BaseException:
            self.spawn(client.close(CLOSE_SECONDS_MAX))
            raise
        self.client, self.stream, self.told_hosts = client, client.scheduler_comm, None
        self.tell("opened", {"dask": __version__, "address": self.own_address()})

    def scheduler_host(self) -> tuple[str, int]:
        """The scheduler's host and port."""
        host, _, port = self.address.rpartition("://")[2].rpartition(":")
        return host, int(port)

    def own_address(self) -> str:
        """The address of this machine on the way to the scheduler."""
        host, port = self.scheduler_host()
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])

    def host_of(self, address: str) -> str:
        """The host in a worker's address. Workers within the scheduler's process have no port."""
        scheme, _, place = address.rpartition("://")
        return self.scheduler_host()[0] if scheme == "inproc" else place.rpartition(":")[0]

    def lost(self) -> bool:
        """Whether the connection to the scheduler broke, even if Dask has made another one."""
        return self.client is None or self.client.status != "running" or self.client.scheduler_comm is not self.stream

    async def watch(self) -> None:
        """Follows the cluster: its workers, and the connection to its scheduler."""
        while True:
            why = "the connection to the scheduler broke"
            if not self.lost():
                try:
                    assert self.client is not None
                    await self.settle(await asyncio.wait_for(self.client.nthreads(), SCHEDULER_SECONDS_MAX))
                    await asyncio.sleep(WATCH_SECONDS)
                    continue
                except (OSError, asyncio.TimeoutError) as error:  # noqa: UP041 (another one before Python 3.11)
                    why = str(error) or f"no answer of the scheduler in {SCHEDULER_SECONDS_MAX:.0f} seconds"
            await self.reconnect(why)

    async def reconnect(self, why: str) -> None:
        """Tries until the scheduler is there again. Agents go on, so open orders are not told."""
        self.tell("cut", {"why": why})
        assert self.client is not None
        self.spawn(self.client.close(CLOSE_SECONDS_MAX))
        self.client = None
        for state in (self.workers, self.asked, self.batches, self.orders_of, self.ended, self.told):
            state.clear()
        while self.client is None:
            await asyncio.sleep(RECONNECT_SECONDS)
            with contextlib.suppress(Exception):
                await self.connect(min(self.wait, CLOSE_SECONDS_MAX))

    async def settle(self, threads: dict[str, int]) -> None:
        """Does what is due with the workers that there are now."""
        for address in self.workers.keys() - threads.keys():
            self.remove(self.workers.pop(address))
        for worker in self.workers.values():
            worker.threads = threads[worker.address]
        new = threads.keys() - self.workers.keys() - self.asked
        if new:
            self.asked |= new
            await asyncio.wait([asyncio.ensure_future(self.ask(address, threads[address])) for address in new], timeout=NEW_WORKERS_SECONDS)
        self.tell_hosts()
        self.attach_workers()
        await self.tell_ended()
        await self.truncate()

    async def ask(self, address: str, threads: int) -> None:
        """Learns which `tidemill` a new worker has. One that does not answer is asked again."""
        client, host = self.client, self.host_of(address)
        try:
            found = await self.call(address, "search")
            binary, version = None, None
            if found is not None:
                binary, key = found[0], (host, *found)
                if key not in self.versions:
                    self.versions[key] = asyncio.ensure_future(self.call(address, "version", binary))
                version = await self.versions[key]
            if client is self.client:
                self.workers[address] = Worker(address, host, threads, binary, version)
        except Exception:  # noqa: BLE001 (whatever a worker answers)
            self.versions = {key: version for key, version in self.versions.items() if key[0] != host}
        finally:
            self.asked.discard(address)

    def remove(self, worker: Worker) -> None:
        """Gives up what a worker carried that is not there any more."""
        for batch in [batch for batch in self.batches.values() if batch.worker is worker]:
            self.give_up(batch, f"the Dask worker {worker.address} left")

    def of_host(self, host: str) -> list[Worker]:
        """The workers of a host that reach its agent, the one with the least to carry first."""
        workers = [worker for worker in self.workers.values() if worker.host == host and not worker.gone]
        return sorted(workers, key=lambda worker: worker.batches / max(1, worker.threads))

    def tell_hosts(self) -> None:
        """Prints the hosts, if they have changed."""
        hosts: dict[str, dict[str, Any]] = {}
        for worker in sorted(self.workers.values(), key=lambda worker: worker.address):
            host = hosts.setdefault(worker.host, {"host": worker.host, "workers": 0, "threads": 0, "binary": None, "version": None})
            host["workers"] += 1
            host["threads"] += worker.threads
            if host["version"] is None and worker.binary is not None:
                host.update(binary=worker.binary, version=worker.version)
        now = list(hosts.values())
        if now != self.told_hosts:
            self.told_hosts = now
            self.tell("hosts", now)

    async def launch(self, host: str, id: int) -> None:
        """Starts the agent of a host."""
        workers = self.of_host(host)
        worker = next((worker for worker in workers if worker.version is not None), None)
        if worker is None:
            self.tell("said", {"id": id, "error": f"no tidemill on {host}" if workers else f"no Dask worker on {host}"})
            return
        self.launched[host] = worker.address
        await self.answer(host, id, "launch")

    async def say(self, host: str, id: int, line: str) -> None:
        """Passes a line to the agent that starts, and its answer to the run."""
        await self.answer(host, id, "say", line)

    async def answer(self, host: str, id: int, method: str, *words: Any) -> None:
        """Prints what the worker answers in which the agent was started."""
        try:
            line = await self.call(self.launched[host], method, *words, seconds=SAY_SECONDS_MAX)
            self.tell("said", {"id": id, "line": line})
        except Exception as error:  # noqa: BLE001 (whatever happens in a worker)
            self.tell("said", {"id": id, "error": str(error) or repr(error)})

    async def attach(self, host: str, socket: str) -> None:
        """Connects the workers of a host to its agent."""
        self.sockets[host] = socket
        for worker in self.workers.values():
            if worker.host == host:
                worker.socket, worker.gone = "", False
        self.attach_workers()

    def attach_workers(self) -> None:
        """Tells the socket to workers that do not know it."""
        for worker in self.workers.values():
            path = self.sockets.get(worker.host, "")
            if worker.socket != path:
                worker.socket = path
                self.spawn(self.attach_worker(worker, path))

    async def attach_worker(self, worker: Worker, path: str) -> None:
        """Tells a worker the socket. It is told again if it does not answer."""
        try:
            await self.call(worker.address, "attach", worker.address, path)
        except Exception:  # noqa: BLE001 (whatever happens in a worker)
            worker.socket = ""

    async def orders(self, host: str, lines: list[str], keys: list[Any]) -> None:
        """Submits a batch as one Dask task, in the worker with the least to carry."""
        workers = self.of_host(host)
        if not workers or self.client is None:
            self.tell("undelivered", {"host": host, "keys": keys, "why": f"no Dask worker on {host} reaches its agent"})
            return
        worker, task = workers[0], f"{self.name}-{uuid.uuid4()}"
        ended = self.ended.pop(worker.address, [])
        self.told += ended
        call = dumps(Call(self.carry, self.name, task, "\n".join(lines), keys, ended))
        future = self.client.submit(pickle.loads, call, key=task, workers=[worker.address], allow_other_workers=False, pure=False)
        batch = self.batches[task] = Batch(task, worker, set(keys), future)
        worker.batches += 1
        self.orders_of.update(((host, key), batch) for key in keys)
        self.spawn(self.follow(batch))

    async def follow(self, batch: Batch) -> None:
        """Waits for the end of a batch's task."""
        with contextlib.suppress(Exception):
            await wait([batch.future])
        if self.lost():
            return
        why = f"the Dask task was {batch.future.status}"
        if batch.future.status == "error":
            why = str(await batch.future.exception())
        self.give_up(batch, "" if batch.future.status == "finished" else why)

    def give_up(self, batch: Batch, why: str) -> None:
        """Forgets a batch, and frees its task. Tells orders that have not ended, with the reason."""
        if self.batches.pop(batch.task, None) is None:
            return
        batch.worker.batches -= 1
        host = batch.worker.host
        for key in batch.left:
            self.orders_of.pop((host, key), None)
        if why and batch.left:
            self.tell("undelivered", {"host": host, "keys": list(batch.left), "why": why})
        # Dask cancels a task that nobody waits for.
        batch.future.release()

    async def post(self, host: str, lines: list[str]) -> None:
        """Passes lines in the order in which they came. Those that come meanwhile go together."""
        if host in self.posts:
            self.posts[host] += lines
            return
        self.posts[host] = lines
        while self.posts[host]:
            now, self.posts[host] = self.posts[host], []
            await self.deliver(host, "\n".join(now))
        del self.posts[host]

    async def deliver(self, host: str, text: str) -> None:
        """Passes lines by any worker of a host."""
        why = f"no Dask worker on {host} reaches its agent"
        for worker in self.of_host(host):
            try:
                await self.call(worker.address, "write", text)
            except Exception as error:  # noqa: BLE001 (whatever happens in a worker)
                why = str(error) or repr(error)
            else:
                return
        self.tell("undelivered", {"host": host, "keys": [], "why": why})

    def hear(self, client: Client, event: dict[str, Any]) -> None:
        """Takes an event of the plug-in in a worker."""
        worker = event["worker"]
        host = self.host_of(worker)
        if client is not self.client:
            return
        if "gone" in event:
            self.hear_gone(host, worker, event["gone"])
            return
        self.tell("lines", {"host": host, "lines": event["text"].split("\n")})
        self.logged += len(event["text"])
        for key in event["ended"]:
            batch = self.orders_of.pop((host, key), None)
            if batch is None:
                continue
            batch.left.discard(key)
            batch.elsewhere |= batch.worker.address != worker
            if not batch.left and batch.elsewhere:
                self.ended.setdefault(batch.worker.address, []).append(batch.task)

    def hear_gone(self, host: str, address: str, why: str) -> None:
        """A worker lost the agent's socket. If all have, the agent is gone."""
        worker = self.workers.get(address)
        if worker is None or worker.gone:
            return
        worker.gone = True
        if not self.of_host(host):
            self.sockets.pop(host, None)
            self.tell("lines", {"host": host, "lines": [json.dumps({"gone": why})]})

    async def tell_ended(self) -> None:
        """Ends the waits of tasks whose orders ended in lines that came by other workers.

        The agent sends all outcomes to one worker of its host, so most tasks wait in another one. The
        carrier sees all lines. It tells the next task that goes to a worker which waits are over
        (`carry`), without cost. This tells the rest. A task that does not end then was not there yet:
        it is cancelled.
        """
        for task in self.told:
            if task in self.batches:
                self.give_up(self.batches[task], "")
        ended, self.ended = self.ended, {}
        self.told = [task for tasks in ended.values() for task in tasks]
        if ended and self.client is not None:
            words = (self.name, "finished", (self.told,))
            call = self.client.run(self.visit, *words, workers=list(ended), on_error="ignore")
            self.spawn(call)

    async def truncate(self) -> None:
        """Lets the scheduler forget lines that it has passed on."""
        if self.logged > LOG_BYTES_MAX and self.client is not None:
            self.logged = 0
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self.client.run_on_scheduler(self.forget, self.name, last=False), CALL_SECONDS_MAX)

    async def close(self) -> None:
        """Removes the plug-in and all that Dask has of this run."""
        client, self.client = self.client, None
        if client is None:
            return
        for batch in self.batches.values():
            batch.future.release()
        for call in (
            lambda: client.unregister_worker_plugin(self.name),
            lambda: client.run_on_scheduler(self.forget, self.name, last=True),
            client.close,
        ):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(call(), CLOSE_SECONDS_MAX)

    async def obey(self, lines: asyncio.StreamReader) -> None:
        """Does what the run says, until it says no more."""
        works = {"launch": self.launch, "say": self.say, "attach": self.attach, "orders": self.orders, "post": self.post}
        while line := await lines.readline():
            kind, body = next(iter(json.loads(line).items()))
            if kind == "close":
                return
            if kind == "orders":
                await self.orders(body["host"], body["lines"], body["keys"])
            elif kind in works:
                self.spawn(works[kind](**body))


def quiet() -> BinaryIO:
    """Keeps standard output for messages, and standard error for errors; returns the first."""
    warnings.simplefilter("ignore")
    for name in ["distributed", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.ERROR)
    # The run ends the carrier: Ctrl-C is for the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


async def main() -> int:
    """Carries for one run; returns the exit code."""
    out = quiet()
    lines = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    first = await lines.readline()
    if not first:
        return 0
    carrier = Carrier(out, **json.loads(first)["open"])
    try:
        await carrier.connect(carrier.wait)
    except Exception as error:  # noqa: BLE001 (whatever Dask raises)
        message = f"cannot use the Dask scheduler at {carrier.address}: {error or repr(error)}"
        carrier.tell("failed", {"message": message, "hint": HINT})
        return 1
    watch = asyncio.ensure_future(carrier.watch())
    await carrier.obey(lines)
    watch.cancel()
    await carrier.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
