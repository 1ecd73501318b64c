#!/usr/bin/env python3
"""Memory that a node uses: its own pages, the unlinked files that it has open, and kernel memory.

Pages of unlinked files (memfd, private tmpfs) are counted once per file by their blocks, so mapped
pages of them are not counted again. Needs root to drop caches. Usage: bench/memory.py PROCESS
prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

BLOCK = 512
# The kernel frees inodes with a delay after the caches are dropped.
SETTLE_ROUNDS = 5


def private_pages(process: int) -> int:
    """Resident pages, without those of files in memory."""
    kib = {"RssAnon": 0, "RssFile": 0}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in kib:
            kib[name] = int(value.split()[0])
    return sum(kib.values()) << 10


def unlinked_files(process: int) -> int:
    """Space of the unlinked files that the process has open."""
    sizes: dict[tuple[int, int], int] = {}
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            status = link.stat()
            if status.st_nlink == 0:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
    return sum(sizes.values())


def slab() -> int:
    """Kernel memory for inodes, names and the like after the caches were dropped."""
    for _ in range(SETTLE_ROUNDS):
        Path("/proc/sys/vm/drop_caches").write_text("3")
        time.sleep(0.05)
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(facts["Slab"].split()[0]) << 10


def memory_of(process: int) -> dict[str, int]:
    """Bytes by place. The slab is that of the whole machine, so only its growth is meaningful."""
    kernel = slab()
    return {"node": private_pages(process), "nameless": unlinked_files(process), "slab": kernel}


if __name__ == "__main__":
    print(json.dumps(memory_of(int(sys.argv[1]))))
