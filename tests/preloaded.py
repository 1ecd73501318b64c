"""Programs that use a pool through the preload library: a pool, and `tidemill exec`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pools

# The path prefix of the pool in these tests.
PREFIX = "/tidemill"
SECONDS_MAX = 150
# Prefixes of environment variables that would select another pool.
ELSEWHERE = ("TIDEMILL_", "LD_PRELOAD", "SLURM_")


class Pool:
    """A pool whose runtime directory is below `shared_dir`."""

    def __init__(self, binary: Path, shared_dir: Path, run_as: dict[str, object] | None = None) -> None:
        self.binary, self.shared_dir = binary, shared_dir
        # Arguments for subprocess that select the user of the programs.
        self.run_as = run_as or {}
        self.folder = shared_dir / "runtime/tidemill"
        self.environment = {name: value for name, value in pools.environment(shared_dir).items() if not name.startswith(ELSEWHERE)}
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.environment["TIDEMILL_POOL"] = str(self.folder / "pool")

    def command(self, *words: str | Path) -> list[str]:
        """The command line of a program that uses the pool."""
        return [str(self.binary), "exec", "--", *map(str, words)]

    def run(self, *words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, with `env` added to its environment."""
        return subprocess.run(
            self.command(*words),
            env=self.environment | (env or {}),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=False,
            **self.run_as,
        )

    def ok(self, *words: str | Path) -> str:
        """The output of a program that must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def tidemill(self, *words: str) -> str:
        """The output of a tidemill command that must succeed."""
        command = [str(self.binary), *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=pools.SECONDS_MAX, check=False, **self.run_as)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def nodes(self) -> list[dict[str, object]]:
        """The nodes that answer, as `pool status` lists them."""
        return json.loads(self.tidemill("pool", "status", "--json"))["nodes"]

    def used(self) -> int:
        """Bytes that the nodes use."""
        return sum(int(str(node["used"])) for node in self.nodes())

    def pids(self) -> list[int]:
        """Process ids of the nodes in the pool file."""
        return [node["pid"] for node in json.loads((self.folder / "pool").read_text())["nodes"]]

    @contextmanager
    def open_to_all(self) -> Iterator[None]:
        """Lets every user of the host read the pool file and reach the nodes during the context.

        Without it the runtime directory is accessible only to its user.
        """
        for path in [self.folder.parent, self.folder, *self.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o666 if path.is_socket() else 0o644)
        try:
            yield
        finally:
            self.folder.chmod(0o700)


@contextmanager
def pool_of_user(binary: Path, shared_dir: Path, user: int, memory: str = "512MiB") -> Iterator[Pool]:
    """A pool of an ordinary user, with a copy of the binary that this user can run."""
    folder = shared_dir / "user"
    folder.mkdir(mode=0o700)
    for file in (binary, binary.parent / "libtidemill_preload.so"):
        shutil.copy(file, folder)
    made = Pool(folder / binary.name, folder, {"user": user, "group": user, "extra_groups": []})
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)
    made.tidemill("pool", "start", "--memory", memory)
    try:
        yield made
    finally:
        made.tidemill("pool", "stop")


@contextmanager
def pool(binary: Path, shared_dir: Path, *flags: str, memory: str = "512MiB") -> Iterator[Pool]:
    """A pool that is stopped at the end of the context.

    Its root directory belongs to the user who started it, as that of a mount does.
    """
    made = Pool(binary, shared_dir)
    made.tidemill("pool", "start", "--memory", memory, *flags)
    try:
        yield made
    finally:
        made.tidemill("pool", "stop")
