"""Mounted pools for the tests, and a tmpfs to compare with.

Everything is in a directory of the test that any user may traverse, because the tests switch users.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = "256MiB"
# A mount and an unmount take milliseconds; a longer wait is a hang.
SECONDS_MAX = 30
# Directories of the running tests: a hanging mount below one of them may be aborted.
SHARED_DIRS: list[Path] = []


def environment(shared_dir: Path) -> dict[str, str]:
    """Environment for commands whose runtime directory is below `shared_dir`."""
    runtime = shared_dir / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return os.environ | {"XDG_RUNTIME_DIR": str(runtime)}


class Mount:
    """The mounts of one process of `tidemill mount`, at one directory or at several."""

    def __init__(self, binary: Path, shared_dir: Path, dirs: list[Path], *flags: str, network: str | None = None) -> None:
        self.binary = binary
        self.dirs = dirs
        for folder in self.dirs:
            # On a dead mount no other check for the directory works.
            with suppress(FileExistsError):
                folder.mkdir()
        self.environment = environment(shared_dir)
        # In tests with network namespaces, nsenter: `ip netns exec` would hide the mount from other
        # processes.
        at = [] if network is None else ["nsenter", f"--net=/run/netns/{network}"]
        command = [*at, str(binary), "mount", *flags, *map(str, self.dirs)]
        self.process = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.messages: list[str] = []
        self.ready = threading.Event()
        # The output is read to its end, because a pool blocks if it cannot write its log.
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.ready.wait(SECONDS_MAX)
        assert any("mounted at" in line for line in self.messages), f"{' '.join(command)}: {''.join(self.messages)}"

    def listen(self) -> None:
        """Collects the messages of the pool."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.messages.append(line)
            if "mounted at" in line:
                self.ready.set()
        self.ready.set()

    @property
    def dir(self) -> Path:
        """The mount point, or the first of several."""
        return self.dirs[0]

    def end(self) -> int:
        """Unmounts; returns the exit code of the mount process."""
        for folder in self.dirs:
            command = [str(self.binary), "umount", str(folder)]
            subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=SECONDS_MAX)
        return self.process.wait(timeout=SECONDS_MAX)

    def close(self) -> None:
        """Ends the mount, and makes sure that nothing is left."""
        try:
            if self.process.poll() is None:
                assert self.end() == 0
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.listener.join(SECONDS_MAX)
        assert not any(os.path.ismount(folder) for folder in self.dirs)


@contextmanager
def shared_dir(prefix: str = "tidemill-test-") -> Iterator[Path]:
    """A directory that any user may traverse.

    Its path is short, because the tests bind sockets deep below it (at most 108 bytes).
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    folder.chmod(0o711)
    SHARED_DIRS.append(folder)
    try:
        yield folder
    finally:
        # A file system that could not be unmounted is not emptied; its directory stays.
        if not any(os.path.ismount(inside) for inside in folder.iterdir()):
            shutil.rmtree(folder)
        SHARED_DIRS.remove(folder)


@contextmanager
def tmpfs(at: Path, *options: str) -> Iterator[Path]:
    """A tmpfs of the test, with the kernel's defaults."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(at)], check=True)
    at.chmod(0o755)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


class Pool(Mount):
    """A pool that `tidemill mount` started and mounted, at one directory or at several."""

    def __init__(self, binary: Path, shared_dir: Path, *flags: str, points: int = 1, memory: str = MEMORY) -> None:
        super().__init__(binary, shared_dir, [shared_dir / f"pool{number}" for number in range(points)], *flags, "--memory", memory)


@contextmanager
def pool(binary: Path, at: Path, *flags: str, points: int = 1, memory: str = MEMORY) -> Iterator[Pool]:
    """A mounted pool that is unmounted at the end of the context."""
    mounted = Pool(binary, at, *flags, points=points, memory=memory)
    try:
        mounted.dir.chmod(0o755)
        yield mounted
    finally:
        mounted.close()


@contextmanager
def mounts_of_nodes(binary: Path, at: Path, nodes: int, mounts: int, *flags: str) -> Iterator[list[Path]]:
    """Mounts of a pool with several nodes; each mount and each node is a separate process.

    All are stopped at the end of the context.
    """
    tidemill = [str(binary), "pool"]
    started = subprocess.run([*tidemill, "start", "--nodes", str(nodes), "--memory", MEMORY], env=environment(at), capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    file = at / "runtime/tidemill/pool"
    made: list[Mount] = []
    try:
        made.extend(Mount(binary, at, [at / f"pool{number}"], "--pool", str(file), *flags) for number in range(mounts))
        made[0].dir.chmod(0o755)
        yield [mount.dir for mount in made]
    finally:
        for mount in made:
            mount.close()
        subprocess.run([*tidemill, "stop"], env=environment(at), check=True, capture_output=True, timeout=SECONDS_MAX)
