"""Sparse files use about as much space as on tmpfs, by passthrough and the preload library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pools
import preloaded
import pytest
from pools import tmpfs

# Writes bytes 2 MiB apart to files in four ways, and prints the final number of blocks of each
# file. A file that was written backwards gets its huge pages split when it is idle and the usage of
# the pool is requested.
PROGRAM = """
import json, os, sys, time
folder, gap, count = sys.argv[1], 2 << 20, 40

def written(name, order, length=0, again=False):
    path = f"{folder}/{name}"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if length:
        os.ftruncate(file, length)
    if again:
        os.close(file)
        file = os.open(path, os.O_RDWR)
    for number in order:
        assert os.pwrite(file, b"x", number * gap + number) == 1
    os.close(file)
    return path

def blocks(path):
    end = time.monotonic() + 30
    while os.stat(path).st_blocks > 2 * count * 8 and time.monotonic() < end:
        os.statvfs(folder)
    file = os.open(path, os.O_RDONLY)
    for number in range(count):
        assert os.pread(file, 2, number * gap + number).rstrip(b"\\0") == b"x"
    os.close(file)
    return os.stat(path).st_blocks

sparse = [
    written("extended", range(count), count * gap),
    written("extended before", range(count), count * gap, again=True),
    written("appended", range(count)),
    written("backwards", reversed(range(count))),
]
print(json.dumps({path.rpartition("/")[2]: blocks(path) for path in sparse}))
"""


def program_output(command: list[str], environment: dict[str, str]) -> dict[str, int]:
    """The output of the program."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("access", ["mount", "library"])
@pytest.mark.usefixtures("root")
def test_holes_of_files_that_are_written_directly_take_at_most_twice_what_they_take_on_tmpfs(binary: Path, shared_dir: Path, access: str) -> None:
    python = [sys.executable, "-c", PROGRAM]
    with tmpfs(shared_dir / "tmpfs") as folder:
        wanted = program_output([*python, str(folder)], pools.environment(shared_dir))
    if access == "mount":
        with pools.pool(binary, shared_dir) as mounted:
            found = program_output([*python, str(mounted.dir)], pools.environment(shared_dir))
    else:
        with preloaded.pool(binary, shared_dir) as pool:
            done = pool.run(*python, "/tidemill")
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
    assert all(found[name] <= 2 * blocks for name, blocks in wanted.items()), f"{found} where tmpfs has {wanted}"
