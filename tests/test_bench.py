"""Runs every case of the storage benchmark at minimal size, so that the script works when needed.

Times are not checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = {
    "large": ["sequential write", "sequential overwrite", "sequential read", "sequential mapread"],
    "middle": ["sequential write", "sequential overwrite", "sequential read", "sequential mapread"],
    "small": ["sequential write", "sequential overwrite", "sequential read"],
    "random": ["random read", "random map"],
    "ordinary": [f"without passthrough: {verb}" for verb in ("write", "overwrite", "read")],
    "names": [f"names: {verb}" for verb in ("create", "stat", "open+read", "rename", "unlink")],
    "programs": ["git clone", "tar x", "make"],
    "memory": ["memory beside the data"],
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.usefixtures("root")
def test_every_row_of_the_storage_benchmark_is_printed(binary: Path, tmp_path: Path, case: str) -> None:
    nothing = binary.parent / "examples/nothing"
    assert nothing.is_file(), f"{nothing} is not there: `cargo build --package fuse-transport --example nothing` makes it, beside a debug build"
    tiny = ["--runs", "1", "--scale", "0.004", "--cases", case]
    command = [sys.executable, str(ROOT / "bench/storage.py"), "--binary", str(binary), "--nothing", str(nothing), *tiny]
    done = subprocess.run(command, env=os.environ | {"BENCH_DIR": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(ROWS[case]) <= {row["case"] for row in rows}
    for row in rows:
        assert "target" in row, row
        assert all(row[key] > 0 for key in ("ours_s", "peer_s", "min") if key in row), row
