"""Programs that see a pool by the preload library: a pool, and `tidemill exec` before their command lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pools

# What paths stand for the pool, in these tests.
PREFIX = "/tidemill"
SECONDS_MAX = 150
# Variables that would lead programs to another pool.
ELSEWHERE = ("TIDEMILL_", "LD_PRELOAD", "SLURM_")


class Pool:
    """A pool whose folder of what runs is in this ground."""

    def __init__(self, binary: Path, ground: Path, who: dict[str, object] | None = None) -> None:
        self.binary, self.ground = binary, ground
        # Who runs the programs, for subprocess.
        self.who = who or {}
        self.folder = ground / "runtime/tidemill"
        self.environment = {name: value for name, value in pools.environment(ground).items() if not name.startswith(ELSEWHERE)}
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.environment["TIDEMILL_POOL"] = str(self.folder / "pool")

    def command(self, *words: str | Path) -> list[str]:
        """The command line of a program that sees the pool."""
        return [str(self.binary), "exec", "--", *map(str, words)]

    def run(self, *words: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A program, to its end, with so much more in its environment."""
        return subprocess.run(
            self.command(*words),
            env=self.environment | (env or {}),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=False,
            **self.who,
        )

    def ok(self, *words: str | Path) -> str:
        """What a program prints, which must go well."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def tidemill(self, *words: str) -> str:
        """What a command of ours prints, which must go well."""
        command = [str(self.binary), *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=pools.SECONDS_MAX, check=False, **self.who)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def nodes(self) -> list[dict[str, object]]:
        """The nodes that answer, as `pool status` lists them."""
        return json.loads(self.tidemill("pool", "status", "--json"))["nodes"]

    def used(self) -> int:
        """Bytes that the nodes use."""
        return sum(int(str(node["used"])) for node in self.nodes())

    def pids(self) -> list[int]:
        """Of the nodes that the pool file names."""
        return [node["pid"] for node in json.loads((self.folder / "pool").read_text())["nodes"]]

    @contextmanager
    def open_to_all(self) -> Iterator[None]:
        """Lets every user of the host read the pool's file and reach its nodes meanwhile; the folder of what runs is its user's alone else."""
        for path in [self.folder.parent, self.folder, *self.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o666 if path.is_socket() else 0o644)
        try:
            yield
        finally:
            self.folder.chmod(0o700)


@contextmanager
def pool_of_user(binary: Path, ground: Path, user: int, memory: str = "512MiB") -> Iterator[Pool]:
    """The same of an ordinary user, with a binary that this user may run."""
    folder = ground / "user"
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
def pool(binary: Path, ground: Path, *flags: str, memory: str = "512MiB") -> Iterator[Pool]:
    """A pool that is stopped afterwards. Its root belongs to who started it, as that of a mount does."""
    made = Pool(binary, ground)
    made.tidemill("pool", "start", "--memory", memory, *flags)
    try:
        yield made
    finally:
        made.tidemill("pool", "stop")
