"""Key-value servers to measure against: redis and memcached, on loopback, in memory only, ended with their context."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import WAIT_SECONDS_MAX, wait_for

# One value is a chunk of a file.
ITEM_MIB = 128


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """The address of a server that runs."""
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        failed = f"{' '.join(command)} does not listen"
        wait_for(lambda: answers(port) or process.poll() is not None, failed)
        if process.poll() is not None:
            raise RuntimeError(failed)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS_MAX)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The address of a redis that keeps nothing on disk."""
    port = free_port()
    with served(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"], port, folder) as address:
        yield address


@contextmanager
def memcached(folder: Path, mib: int) -> Iterator[str]:
    """The address of a memcached of so much memory, which takes values of a chunk."""
    port = free_port()
    words = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", str(mib), "-I", f"{ITEM_MIB}m", "-M"]
    with served(words, port, folder) as address:
        yield address
