"""pjdfstest and fsx with the preload library: as on tmpfs, except for what it cannot intercept."""

from __future__ import annotations

from pathlib import Path

import preloaded
import pytest
from test_posix import FSX_OPERATIONS, SOAK_OPERATIONS, SOAK_PROCESSES, SUITES, Fsx, pjdfstest

# Tests of pjdfstest that cannot pass with the library, one a line: NAME, two or more blanks, and
# the reason.
CANNOT = SUITES / "preload-cannot.txt"


def failure_reasons() -> dict[str, str]:
    """The reason of each test that cannot pass."""
    lines = [line for line in CANNOT.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(maxsplit=1) for line in lines)


def test_pjdfstest_passes_by_the_preload_library_what_it_passes_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path) -> None:
    wanted, listed = pjdfstest(shared_dir, tmpfs), failure_reasons()
    with preloaded.pool(binary, shared_dir) as pool:
        # pjdfstest builds paths of maximum length from names of 127 bytes, and subtracts 1 from 0
        # where those fit exactly, which this path avoids.
        folder = Path(preloaded.PREFIX) / "pjdfstest"
        pool.ok("mkdir", str(folder))
        got = pjdfstest(shared_dir, folder, pool.command(), pool.environment)
    failed = {name for name, verdict in wanted.items() if got.get(name) != verdict}
    new = [f"{name}: tmpfs {wanted[name]}, preload {got.get(name, 'missing')}" for name in sorted(failed - set(listed))]
    mended = [f"{name}: passes, but is listed as: {listed[name]}" for name in sorted(set(listed) - failed)]
    assert not new + mended, f"{len(new)} of {len(wanted)}:\n" + "\n".join(new + mended)


@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault_by_the_preload_library(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        pool.ok("touch", f"{preloaded.PREFIX}/fsx")
        Fsx("fsx", 21, FSX_OPERATIONS).run(shared_dir, Path(preloaded.PREFIX) / "fsx", pool.command(), pool.environment)


@pytest.mark.soak
@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault_by_the_preload_library_in_a_million_operations(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        pool.ok("touch", f"{preloaded.PREFIX}/fsx")
        Fsx("fsx", 23, SOAK_OPERATIONS, SOAK_PROCESSES).run(shared_dir, Path(preloaded.PREFIX) / "fsx", pool.command(), pool.environment)


@pytest.mark.usefixtures("root")
def test_fsx_finds_no_fault_by_the_preload_library_in_a_striped_file(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir, "--nodes", "2") as pool:
        folder = f"{preloaded.PREFIX}/striped"
        pool.ok("mkdir", folder)
        pool.ok("setfattr", "-n", "user.tidemill.placement", "-v", "striped", folder)
        pool.ok("touch", f"{folder}/fsx")
        Fsx("fsx-unmapped", 22, FSX_OPERATIONS).run(shared_dir, Path(folder) / "fsx", pool.command(), pool.environment)
