"""The file-copy benchmark of paper 000 on pools, and the same work on the alternatives.

    python3 bench/filecopy.py --binary target/release/tidemill --out FOLDER

Runs four experiments on this machine as it is, against a local disk, a tmpfs, redis and memcached.
Then it runs them on separate hosts (network namespaces: needs root) whose links have the rates of
the paper's virtual machines, 480 and 900 Mbit/s. Each experiment writes NAME.json and NAME.svg to
FOLDER. --scale reduces the amount of data.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import servers

EXPERIMENTS = ["chunks", "io-nodes", "crowded", "worker-nodes"]
FILE_MIB = {"chunks": 128, "io-nodes": 512, "crowded": 128, "worker-nodes": 512}
# Link rates in Mbit/s of the paper's D1 (workers) and D2 (nodes) machines.
LINKS = "480,900"
MEMCACHED_MIB = 8192


def measure(binary: Path, out: Path, name: str, words: list[str]) -> None:
    """Runs one benchmark; its messages go to standard error as they come."""
    command = [str(binary), "bench", "filecopy", *words, "--json", str(out / f"{name}.json"), "--plot", str(out / f"{name}.svg")]
    print(" ".join(command), file=sys.stderr)
    subprocess.run(command, check=True)


def main() -> None:
    """Runs the selected experiments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--ways", nargs="+", choices=["unshaped", "shaped"], default=["unshaped", "shaped"])
    parser.add_argument("--disk", type=Path, default=Path(), help="a folder of a local disk [default: the current one]")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    binary = asked.binary.resolve()
    with ExitStack() as stack:
        disk = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=asked.disk.resolve())))
        memory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir="/dev/shm")))
        redis = stack.enter_context(servers.redis(disk))
        memcached = stack.enter_context(servers.memcached(disk, MEMCACHED_MIB))
        targets = f"pool,dir:{disk},dir:{memory},redis:{redis},memcached:{memcached}"
        for experiment in asked.experiments:
            size = max(1, round(FILE_MIB[experiment] * asked.scale))
            words = ["--experiment", experiment, "--file-size", f"{size}MiB", "--runs", str(asked.runs)]
            if "unshaped" in asked.ways:
                measure(binary, asked.out, experiment, [*words, "--on", targets])
            if "shaped" in asked.ways and os.geteuid() == 0:
                measure(binary, asked.out, f"{experiment}-shaped", [*words, "--links", LINKS])


if __name__ == "__main__":
    main()
