"""Tests whether workflows finish in a nearly full pool, in every storage mode.

    full_pool.py --binary target/release/tidemill --montage DIR [--kdd DIR] [--slots 2]
                 [--times 1.2]

The first run of each workflow uses staging and has enough memory. Its run.json has the least peak
of 10,000 random task orders. Then the workflow runs once in each storage mode, in a pool of --times
that peak. The minimum size of a pool is 16 MiB, so a workflow that needs less tests nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
STORAGES = ("mount", "preload", "staging")
MIB = 1 << 20
POOL_BYTES_MIN = 16 * MIB


class Example:
    """A workflow of examples/ with its data."""

    def __init__(self, name: str, data: Path, settings: list[str]) -> None:
        self.name, self.data, self.settings = name, data, settings

    def run(self, binary: Path, storage: str, memory: str, slots: int) -> dict:
        """Runs the workflow and returns its run.json."""
        folder = ROOT / "examples" / self.name
        with tempfile.TemporaryDirectory() as place:
            command = [binary, "run", folder / "workflow.js", "--data", self.data, "--tools", folder / "tools.toml"]
            command += ["--out", f"{place}/out", "--report", f"{place}/report", "--memory", memory, "--slots", slots, "--quiet", *self.settings]
            environment = os.environ | {"TIDEMILL_STORAGE": storage}
            subprocess.run([str(word) for word in command], env=environment, check=False)
            return json.loads((Path(place) / "report" / "run.json").read_text())


def examples(given: argparse.Namespace, shared_dir: Path) -> list[Example]:
    """The examples whose data was given."""
    found = []
    if given.montage:
        found.append(Example("montage", given.montage, []))
    if given.kdd:
        prepare = ROOT / "examples/classification/prepare.py"
        python = ROOT / "examples/.venv/bin/python"
        rows = ["--rows", str(given.rows)] if given.rows else []
        subprocess.run([python, prepare, shared_dir / "data", "--kdd", given.kdd, *rows], check=True)
        found.append(Example("classification", shared_dir / "data", []))
    return found


def measure(example: Example, given: argparse.Namespace) -> bool:
    """Prints a line for each storage mode; returns True if all tasks finished in each."""
    least = example.run(given.binary, "staging", "1GiB", given.slots)["pool"]["least_peak_bytes"]
    memory = max(POOL_BYTES_MIN, int(least * given.times))
    all_done = True
    for storage in STORAGES:
        run = example.run(given.binary, storage, str(memory), given.slots)
        done, tasks, peak = run["totals"]["tasks_done"], run["totals"]["tasks"], run["pool"]["peak_bytes"]
        again = sum(task["attempts"] - 1 for task in run["tasks"])
        print(
            f"{example.name} {storage}: least {least / MIB:.1f} MiB, pool {memory / MIB:.1f}, peak {peak / MIB:.1f};"
            f" {done} of {tasks} tasks done, {again} tried again, {run['totals']['makespan_s']:.1f} s",
            flush=True,
        )
        all_done &= done == tasks
    return all_done


def main() -> int:
    """Measures the examples that were given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/tidemill")
    parser.add_argument("--montage", type=Path, help="a folder of FITS files with region.hdr")
    parser.add_argument("--kdd", type=Path, help="a folder with the files of KDD Cup 1999")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--times", type=float, default=1.2, help="the pool's size, in least peaks")
    parser.add_argument("--rows", type=int, help="a sample of so many rows of KDD Cup 1999")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as shared_dir:
        finished = [measure(example, given) for example in examples(given, Path(shared_dir))]
        return 0 if all(finished) else 1


if __name__ == "__main__":
    sys.exit(main())
