"""Fixtures of the suite that drives the real binary.

The binary is $TIDEMILL, or target/release/tidemill. Whatever runs a workflow runs twice, once for each way in which tasks
may see the pool (`storage`); TIDEMILL_STORAGE restricts the suite to one.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from example_runs import ROOT, Tidemill
from workbench import Workbench

STORAGES = ("mount", "staging")

# A suite that was started in the background inherits SIGINT as ignored, and `tidemill` would keep it so.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def binary() -> Path:
    """The path of the binary under test."""
    path = Path(os.environ.get("TIDEMILL", ROOT / "target/release/tidemill")).resolve()
    if not path.is_file():
        pytest.exit(f"{path} is not there: `make build` makes it", returncode=2)
    return path


@pytest.fixture(scope="module", params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    """How tasks see the pool: through a mount, or by staging."""
    wanted = os.environ.get("TIDEMILL_STORAGE", "auto")
    if wanted not in ("auto", request.param):
        pytest.skip(f"TIDEMILL_STORAGE={wanted} asks for that one only")
    if request.param == "mount" and (reason := why_no_mount()):
        pytest.skip(reason)
    return request.param


def why_no_mount() -> str | None:
    """Why this machine allows no FUSE mount at all; None where it should work, so that a broken mount fails the tests."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no FUSE here: {error}"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "no FUSE here: neither root nor fusermount3"
    return None


@pytest.fixture
def tidemill(binary: Path, tmp_path: Path, storage: str) -> Tidemill:
    """The binary in a folder of the test, for the examples."""
    return Tidemill(binary, tmp_path, storage)


@pytest.fixture
def bench(binary: Path, tmp_path: Path, storage: str) -> Workbench:
    """Data, tools, a script and the binary in a folder of the test."""
    return Workbench(binary, tmp_path, storage)
