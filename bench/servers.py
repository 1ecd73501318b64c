"""Key-value servers to compare with: redis and memcached on this host.

They store values in memory only, and stop at the end of their context.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import WAIT_SECONDS_MAX, wait_for

# Maximum length of a value, in MiB: one chunk of a file.
ITEM_MIB = 128
# Options of redis that turn off all writing to disk.
IN_MEMORY = ("--save", "", "--appendonly", "no")


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(at: int | Path) -> bool:
    """True if something listens at a port of loopback, or at a Unix socket."""
    family, address = (socket.AF_INET, ("127.0.0.1", at)) if isinstance(at, int) else (socket.AF_UNIX, str(at))
    with socket.socket(family) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0


@contextmanager
def served(command: list[str], at: int | Path, folder: Path) -> Iterator[str]:
    """Runs a server and yields its address."""
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        failed = f"{' '.join(command)} does not listen"
        wait_for(lambda: answers(at) or process.poll() is not None, failed)
        if process.poll() is not None:
            raise RuntimeError(failed)
        yield f"127.0.0.1:{at}" if isinstance(at, int) else str(at)
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS_MAX)


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The address of a redis that writes nothing to disk."""
    port = free_port()
    with served(["redis-server", "--bind", "127.0.0.1", "--port", str(port), *IN_MEMORY], port, folder) as address:
        yield address


@contextmanager
def redis_at_socket(folder: Path) -> Iterator[str]:
    """The Unix socket of a redis that writes nothing to disk."""
    path = folder / "redis.sock"
    with served(["redis-server", "--port", "0", "--unixsocket", str(path), *IN_MEMORY], path, folder) as address:
        yield address


@contextmanager
def memcached(folder: Path, mib: int) -> Iterator[str]:
    """The address of a memcached with `mib` MiB of memory, which accepts values of one chunk."""
    port = free_port()
    words = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", str(mib), "-I", f"{ITEM_MIB}m", "-M"]
    with served(words, port, folder) as address:
        yield address
