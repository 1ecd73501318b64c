"""Memory of removed files: after thousands of them a pool uses as much as before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pools
import pytest

MEMORY = Path(__file__).parent.parent / "bench/memory.py"
MIB = 1 << 20
# Bytes that allocators and tables keep for reuse. A single leaked byte per name would exceed it in
# the longer test.
SLACK = 12 * MIB


def used_bytes(pool: pools.Pool) -> int:
    """Bytes of the node and its unlinked files, after the kernel's caches were dropped."""
    done = subprocess.run([sys.executable, str(MEMORY), str(pool.process.pid)], capture_output=True, text=True, check=True)
    parts = json.loads(done.stdout)
    return parts["node"] + parts["nameless"]


def create_and_remove(folder: Path, names: int, large: int) -> None:
    """Creates and removes `names` empty or small files, and `large` files of 1 MiB.

    The small ones exist a thousand at a time.
    """
    for start in range(0, names, 1000):
        files = [folder / f"{number}" for number in range(start, start + 1000)]
        for number, file in enumerate(files):
            file.write_bytes(b"x" * (number % 3 * 500))
        for file in files:
            file.unlink()
    content = bytes(MIB)
    for number in range(large):
        (folder / f"large{number % 7}").write_bytes(content)
        (folder / f"large{number % 7}").unlink()


def memory_returns(binary: Path, shared_dir: Path, io_flags: list[str], names: int, large: int) -> None:
    """Checks that a second round, ten times longer, uses no more memory than the first.

    The first round fills what is kept for reuse.
    """
    with pools.pool(binary, shared_dir, *io_flags) as pool:
        before = used_bytes(pool)
        create_and_remove(pool.dir, names // 10, large // 10)
        first = used_bytes(pool)
        create_and_remove(pool.dir, names, large)
        last = used_bytes(pool)
        assert list(pool.dir.iterdir()) == []
        assert last - first <= SLACK, f"{before >> 20} MiB at the start, {first >> 20} MiB after a tenth, {last >> 20} MiB after all"


@pytest.mark.usefixtures("root")
def test_memory_returns_when_files_have_come_and_gone(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    memory_returns(binary, shared_dir, io_flags, 10_000, 500)


@pytest.mark.soak
@pytest.mark.usefixtures("root")
def test_memory_returns_when_very_many_files_have_come_and_gone(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    memory_returns(binary, shared_dir, io_flags, 100_000, 10_000)
