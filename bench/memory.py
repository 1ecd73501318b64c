#!/usr/bin/env python3
"""How much memory a node takes: its own pages, the nameless files that it holds open, and what the kernel keeps for it.

Pages of nameless files (memfd, private tmpfs) are counted by their blocks, each file once, and so not as pages that are mapped.
As root, since caches are dropped. Usage: bench/memory.py PROCESS prints it as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

BLOCK = 512
# The kernel frees inodes some time after they are dropped.
SETTLE_ROUNDS = 5


def own_pages(process: int) -> int:
    """Resident pages that are no pages of files in memory."""
    kib = {"RssAnon": 0, "RssFile": 0}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in kib:
            kib[name] = int(value.split()[0])
    return sum(kib.values()) << 10


def nameless_files(process: int) -> int:
    """Space of the files without a name that it holds open."""
    sizes: dict[tuple[int, int], int] = {}
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            status = link.stat()
            if status.st_nlink == 0:
                sizes[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
    return sum(sizes.values())


def slab() -> int:
    """What the kernel keeps for inodes, names and the like, after it dropped what it could."""
    for _ in range(SETTLE_ROUNDS):
        Path("/proc/sys/vm/drop_caches").write_text("3")
        time.sleep(0.05)
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(facts["Slab"].split()[0]) << 10


def taken_by(process: int) -> dict[str, int]:
    """Bytes, by where they are; the slab is that of the whole machine, so only its growth says something."""
    kernel = slab()
    return {"node": own_pages(process), "nameless": nameless_files(process), "slab": kernel}


if __name__ == "__main__":
    print(json.dumps(taken_by(int(sys.argv[1]))))
