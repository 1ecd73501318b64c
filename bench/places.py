"""File systems for the storage benchmarks: our mount with and without passthrough, and its peers.

Each place is made for one case and removed after it, so that no case is affected by another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from waiting import WAIT_SECONDS_MAX, wait_for

# Huge page settings: the kernel's defaults, which a user gets without any option.
HUGE = {
    "ours": "huge=within_size",
    "ordinary": "huge=within_size, through requests",
    "tmpfs": "tmpfs default: 4 KiB pages",
    "ext4": "page cache: large folios",
    "nothing": "no data",
}


@dataclass(frozen=True)
class Place:
    """A file system to measure."""

    name: str
    dir: Path
    # The process that serves it; 0 if the kernel does.
    server: int = 0


def wait_for_mount(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Waits until something is mounted at the directory."""
    failed = f"{process.args} did not mount {folder}"
    wait_for(lambda: os.path.ismount(folder) or process.poll() is not None, failed)
    if process.poll() is not None:
        raise RuntimeError(failed)


@contextmanager
def served(name: str, command: list[str], folder: Path, unmount: list[str]) -> Iterator[Place]:
    """A mount that a process serves."""
    folder.mkdir()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_mount(folder, process)
        yield Place(name, folder, process.pid)
    finally:
        subprocess.run(unmount, check=False, capture_output=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_SECONDS_MAX)
        if process.poll() is None:
            process.terminate()
            process.wait()
        folder.rmdir()


@contextmanager
def tidemill_mount(binary: Path, work: Path, memory: str, *, passthrough: bool = True) -> Iterator[Place]:
    """A mounted pool of Tidemill."""
    name = "ours" if passthrough else "ordinary"
    folder = work / name
    command = [str(binary), "mount", "--quiet", "--memory", memory, str(folder), *([] if passthrough else ["--no-passthrough"])]
    with served(name, command, folder, [str(binary), "umount", str(folder)]) as place:
        yield place


@contextmanager
def empty_server(program: Path, work: Path) -> Iterator[Place]:
    """The FUSE server that only answers."""
    folder = work / "nothing"
    with served("nothing", [str(program), str(folder)], folder, ["umount", str(folder)]) as place:
        yield place


@contextmanager
def tmpfs(work: Path, size: str) -> Iterator[Place]:
    """A separate tmpfs."""
    folder = work / "tmpfs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], check=True)
    try:
        yield Place("tmpfs", folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def disk(work: Path) -> Iterator[Place]:
    """A directory on the disk: its files stay in the page cache, and none is synced."""
    folder = work / "disk"
    folder.mkdir()
    try:
        yield Place("ext4", folder)
    finally:
        shutil.rmtree(folder)
