"""Edge cases of single calls: each has the same result or error number on the mount as on tmpfs.

The cases are in `edges/`, a file for each topic. Where a mount differs on purpose, DIFFERENCES has
the outcome that SEMANTICS promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pools
import preloaded
import pytest

EDGES = Path(__file__).parent / "edges"
TOPICS = sorted(path.stem for path in EDGES.glob("*.py") if path.stem not in ("calls", "run"))
# The outcomes of setting inode flags, of a file and of a directory, by the number of the flag.
NO_FLAGS = [came for path in ("f", "d") for came in ([0, 0], *([path, flag, "ENOTSUP" if flag else 0, None] for flag in (64, 128, 4, 16, 32, 0)), 0)]
# Intended differences: the name of a case, and its outcome on a mount.
DIFFERENCES: dict[str, object] = {
    # Zeroing of ranges works; tmpfs does not support it.
    "sizes.zeroing_a_range": [0, 0, 16389, 4101],
    # The file size limit of a process applies to calls that extend a file, but not to allocation
    # beyond its end, for which tmpfs returns an error.
    "sizes.the_limit_of_file_size": [[100, 50, "EFBIG", "EFBIG"], "EFBIG", None, "EFBIG", 0, 9999],
    # Inodes have no flags: all are reported as unset, and setting any fails.
    "opens.flags_of_inodes": NO_FLAGS,
    # The kernel supports seals only for its own memory files.
    "locks.seals_are_not_for_files_with_a_name": ["EINVAL", "EINVAL", 1],
}
# Intended differences of files with passthrough, and of those without.
PASSED: dict[str, object] = {
    # The kernel continues to append after fcntl has removed O_APPEND from an open file.
    "opens.appending_goes_to_the_end_wherever_one_seeks": [7, "12345abcdX"],
}
ORDINARY: dict[str, object] = {}
# Differences with the preload library, and the reason of each; the test fails if one of them does
# not differ.
RUN_FROM_A_COPY = "a program of the pool is run from a copy in memory"
OTHER_USER = "a process of another user than the pool's has no way to it once its connection is gone: a child after a fork"
PRELOADED = {
    "opens.a_program_that_runs_is_neither_written_nor_cut_and_goes_on": RUN_FROM_A_COPY,
    "opens.a_running_program_is_busy": RUN_FROM_A_COPY,
    "opens.a_program_that_is_open_for_writing_is_not_run": RUN_FROM_A_COPY,
    # Its descriptor numbers depend on those that the first of these cases has opened.
    "opens.what_open_does_not_know": RUN_FROM_A_COPY,
    "attributes.a_write_by_another_user_loses_set_id_bits": OTHER_USER,
    "attributes.set_group_id_without_the_right_to_run": OTHER_USER,
    "attributes.permissions_are_enforced": OTHER_USER,
    "attributes.access_lists_by_setfacl": OTHER_USER,
    "attributes.default_access_lists_are_inherited": OTHER_USER,
    "opens.a_file_made_read_only_can_be_written_by_its_maker_as_another_user": OTHER_USER,
    "attributes.a_set_group_id_folder_hands_down_its_group": OTHER_USER,
    "opens.a_handle_finds_its_file_when_the_kernel_has_forgotten_it": "handles are refused",
    "opens.flags_of_inodes": "as on a mount, which has none",
    "locks.a_lease_is_taken_and_a_folder_is_watched": "somebody else may have the file open, and a stand-in for a folder hears of nothing",
    "moves.an_open_folder_is_moved": "what /proc/self/fd says of a folder is where it was opened",
}
SECONDS_MAX = 200
SHOWN = 30


def outcomes(topic: str, folder: Path, user: int | None = None, pool: preloaded.Pool | None = None) -> dict[str, object]:
    """The outcome of each case of a topic in a directory.

    The cases run as another user if `user` is given, with the preload library if `pool` is given.
    """
    command = [sys.executable, str(EDGES / "run.py"), topic, str(folder), *([] if user is None else [str(user)])]
    if pool is not None:
        command = pool.command(*command)
    environment = os.environ if pool is None else pool.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    came = json.loads(done.stdout)
    broken = {name: said for name, said in came.items() if str(said).startswith("broken")}
    assert not broken, f"at {folder}: {broken}"
    return came


def differences(wanted: dict[str, object], got: dict[str, object], way: str) -> list[str]:
    """A line for each case with a different outcome, starting where the outcomes differ."""
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
def test_edge_cases_end_as_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, io_flags: list[str], topic: str) -> None:
    wanted = outcomes(topic, tmpfs)
    with pools.pool(binary, shared_dir, "--shared", *io_flags) as pool:
        got = outcomes(topic, pool.dir)
    wrong = differences(wanted, got, "ordinary" if io_flags else "passthrough")
    assert not wrong, f"{len(wrong)} of {len(wanted)}:\n" + "\n".join(wrong[:SHOWN])


@pytest.mark.parametrize("topic", TOPICS)
def test_edge_cases_end_by_the_preload_library_as_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, topic: str) -> None:
    wanted = outcomes(topic, tmpfs)
    with preloaded.pool(binary, shared_dir) as pool, pool.open_to_all():
        got = outcomes(topic, Path(preloaded.PREFIX), pool=pool)
    wrong = {name: f"{name}: wanted {outcome}, got {got[name]}"[:400] for name, outcome in wanted.items() if got[name] != outcome}
    listed = {name for name in PRELOADED if name.startswith(f"{topic}.")}
    mended = [f"{name}: as on tmpfs, but listed as: {PRELOADED[name]}" for name in sorted(listed - set(wrong))]
    new = [said for name, said in wrong.items() if name not in listed]
    assert not new + mended, f"{len(new)} of {len(wanted)}:\n" + "\n".join((new + mended)[:SHOWN])
