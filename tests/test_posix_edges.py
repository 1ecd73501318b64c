"""Single calls with their edge cases: what comes of each on the mount is what comes of it on tmpfs, value or error number.

The cases are in `edges/`, a file for each topic. Where a mount differs on purpose it stands in DIFFERENCES, with the outcome
that SEMANTICS promises.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pools
import pytest

EDGES = Path(__file__).parent / "edges"
TOPICS = sorted(path.stem for path in EDGES.glob("*.py") if path.stem not in ("calls", "run"))
# The name of a case, and what comes of it on a mount instead. On purpose, each:
DIFFERENCES: dict[str, object] = {
    # Ranges can be zeroed, which tmpfs does not do.
    "sizes.zeroing_a_range": [0, 0, 16389, 4101],
    # The limit of file size of a process binds what grows a file. Room beyond its end, which tmpfs refuses, does not.
    "sizes.the_limit_of_file_size": [[100, 50, "EFBIG", "EFBIG"], "EFBIG", None, "EFBIG", 0, 9999],
}
# The same for files that are passed through, and for those that are not.
PASSED: dict[str, object] = {
    # The kernel goes on appending where O_APPEND is taken from an open file by fcntl.
    "opens.appending_goes_to_the_end_wherever_one_seeks": [7, "12345abcdX"],
}
ORDINARY: dict[str, object] = {}
SECONDS_MAX = 200
SHOWN = 30


def outcomes(topic: str, folder: Path, user: int | None = None) -> dict[str, object]:
    """What came of each case of a topic in a folder, as another user if one is named."""
    command = [sys.executable, str(EDGES / "run.py"), topic, str(folder), *([] if user is None else [str(user)])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    came = json.loads(done.stdout)
    broken = {name: said for name, said in came.items() if str(said).startswith("broken")}
    assert not broken, f"at {folder}: {broken}"
    return came


def differences(wanted: dict[str, object], got: dict[str, object], way: str) -> list[str]:
    """A line for each case that came out otherwise, beginning where the two part."""
    lines, known = [], DIFFERENCES | (ORDINARY if way == "ordinary" else PASSED)
    for name, outcome in wanted.items():
        want = known.get(name, outcome)
        if got[name] != want:
            one, other = json.dumps(want), json.dumps(got[name])
            at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
            start = max(0, at - 80)
            lines.append(f"{name}: wanted ...{one[start : at + 120]}, got ...{other[start : at + 120]}")
    return lines


@pytest.mark.parametrize("topic", TOPICS)
def test_edge_cases_end_as_on_tmpfs(binary: Path, ground: Path, tmpfs: Path, way: list[str], topic: str) -> None:
    wanted = outcomes(topic, tmpfs)
    with pools.pool(binary, ground, "--shared", *way) as pool:
        got = outcomes(topic, pool.dir)
    wrong = differences(wanted, got, "ordinary" if way else "passthrough")
    assert not wrong, f"{len(wrong)} of {len(wanted)}:\n" + "\n".join(wrong[:SHOWN])
