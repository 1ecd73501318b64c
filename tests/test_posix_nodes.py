"""A pool of four nodes is one file system: pjdfstest, fsx and random operations on two mounts.

Nodes and mounts are separate processes that communicate over sockets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pools
import pytest
from test_posix import FSX_OPERATIONS, ConcurrentAccess, Fsx, pjdfstest
from test_soak_concurrency import PROCESSES, RUN, SECONDS, SEED

NODES = 4


@pytest.fixture
def mounts(binary: Path, shared_dir: Path, root: None, io_flags: list[str]) -> Iterator[list[Path]]:  # noqa: ARG001 - root is a condition
    """Two mounts of a pool of four nodes."""
    with pools.mounts_of_nodes(binary, shared_dir, NODES, 2, "--shared", *io_flags) as folders:
        # With passthrough: in a pool of several nodes only files in such a directory have it.
        if not io_flags:
            os.setxattr(folders[0], "user.tidemill.placement", b"here")
        yield folders


def test_pjdfstest_passes_on_two_mounts_at_once_what_it_passes_on_tmpfs(shared_dir: Path, tmpfs: Path, mounts: list[Path]) -> None:
    wanted = pjdfstest(shared_dir, tmpfs)
    folders = [mount / f"folder{number}" for number, mount in enumerate(mounts)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor() as at_once:
        both = list(at_once.map(lambda folder: pjdfstest(shared_dir, folder), folders))
    differ = [
        f"{name}: tmpfs {said}, mounts {[got.get(name) for got in both]}" for name, said in sorted(wanted.items()) if any(got.get(name) != said for got in both)
    ]
    assert not differ, f"{len(differ)} of {len(wanted)}:\n" + "\n".join(differ)


def test_fsx_finds_no_fault_on_two_mounts_at_once(shared_dir: Path, mounts: list[Path]) -> None:
    files = [mount / name for mount, name in zip(mounts, ["one", "other"], strict=True)]
    seen = [mount / file.name for mount, file in zip(reversed(mounts), files, strict=True)]
    for file in files:
        file.touch()
    with ExitStack() as stack, ThreadPoolExecutor() as at_once:
        readers = [stack.enter_context(ConcurrentAccess("reader.py", file)) for file in seen]
        runs = [at_once.submit(Fsx("fsx", seed, FSX_OPERATIONS // 2).run, shared_dir, file) for seed, file in enumerate(files, 11)]
        for run in runs:
            run.result()
        for reader in readers:
            reader.end()
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in seen]


def test_eight_processes_find_one_truth_through_two_mounts(mounts: list[Path]) -> None:
    command = [sys.executable, str(RUN), str(SECONDS), str(SEED), str(PROCESSES), *map(str, mounts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS * 3 + 120, check=False)
    assert done.returncode == 0, f"seed {SEED}:\n{done.stderr[-6000:]}"
