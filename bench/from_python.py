"""The Python package against alternatives: ray, redis, and files of a tmpfs. Prints JSON.

    python3 bench/from_python.py --binary target/release/tidemill [--rounds 5]
                                 [--rows put get small parquet zarr]

Each row measures both sides in alternation and reports the median of the ratios round by round: our
time divided by the peer's, so less is better. The peers are in bench/requirements.txt and have a
separate environment, which `make bench-python` sets up. The pool has one node in its own process,
as ray and redis have theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import servers
import tidemill

ARRAY_BYTES = 64 << 20
SMALL_BYTES = 1024
SMALL_CALLS = 10_000
# Number of arrays that are put first into memory that was never touched, and again after that
# memory was freed.
FRESH_PUTS = 16
FRAME_ROWS = 8 << 20
ZARR_SHAPE = (8192, 4096)
ZARR_CHUNKS = (512, 1024)
# Warm-up rounds, which are not counted.
UNCOUNTED = 2
PARTS = ("put", "get", "small", "parquet", "zarr")

Side = Callable[[], float]


def seconds(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median_of(call: Callable[[], object], calls: int) -> float:
    """Median wall time of `calls` calls, in seconds."""
    return statistics.median(seconds(call) for _ in range(calls))


@contextmanager
def pool(binary: Path, work: Path, memory: str) -> Iterator[tidemill.Pool]:
    """A pool of one node in a separate process."""
    file = work / "pool"
    environment = os.environ | {"TIDEMILL_POOL": str(file)}
    subprocess.run([binary, "pool", "start", "--memory", memory], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with tidemill.connect(file) as opened:
            yield opened
    finally:
        subprocess.run([binary, "pool", "stop"], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def ray_of_one(memory: int) -> Iterator[object]:
    """Ray with an object store of `memory` bytes."""
    import ray  # noqa: PLC0415 - importing it takes seconds

    ray.init(num_cpus=1, object_store_memory=memory, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def redis_of_one(work: Path) -> Iterator[object]:
    """A client of redis over a Unix socket."""
    import redis  # noqa: PLC0415

    with servers.redis_at_socket(work) as path:
        yield redis.Redis(unix_socket_path=path)


class Rows:
    """The measurements."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.measured: dict[str, dict[str, object]] = {}

    def measure_alternating(self, row: str, ours: Side, peer: Side, against: str) -> None:
        """Measures both sides in alternation, after two rounds that are not counted.

        The peer goes first in every other round, because the side that goes second finds memory in
        use.
        """
        pairs = []
        for number in range(self.rounds + UNCOUNTED):
            if number % 2 == 0:
                pairs.append((ours(), peer()))
            else:
                theirs = peer()
                pairs.append((ours(), theirs))
        self.add(row, pairs[UNCOUNTED:], against)

    def add(self, row: str, pairs: list[tuple[float, float]], against: str) -> None:
        """Adds a row; the times are in seconds."""
        ratios = sorted(one / other for one, other in pairs)
        shown = {"ours_us": [one * 1e6 for one, _ in pairs], "peer_us": [other * 1e6 for _, other in pairs]}
        medians = {side: statistics.median(times) for side, times in shown.items()}
        told = medians | {"against": against, "ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
        self.measured[row] = told
        print(f"{row}: {medians['ours_us']:.1f} us, {against} {medians['peer_us']:.1f} us: {told['ratio']:.2f}", file=sys.stderr)


def arrays(rows: Rows, opened: tidemill.Pool, ray: object, parts: set[str]) -> None:
    """Arrays of 64 MiB against ray: put into fresh and into warm memory, and get."""
    data = np.ones(ARRAY_BYTES, "u1")
    if "put" in parts:
        kept, fresh = [], []
        # Both sides alternate, because the free memory of the machine changes as it is used.
        for number in range(FRESH_PUTS):
            ours = seconds(lambda number=number: opened.put(f"fresh/{number}", data))
            fresh.append((ours, seconds(lambda: kept.append(ray.put(data)))))
        rows.add("put 64 MiB, fresh", fresh, "ray.put")
        opened.delete_tree("fresh")
        kept.clear()
        time.sleep(1)  # ray frees with a delay
        rows.measure_alternating(
            "put 64 MiB, warm", lambda: median_of(lambda: opened.put("warm", data), 5), lambda: median_of(lambda: ray.put(data), 5), "ray.put"
        )
    if "get" in parts:
        opened.put("got", data)
        there = ray.put(data)
        rows.measure_alternating(
            "get 64 MiB", lambda: median_of(lambda: opened.get("got").numpy(), 50), lambda: median_of(lambda: ray.get(there), 50), "ray.get"
        )
        looked = lambda get: lambda: median_of(lambda: get().sum(dtype="u8"), 5)  # noqa: E731
        rows.measure_alternating("get 64 MiB and read it", looked(lambda: opened.get("got").numpy()), looked(lambda: ray.get(there)), "ray.get")


def small(rows: Rows, opened: tidemill.Pool, redis: object) -> None:
    """Values of 1 KiB against redis."""
    data = b"x" * SMALL_BYTES
    opened.put("small", data)
    redis.set("small", data)
    rows.measure_alternating(
        "get 1 KiB", lambda: median_of(lambda: opened.get("small"), SMALL_CALLS), lambda: median_of(lambda: redis.get("small"), SMALL_CALLS), "redis-py"
    )
    rows.measure_alternating(
        "put 1 KiB",
        lambda: median_of(lambda: opened.put("small", data), SMALL_CALLS),
        lambda: median_of(lambda: redis.set("small", data), SMALL_CALLS),
        "redis-py",
    )


def parquet(rows: Rows, opened: tidemill.Pool, tmpfs: Path) -> None:
    """A data frame of 256 MiB in the pool and in a tmpfs."""
    import pandas as pd  # noqa: PLC0415

    chance = np.random.default_rng(1)
    frame = pd.DataFrame({name: chance.normal(size=FRAME_ROWS) for name in "abcd"})
    here, options = tmpfs / "frame.parquet", {"pool": opened}
    frame.to_parquet(here, compression=None)
    frame.to_parquet("tidemill://frame.parquet", compression=None, storage_options=options)
    rows.measure_alternating(
        "pandas read_parquet",
        lambda: seconds(lambda: pd.read_parquet("tidemill://frame.parquet", storage_options=options)),
        lambda: seconds(lambda: pd.read_parquet(here)),
        "tmpfs",
    )


def zarr(rows: Rows, opened: tidemill.Pool, tmpfs: Path) -> None:
    """An array of 256 MiB in chunks of 4 MiB, in the pool and in a tmpfs."""
    import zarr as z  # noqa: PLC0415

    data, options = np.random.default_rng(1).normal(size=ZARR_SHAPE), {"pool": opened}
    there = z.create_array("tidemill://array.zarr", shape=ZARR_SHAPE, chunks=ZARR_CHUNKS, dtype="f8", compressors=None, storage_options=options)
    here = z.create_array(tmpfs / "array.zarr", shape=ZARR_SHAPE, chunks=ZARR_CHUNKS, dtype="f8", compressors=None)
    there[:], here[:] = data, data
    rows.measure_alternating("zarr read", lambda: seconds(lambda: there[:]), lambda: seconds(lambda: here[:]), "tmpfs")


def main() -> None:
    """Measures the selected rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--rows", nargs="+", choices=PARTS, default=PARTS)
    asked = parser.parse_args()
    parts, rows = set(asked.rows), Rows(asked.rounds)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        tmpfs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm")))
        opened = stack.enter_context(pool(asked.binary.resolve(), work, asked.memory))
        if parts & {"put", "get"}:
            with ray_of_one(3 << 30) as ray:
                arrays(rows, opened, ray, parts)
        if "small" in parts:
            small(rows, opened, stack.enter_context(redis_of_one(work)))
        if "parquet" in parts:
            parquet(rows, opened, tmpfs)
        if "zarr" in parts:
            zarr(rows, opened, tmpfs)
    json.dump({"processors": os.cpu_count(), "rows": rows.measured}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
