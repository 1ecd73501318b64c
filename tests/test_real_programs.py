"""Programs that people use, on the mount as on tmpfs: every line that they print must be the same.

Their scripts are in `programs/`; each begins in an empty folder, and does its worst there.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pools
import pytest

PROGRAMS = Path(__file__).parent / "programs"
SCRIPTS = sorted(path.stem for path in PROGRAMS.glob("*.sh"))
SECONDS_MAX = 120


def printed(script: str, folder: Path) -> list[str]:
    """What a script prints in a folder."""
    inside = folder / "work"
    inside.mkdir(mode=0o755)
    environment = os.environ | {"PYTHON": sys.executable, "LC_ALL": "C", "TZ": "UTC", "HOME": str(inside), "TMPDIR": str(inside)}
    command = ["bash", "-eu", str(PROGRAMS / f"{script}.sh")]
    done = subprocess.run(command, cwd=inside, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{script} at {folder} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return (done.stdout + done.stderr).replace(str(folder), "").splitlines()


@pytest.mark.parametrize("script", SCRIPTS)
def test_programs_print_what_they_print_on_tmpfs(binary: Path, ground: Path, tmpfs: Path, way: list[str], script: str) -> None:
    wanted = printed(script, tmpfs)
    with pools.pool(binary, ground, "--shared", *way) as pool:
        got = printed(script, pool.dir)
    differ = list(difflib.unified_diff(wanted, got, "tmpfs", "mount", lineterm="", n=1))
    assert not differ, "\n".join(differ[:60])
