"""What growing and shrinking cost: pauses, bytes moved, speed of a drain, shares, the loss of a leader.

    python3 bench/elastic.py --binary target/release/tidemill [--rounds 3] [--rows pause bytes ...]

Each row starts pools on this machine and prints a line of Markdown; of several rounds the median, and the
range. A hiccup meter runs beside each writer: a thread that sleeps for a millisecond and notes how much
later it wakes, which nothing here is to blame for. The Python package must be installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import tidemill

MIB = 1 << 20
# Keys and bytes of the writer: small, so that the time of a put is that of its messages.
KEYS, VALUE = 256, 16 << 10
# Data in the pool beside them.
FILLER_BYTES = 256 * MIB
SECONDS_BEFORE = 2.0
# Data of a node that is drained.
DRAINED_BYTES = 1024 * MIB


class Pool:
    """A pool on this machine."""

    def __init__(self, binary: Path, nodes: int, *flags: str) -> None:
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory(prefix="tidemill-bench-")
        self.file = f"{self.folder.name}/pool"
        self.environment = os.environ | {"XDG_RUNTIME_DIR": self.folder.name, "TIDEMILL_POOL": self.file}
        self.run("pool", "start", "--nodes", str(nodes), "--slots", "0", "--metrics", "127.0.0.1:0", *flags)

    def run(self, *words: str, check: bool = True) -> str:
        """Runs a command."""
        done = subprocess.run([str(self.binary), *words], env=self.environment, check=check, capture_output=True, text=True)
        return done.stdout

    def entries(self) -> list[dict]:
        """The nodes of the pool file."""
        return json.loads(Path(self.file).read_text())["nodes"]

    def moved_in(self) -> dict[int, float]:
        """Bytes of stripes that each node has got by moves."""
        moved = {}
        for entry in self.entries():
            with urllib.request.urlopen(f"http://{entry['metrics']}/metrics", timeout=5) as page:
                found = re.search(r'tidemill_moved_bytes_total\{direction="in"\} (\S+)', page.read().decode())
            moved[int(entry["id"])] = float(found[1]) if found else 0.0
        return moved

    def status(self) -> dict:
        """What `pool status` says, also of a pool of which a node does not answer."""
        return json.loads(self.run("pool", "status", "--json", check=False))

    def used(self, node: int) -> float:
        """Bytes that a node holds."""
        return next(float(known["used"]) for known in self.status()["nodes"] if known["id"] == node)

    def close(self) -> None:
        """Ends it."""
        subprocess.run([str(self.binary), "pool", "stop"], env=self.environment, check=False, capture_output=True)
        self.folder.cleanup()


@contextmanager
def pool(binary: Path, nodes: int, *flags: str) -> Iterator[Pool]:
    """A pool for one measurement."""
    running = Pool(binary, nodes, *flags)
    try:
        yield running
    finally:
        running.close()


def fill(file: str, total: int, length: int) -> None:
    """Puts objects of this length."""
    with tidemill.connect(file) as client:
        for number in range(total // length):
            client.put(f"fill/{number}", random.Random(number).randbytes(length))


class Writer:
    """A thread that puts small objects, and one that measures hiccups."""

    def __init__(self, file: str, avoids: int | None = None) -> None:
        self.file, self.avoids = file, avoids
        # Up to 4 KiB are beside the name. Longer values of each put lie elsewhere.
        self.length = VALUE if avoids is None else 2048
        self.times: list[tuple[float, float]] = []
        self.hiccups: list[float] = []
        self.failed = 0
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.write), threading.Thread(target=self.hiccup)]

    def write(self) -> None:
        """Puts until it is to end."""
        data = os.urandom(self.length)
        with tidemill.connect(self.file) as client:
            number = 0
            keys = self.keys(client, data)
            while not self.ends.is_set():
                begun = time.perf_counter()
                try:
                    client.put(keys[number % KEYS], data)
                except OSError:
                    self.failed += 1
                self.times.append((begun, time.perf_counter() - begun))
                number += 1

    def keys(self, client: tidemill.Pool, data: bytes) -> list[str]:
        """Keys of which a node that it is to avoid has nothing."""
        found: list[str] = []
        candidates = (f"w{number}" for number in itertools.count())
        while len(found) < KEYS:
            client.put(key := next(candidates), data)
            at = client.locate(key)
            if self.avoids not in {at.inode, *at.nodes}:
                found.append(key)
        return found

    def hiccup(self) -> None:
        """Measures until it is to end."""
        while not self.ends.is_set():
            begun = time.perf_counter()
            time.sleep(0.001)
            self.hiccups.append(time.perf_counter() - begun - 0.001)

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        time.sleep(SECONDS_BEFORE)
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def since(self, begun: float, until: float) -> list[float]:
        """The times of the puts that began in an interval."""
        return [took for at, took in self.times if begun <= at < until]


def percentile(values: list[float], percent: float) -> float:
    """A percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def spread(values: list[float], form: str, factor: float = 1.0) -> str:
    """The median and the range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{form.format(middle * factor)} ({form.format(low * factor)}..{form.format(high * factor)})"


def grown(binary: Path, partitions: int) -> tuple[list[float], float, float, float]:
    """Times of puts while 2 nodes become 3, the longest hiccup, the share of puts per second, and failures."""
    with pool(binary, 2, "--memory", "512MiB", "--partitions", str(partitions)) as running:
        fill(running.file, FILLER_BYTES, MIB)
        with Writer(running.file) as writer:
            begun = time.perf_counter()
            running.run("pool", "grow", "1", "--memory", "512MiB", "--slots", "0", "--quiet")
            ended = time.perf_counter()
        during, before = writer.since(begun, ended), writer.since(begun - SECONDS_BEFORE, begun)
        share = len(during) / (ended - begun) / (len(before) / SECONDS_BEFORE)
        return during, max(writer.hiccups), share, writer.failed


def pause(binary: Path, rounds: int) -> None:
    """The longest waits of one writer while a node joins, and its share of the work."""
    for partitions in (64, 4096):
        done = [grown(binary, partitions) for _ in range(rounds)]
        p99 = [percentile(times, 99) for times, *_ in done]
        most, hiccups, shares = [max(times) for times, *_ in done], [one[1] for one in done], [one[2] for one in done]
        print(f"| one writer, 2 to 3 nodes, {partitions} partitions, {FILLER_BYTES >> 20} MiB: p99 | {spread(p99, '{:.1f} ms', 1e3)} |")
        print(f"| the longest put; the longest hiccup | {spread(most, '{:.0f} ms', 1e3)}; {spread(hiccups, '{:.0f} ms', 1e3)} |")
        print(f"| puts per second meanwhile, of those before; failed puts | {spread(shares, '{:.0f} %', 100)}; {sum(one[3] for one in done):.0f} |")


def moved_bytes(binary: Path, rounds: int) -> None:
    """Bytes that move when a node joins and when it leaves an idle pool, by the least that must."""
    ratios: dict[str, list[float]] = {"joins": [], "leaves": []}
    for _ in range(rounds):
        with pool(binary, 2, "--memory", "1GiB") as running:
            fill(running.file, FILLER_BYTES, MIB)
            running.run("pool", "grow", "1", "--memory", "1GiB", "--slots", "0", "--quiet", "--metrics", "127.0.0.1:0")
            moved = running.moved_in()
            ratios["joins"].append(sum(moved.values()) / (FILLER_BYTES / 3))
            held = running.used(3)
            running.run("pool", "shrink", "1", "--quiet")
            ratios["leaves"].append((sum(running.moved_in().values()) - moved[1] - moved[2]) / held)
    for what, values in ratios.items():
        print(f"| bytes moved when a node {what}, by the least | {spread(values, '{:.2f}')} |")


def tcp_speed(total: int) -> float:
    """Bytes per second of one loopback connection."""
    server = socket.create_server(("127.0.0.1", 0))
    room = bytearray(MIB)

    def take() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv_into(room):
                pass

    thread = threading.Thread(target=take)
    thread.start()
    data, begun = bytes(MIB), time.perf_counter()
    with socket.create_connection(server.getsockname()) as client:
        for _ in range(total // MIB):
            client.sendall(data)
    thread.join()
    server.close()
    return total / (time.perf_counter() - begun)


def fresh_speed(total: int) -> float:
    """Bytes per second of a copy into memory that the system gives for it, in one thread."""
    data = os.urandom(MIB)
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        begun = time.perf_counter()
        for _ in range(total // MIB):
            file.write(data)
        file.flush()
        return total / (time.perf_counter() - begun)


def drain(binary: Path, rounds: int) -> None:
    """The speed at which a node that leaves gives away files of a MiB, by that of loopback TCP."""
    speeds, by_tcp, by_fresh, moved = [], [], [], DRAINED_BYTES
    for _ in range(rounds):
        with pool(binary, 2, "--memory", "4GiB") as running:
            fill(running.file, 2 * moved, MIB)
            begun = time.perf_counter()
            running.run("pool", "shrink", "1", "--quiet")
            speeds.append(moved / (time.perf_counter() - begun))
        by_tcp.append(speeds[-1] / tcp_speed(moved))
        by_fresh.append(speeds[-1] / fresh_speed(moved))
    print(f"| drain of a node with {moved >> 20} MiB, with the whole command | {spread(speeds, '{:.0f} MB/s', 1e-6)} |")
    print(f"| the same, by loopback TCP; by writes to a new file of tmpfs | {spread(by_tcp, '{:.2f}')}; {spread(by_fresh, '{:.2f}')} |")


def shares(binary: Path, rounds: int) -> None:
    """How far nodes are from their shares of 10,240 stripes after two of them have joined."""
    for memories in ((1024, 1024, 1024), (1024, 2048, 4096)):
        partitions, bytes_off = [], []
        for _ in range(rounds):
            with pool(binary, 1, "--memory", f"{memories[0]}MiB", "--partitions", "4096", "--max-nodes", "3") as running:
                with tidemill.connect(running.file) as client:
                    for number in range(10):
                        client.put(f"striped/{number}", os.urandom(64 * MIB), stripe_size="64KiB")
                for memory in memories[1:]:
                    running.run("pool", "grow", "1", "--memory", f"{memory}MiB", "--slots", "0", "--quiet")
                nodes, total = running.status()["nodes"], sum(memories)
                exact = [memory / total for memory in memories]
                partitions.append(max(abs(node["partitions"] - 4096 * share) for node, share in zip(nodes, exact, strict=True)))
                fills = [node["used"] / (memory * MIB) for node, memory in zip(nodes, memories, strict=True)]
                mean = sum(node["used"] for node in nodes) / (total * MIB)
                bytes_off.append(max(abs(fill - mean) for fill in fills))
        named = ":".join(str(memory // memories[0]) for memory in memories)
        print(f"| capacities {named}: most partitions that a node is off | {spread(partitions, '{:.2f}')} |")
        print(f"| capacities {named}: memory that a node is off, of its capacity | {spread(bytes_off, '{:.1f} %', 100)} |")


def leader_lost(binary: Path, rounds: int) -> None:
    """The longest put by way of other nodes while the managers lose their leader, and find another one."""
    longest, hiccups, elected, failed = [], [], [], 0
    for _ in range(rounds):
        with pool(binary, 4, "--memory", "64MiB") as running:
            # Node 1 has the root directory, without which nothing is found: another one shall lead.
            pids = {entry["id"]: entry["pid"] for entry in running.entries()}
            while len(running.status()["managers"]["members"]) < 3:
                time.sleep(0.1)
            os.kill(pids[1], signal.SIGSTOP)
            while (leader := running.status()["managers"]["leader"]) in (None, 1):
                time.sleep(0.1)
            os.kill(pids[1], signal.SIGCONT)
            with Writer(running.file, avoids=leader) as writer:
                begun = time.perf_counter()
                os.kill(pids[leader], signal.SIGKILL)
                while running.status()["managers"]["leader"] in (None, leader):
                    time.sleep(0.05)
                elected.append(time.perf_counter() - begun)
                time.sleep(1)
            longest.append(max(writer.since(begun, float("inf"))))
            hiccups.append(max(writer.hiccups))
            failed += writer.failed
    print(f"| the leader is lost: the longest put elsewhere; the longest hiccup | {spread(longest, '{:.0f} ms', 1e3)}; {spread(hiccups, '{:.0f} ms', 1e3)} |")
    print(f"| the time until another one is known; failed puts | {spread(elected, '{:.2f} s')}; {failed} |")


ROWS: dict[str, Callable[[Path, int], None]] = {
    "pause": pause,
    "bytes": moved_bytes,
    "drain": drain,
    "shares": shares,
    "leader": leader_lost,
}


def main() -> None:
    """Measures the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    given = parser.parse_args()
    print("| what | result |\n|---|---|")
    for row in given.rows:
        ROWS[row](given.binary.resolve(), given.rounds)


if __name__ == "__main__":
    main()
