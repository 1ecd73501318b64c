"""Pools for the tests of the Python package: one of each kind, shared by all tests.

Whatever a test leaves in the pool is removed. The tests use the installed package, which
`make package` installs.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pools
import pytest
import tidemill

KINDS = ("inside", "nodes")
NUMBERS = itertools.count()


class Nodes:
    """A pool of two nodes in separate processes."""

    def __init__(self, binary: Path, shared_dir: Path) -> None:
        self.binary = binary
        self.environment = {name: value for name, value in pools.environment(shared_dir).items() if name != "TIDEMILL_POOL"}
        self.file = shared_dir / "runtime/tidemill/pool"
        self.run("start", "--nodes", "2", "--memory", "512MiB")

    def run(self, *words: str) -> str:
        """Runs `tidemill pool ...`, which must succeed; returns its output."""
        command = [str(self.binary), "pool", *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=pools.SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tidemill(self, *words: str, data: bytes = b"") -> bytes:
        """Runs `tidemill ...` on this pool, which must succeed; returns its output."""
        command = [str(self.binary), *words]
        environment = self.environment | {"TIDEMILL_POOL": str(self.file)}
        done = subprocess.run(command, env=environment, input=data, capture_output=True, timeout=pools.SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@pytest.fixture(scope="session")
def nodes(binary: Path) -> Iterator[Nodes]:
    """A pool started by `tidemill pool start`."""
    with pools.shared_dir("tidemill-python-") as shared_dir:
        started = Nodes(binary, shared_dir)
        yield started
        started.run("stop")


@pytest.fixture(scope="session", params=KINDS)
def shared_pool(request: pytest.FixtureRequest) -> Iterator[tidemill.Pool]:
    """A pool of each kind."""
    inside = request.param == "inside"
    opened = tidemill.start("512MiB", space_wait=0.2) if inside else tidemill.connect(request.getfixturevalue("nodes").file)
    with opened:
        yield opened


@pytest.fixture
def pool(shared_pool: tidemill.Pool) -> Iterator[tidemill.Pool]:
    """A pool of each kind, emptied after the test."""
    yield shared_pool
    for entry in shared_pool.folder():
        shared_pool.delete_tree(entry.name)


@pytest.fixture(params=KINDS)
def own_pool(request: pytest.FixtureRequest) -> Iterator[tidemill.Pool]:
    """A pool, or a connection to one, that the test may close."""
    inside = request.param == "inside"
    opened = tidemill.start("64MiB", space_wait=0.2) if inside else tidemill.connect(request.getfixturevalue("nodes").file)
    with opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_usual_pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keeps tests away from the user's default pool."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fspath(tmp_path / "run"))
    monkeypatch.delenv("TIDEMILL_POOL", raising=False)
