"""The test suites pjdfstest and fsx have the same results on the mount as on tmpfs.

`tests/suites/install.sh` builds them; their configurations are in the same directory.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pools
import pytest

SUITES = Path(__file__).parent / "suites"
PROGRAMS = Path(__file__).parent.parent / "build/suites/bin"
FSX_OPERATIONS = 20_000
FSX_SECONDS_MAX = 200
SOAK_SEEDS = range(1, 6)
# A million operations, run by this many processes one after the other. This fsx never unmaps its
# mappings, so a single process reaches the limit of mappings (ENOMEM, on tmpfs too), and each
# truncation of the file processes all of them.
SOAK_PROCESSES, SOAK_OPERATIONS = 25, 40_000
# fsx sometimes chooses empty ranges, and takes the EINVAL that POSIX requires for them for a
# missing posix_fallocate.
FSX_ENDED_ITSELF = re.compile(r"does not support posix_fallocate(?s:.)* POSIX_FALLOCATE +\w+ => +\w+ \( +0x0 bytes\)\s*\Z")


def program(name: str) -> str:
    """The path of a suite."""
    path = PROGRAMS / name
    assert path.is_file(), f"{path} is not there: tests/suites/install.sh builds it"
    return str(path)


def pjdfstest(shared_dir: Path, folder: Path, before: Sequence[str] = (), env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The result of each test, with the output of a failed one.

    `before` is put in front of the command line.
    """
    secondary = shared_dir / f"beside-{folder.name}"
    with pools.tmpfs(secondary):
        command = [*before, program("pjdfstest"), "-c", str(SUITES / "pjdfstest.toml"), "-p", str(folder), "-s", str(secondary)]
        # Some tests try to leave files in the current directory.
        environment = {**env, "NO_COLOR": "1", "RUST_BACKTRACE": "0"}
        done = subprocess.run(command, cwd=shared_dir, env=environment, capture_output=True, text=True, errors="replace", timeout=200, check=False)
    assert "Summary" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    verdicts = re.findall(r"^(\S+::\S+) +(ok|skipped|FAILED)\n((?:\t.*\n)*)", done.stdout, re.MULTILINE)
    return {name: verdict + said.rstrip() if verdict == "FAILED" else verdict for name, verdict, said in verdicts}


def test_pjdfstest_passes_on_the_mount_what_it_passes_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, io_flags: list[str]) -> None:
    wanted = pjdfstest(shared_dir, tmpfs)
    assert list(wanted.values()).count("ok") >= 384, {name: said for name, said in wanted.items() if said != "ok"}
    with pools.pool(binary, shared_dir, "--shared", *io_flags) as pool:
        got = pjdfstest(shared_dir, pool.dir)
    differ = [f"{name}: tmpfs {verdict}, mount {got.get(name, 'missing')}" for name, verdict in sorted(wanted.items()) if got.get(name) != verdict]
    assert not differ, f"{len(differ)} of {len(wanted)}:\n" + "\n".join(differ)


@dataclass(frozen=True)
class Fsx:
    """Parameters of fsx: a configuration in suites/, a seed, and the number of operations."""

    mix: str
    seed: int
    operations: int
    processes: int = 1

    def run(self, shared_dir: Path, file: Path, before: Sequence[str] = (), env: Mapping[str, str] = os.environ) -> None:
        """Runs fsx on a file; fails with its last output if it finds a fault.

        A process that ended itself does not count.
        """
        seeds = (self.seed + 1000 * turn for turn in range(3 * self.processes))
        whole = (seed for seed in seeds if self.run_once(shared_dir, file, seed, before, env))
        assert len(list(itertools.islice(whole, self.processes))) == self.processes, "most processes of fsx ended themselves"

    def run_once(self, shared_dir: Path, file: Path, seed: int, before: Sequence[str], env: Mapping[str, str]) -> bool:
        """Runs one process of fsx.

        Returns False if it ended itself because of an empty range, for which every file system
        returns EINVAL.
        """
        numbers = ["-N", str(self.operations), "-S", str(seed)]
        command = [*before, program("fsx"), *numbers, "-P", str(shared_dir), "-f", str(SUITES / f"{self.mix}.toml"), str(file)]
        limit = FSX_SECONDS_MAX * max(1, self.operations // FSX_OPERATIONS)
        environment = {**env, "RUST_BACKTRACE": "0"}
        done = subprocess.run(command, cwd=shared_dir, env=environment, capture_output=True, text=True, timeout=limit, check=False)
        if FSX_ENDED_ITSELF.search(done.stdout + done.stderr):
            return False
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return True

    def run_on_pool(self, binary: Path, shared_dir: Path, io_flags: list[str], mounts: int) -> None:
        """Runs fsx on the first mount while the other mounts read the same file.

        At the end all mounts must show the same file.
        """
        with ExitStack() as stack:
            pool = stack.enter_context(pools.pool(binary, shared_dir, *io_flags, points=mounts))
            (pool.dir / "fsx").touch()
            readers = [stack.enter_context(ConcurrentAccess("reader.py", folder / "fsx")) for folder in pool.dirs[1:]]
            self.run(shared_dir, pool.dir / "fsx")
            for reader in readers:
                reader.end()
            assert len({(folder / "fsx").read_bytes() for folder in pool.dirs}) == 1
            assert len({(folder / "fsx").stat().st_size for folder in pool.dirs}) == 1


class ConcurrentAccess:
    """A process that accesses a file repeatedly, by a script in suites/, until it is stopped."""

    def __init__(self, script: str, file: Path) -> None:
        command = [sys.executable, str(SUITES / script), str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def end(self) -> None:
        """Stops the process, which must not have failed."""
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.mark.parametrize("mix", ["fsx", "fsx-unmapped"])
@pytest.mark.parametrize("mounts", [1, 2])
@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault(binary: Path, shared_dir: Path, io_flags: list[str], mounts: int, mix: str) -> None:
    seed = 1 + ["fsx", "fsx-unmapped"].index(mix) + 2 * mounts
    Fsx(mix, seed, FSX_OPERATIONS).run_on_pool(binary, shared_dir, io_flags, mounts)


@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault_while_the_pool_is_crowded_now_and_then(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    with pools.pool(binary, shared_dir, *io_flags, memory="64MiB") as pool, ConcurrentAccess("crowder.py", pool.dir / "crowd") as crowder:
        Fsx("fsx", 9, FSX_OPERATIONS).run(shared_dir, pool.dir / "fsx")
        crowder.end()


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
@pytest.mark.parametrize("mounts", [1, 2])
@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault_in_a_million_operations(binary: Path, shared_dir: Path, io_flags: list[str], mounts: int, seed: int) -> None:
    Fsx("fsx", seed, SOAK_OPERATIONS, SOAK_PROCESSES).run_on_pool(binary, shared_dir, io_flags, mounts)
