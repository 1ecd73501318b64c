"""Eight processes in random operations on one pool, by one mount and by two.

The model and the invariants must hold.

SOAK_SECONDS is the duration of each. A failure reports the seed; SOAK_SEED runs it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pools
import pytest

RUN = Path(__file__).parent / "soak/run.py"
SECONDS = float(os.environ.get("SOAK_SECONDS", "5"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
PROCESSES = 8


def soak(binary: Path, shared_dir: Path, io_flags: list[str], mounts: int, seconds: float, seed: int) -> None:  # noqa: PLR0913, PLR0917 - a row of a matrix
    """Runs the processes on a new pool."""
    with pools.pool(binary, shared_dir, *io_flags, points=mounts, memory="512MiB") as pool:
        command = [sys.executable, str(RUN), str(seconds), str(seed), str(PROCESSES), *map(str, pool.dirs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds * 3 + 120, check=False)
        assert done.returncode == 0, f"seed {seed}:\n{done.stderr[-6000:]}"


@pytest.mark.parametrize("mounts", [1, 2])
@pytest.mark.usefixtures("root")
def test_eight_processes_find_one_truth(binary: Path, shared_dir: Path, io_flags: list[str], mounts: int) -> None:
    soak(binary, shared_dir, io_flags, mounts, SECONDS, SEED)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("mounts", [1, 2])
@pytest.mark.usefixtures("root")
def test_eight_processes_find_one_truth_for_long(binary: Path, shared_dir: Path, io_flags: list[str], mounts: int, seed: int) -> None:
    soak(binary, shared_dir, io_flags, mounts, max(SECONDS, 60), seed)
