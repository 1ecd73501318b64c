"""Fixtures of the test suite that runs the real binary.

The binary is $TIDEMILL, or target/release/tidemill. Every test with a workflow runs three times,
once for each way in which tasks can access the pool (`storage`); TIDEMILL_STORAGE selects one of
them.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hang
import pools
import pytest
from example_runs import ROOT, Tidemill
from workbench import Workbench

STORAGES = ("mount", "preload", "staging")

# At this share of a test's timeout its mounts are aborted, so that only this test fails. At the
# full timeout (pytest.ini) the whole test run ends.
HANG_SHARE = 0.8

# A test run started in the background inherits SIGINT as ignored, and `tidemill` would inherit that
# too.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The FUSE device's mode before the tests, in the process that starts the others (pytest-xdist).
FUSE_DEVICE = Path("/dev/fuse")
FUSE_MODE = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Remembers the mode of the FUSE device, which some tests change."""
    if not hasattr(config, "workerinput") and FUSE_DEVICE.exists():
        config.stash[FUSE_MODE] = stat.S_IMODE(FUSE_DEVICE.stat().st_mode)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restores the mode of the FUSE device."""
    mode = config.stash.get(FUSE_MODE, None)
    if mode is not None and os.geteuid() == 0:
        FUSE_DEVICE.chmod(mode)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives tests on whole data sets, and soak tests, four hours."""
    for item in items:
        if item.get_closest_marker("full") or item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(4 * 3600))


@pytest.fixture(scope="session")
def binary() -> Path:
    """The path of the binary under test."""
    path = Path(os.environ.get("TIDEMILL", ROOT / "target/release/tidemill")).resolve()
    if not path.is_file():
        pytest.exit(f"{path} is not there: `make build` builds it", returncode=2)
    return path


@pytest.fixture(scope="module", params=STORAGES)
def storage(request: pytest.FixtureRequest) -> str:
    """The tasks' access to the pool: by a mount, by the preload library, or by staging."""
    wanted = os.environ.get("TIDEMILL_STORAGE", "auto")
    if wanted not in ("auto", request.param):
        pytest.skip(f"TIDEMILL_STORAGE={wanted} asks for that one only")
    if request.param == "mount" and (reason := mount_unsupported_reason()):
        pytest.skip(reason)
    return request.param


def mount_unsupported_reason() -> str | None:
    """Returns why this machine allows no FUSE mount at all, or None if it should work.

    With None a broken mount fails the tests instead of skipping them.
    """
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no FUSE here: {error}"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "no FUSE here: neither root nor fusermount3"
    return None


@pytest.fixture
def tidemill(binary: Path, tmp_path: Path, storage: str) -> Tidemill:
    """The binary with a directory of the test, for the examples."""
    return Tidemill(binary, tmp_path, storage)


@pytest.fixture
def bench(binary: Path, tmp_path: Path, storage: str) -> Workbench:
    """Data, tools, a script and the binary in a directory of the test."""
    return Workbench(binary, tmp_path, storage)


@pytest.fixture(autouse=True)
def _no_hang(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Aborts the mounts of a test that hangs, so that it fails and ends."""
    freed: list[str] = []
    marker = request.node.get_closest_marker("timeout")
    seconds = HANG_SHARE * float(marker.args[0] if marker else request.config.getini("timeout"))

    def abort_mounts() -> None:
        faulthandler.dump_traceback(sys.__stderr__)
        for folder in (tmp_path_factory.getbasetemp(), *pools.SHARED_DIRS):
            freed.extend(hang.abort_mounts(folder))

    timer = threading.Timer(seconds, abort_mounts)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()
    assert not freed, f"hung for {seconds:.0f} s; aborted: {freed}"


@pytest.fixture
def shared_dir() -> Iterator[Path]:
    """A directory of the test that any user may traverse."""
    with pools.shared_dir() as folder:
        yield folder


@pytest.fixture
def root() -> None:
    """Skips the test if the user cannot mount a tmpfs or become another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if reason := mount_unsupported_reason():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def fuse_for_users() -> None:
    """Opens the FUSE device to all users, as the udev rule of fusermount3's package does.

    Without udev only root can open it. The mode is restored when all processes have ended their
    tests.
    """
    if FUSE_DEVICE.exists() and os.geteuid() == 0:
        FUSE_DEVICE.chmod(0o666)


@pytest.fixture
def tmpfs(root: None, shared_dir: Path) -> Iterator[Path]:  # noqa: ARG001 - root is a condition
    """A tmpfs to compare with."""
    with pools.tmpfs(shared_dir / "tmpfs") as folder:
        yield folder


@pytest.fixture(params=["passthrough", "ordinary"])
def io_flags(request: pytest.FixtureRequest) -> list[str]:
    """The flags of the two ways in which a mount serves bytes."""
    return [] if request.param == "passthrough" else ["--no-passthrough"]
