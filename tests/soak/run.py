#!/usr/bin/env python3
"""Processes that run random operations on one pool, through one or several mounts, and check it.

Each has its own directory, whose exact state it knows (own.py), and takes part in races in one
shared directory (shared.py). At the end everything is checked and removed, and the pool must be as
empty as before. Usage: run.py SECONDS SEED PROCESSES MOUNT...
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
import traceback
from collections import Counter, deque
from pathlib import Path

import own
import shared

TRAIL = 30
# Maximum size of names and inodes of directories that the kernel has not forgotten yet.
LEFT_BYTES_MAX = 1 << 20
# Maximum wait for that in seconds: several times what the slowest run takes.
LET_GO_WAIT = 30


def process(mounts: list[Path], number: int, seed: int, end: float) -> dict[str, int]:
    """Runs random operations until `end`; returns the number of each."""
    numbers = random.Random(seed * 1000 + number)
    mine, racer = own.Own(mounts, f"own{number}", numbers), shared.Racer(mounts, number, numbers)
    trail: deque[str] = deque(maxlen=TRAIL)
    steps = 0
    try:
        while time.monotonic() < end:
            trail.append(mine.step() if numbers.random() < 0.6 else racer.step())
            steps += 1
        mine.check()
    except BaseException as error:
        raise AssertionError(f"process {number} of seed {seed}, step {steps}, after {list(trail)}: {error}") from error
    return {**racer.counted, "steps": steps}


def start(mounts: list[Path], number: int, seed: int, end: float) -> tuple[int, int]:
    """Starts a process; returns its id and a pipe with its result."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    os.close(read)
    try:
        said = json.dumps(process(mounts, number, seed, end))
    except BaseException:  # noqa: BLE001 - reported to the parent
        said = traceback.format_exc()
    with open(write, "w", encoding="utf-8") as pipe:
        pipe.write(said)
    os._exit(0)


def wait_for_space(mount: Path, before: os.statvfs_result) -> None:
    """Waits until the pool is as empty as before.

    The kernels of the other mounts forget removed files with a delay.
    """
    end = time.monotonic() + LET_GO_WAIT
    while (left := (before.f_bfree - os.statvfs(mount).f_bfree) * before.f_frsize) > LEFT_BYTES_MAX:
        assert time.monotonic() < end, f"{left} bytes are still taken, and everything is removed"
        time.sleep(0.01)


def main() -> int:
    """Starts all processes, waits for them, checks, and removes everything."""
    seconds, seed, count = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mounts = [Path(name) for name in sys.argv[4:]]
    before = os.statvfs(mounts[0])
    (mounts[0] / "shared").mkdir()
    shared.prepare(mounts[0] / "shared")
    end = time.monotonic() + seconds
    children = [start(mounts, number, seed, end) for number in range(count)]
    counted: Counter[str] = Counter()
    failed = False
    for child, read in children:
        with open(read, encoding="utf-8") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if said.startswith("{"):
            counted.update(json.loads(said))
        else:
            failed = True
            print(said or f"process {child} died", file=sys.stderr)
    if failed:
        return 1
    shared.check(mounts, counted)
    for entry in os.listdir(mounts[0]):
        shutil.rmtree(mounts[0] / entry)
    assert [os.listdir(mount) for mount in mounts] == [[]] * len(mounts)
    wait_for_space(mounts[0], before)
    print(json.dumps(counted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
