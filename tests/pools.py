"""What the suites run on: a mounted pool, and a tmpfs beside it to compare with.

Everything lies in a folder of the test that any user may pass through, since the suites switch users.
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
# A mount and an unmount take milliseconds; whoever waits longer hangs.
SECONDS_MAX = 30
# What is waited for may take a few of these.
# Folders of tests that run now: below them a hanging mount is ours to abort.
GROUNDS: list[Path] = []


def environment(ground: Path) -> dict[str, str]:
    """Of commands whose folder of what runs is in this ground."""
    runtime = ground / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    return os.environ | {"XDG_RUNTIME_DIR": str(runtime)}


class Mount:
    """What one process of `tidemill mount` mounted, at one directory or at several."""

    def __init__(self, binary: Path, ground: Path, dirs: list[Path], *flags: str, network: str | None = None) -> None:
        self.binary = binary
        self.dirs = dirs
        for folder in self.dirs:
            with suppress(FileExistsError):  # of a dead mount nothing else can be told
                folder.mkdir()
        self.environment = environment(ground)
        # Where hosts are network namespaces: `ip netns exec` would hide the mount from all others.
        at = [] if network is None else ["nsenter", f"--net=/run/netns/{network}"]
        command = [*at, str(binary), "mount", *flags, *map(str, self.dirs)]
        self.process = subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.said: list[str] = []
        self.ready = threading.Event()
        # Read to its end: a pool that cannot log would stop.
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.ready.wait(SECONDS_MAX)
        assert any("mounted at" in line for line in self.said), f"{' '.join(command)}: {''.join(self.said)}"

    def listen(self) -> None:
        """Keeps what the pool says."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if "mounted at" in line:
                self.ready.set()
        self.ready.set()

    @property
    def dir(self) -> Path:
        """Where it is mounted, or the first such place."""
        return self.dirs[0]

    def end(self) -> int:
        """Unmounts; the exit code of the mount."""
        for folder in self.dirs:
            command = [str(self.binary), "umount", str(folder)]
            subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=SECONDS_MAX)
        return self.process.wait(timeout=SECONDS_MAX)

    def close(self) -> None:
        """Ends it, and makes sure that nothing is left."""
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
def ground(prefix: str = "tidemill-test-") -> Iterator[Path]:
    """A folder that any user may pass through. Its path is short, since suites bind sockets deep below it (108 bytes at most)."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    folder.chmod(0o711)
    GROUNDS.append(folder)
    try:
        yield folder
    finally:
        # A file system that could not be unmounted is not emptied, it is left behind with its folder.
        if not any(os.path.ismount(inside) for inside in folder.iterdir()):
            shutil.rmtree(folder)
        GROUNDS.remove(folder)


@contextmanager
def tmpfs(at: Path, *options: str) -> Iterator[Path]:
    """A tmpfs of our own, as the kernel gives it unless asked otherwise."""
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(at)], check=True)
    at.chmod(0o755)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


class Pool(Mount):
    """A pool of its own that `tidemill mount` mounted, at one directory or at several."""

    def __init__(self, binary: Path, ground: Path, *flags: str, points: int = 1, memory: str = MEMORY) -> None:
        super().__init__(binary, ground, [ground / f"pool{number}" for number in range(points)], *flags, "--memory", memory)


@contextmanager
def pool(binary: Path, at: Path, *flags: str, points: int = 1, memory: str = MEMORY) -> Iterator[Pool]:
    """A mounted pool that is unmounted afterwards."""
    mounted = Pool(binary, at, *flags, points=points, memory=memory)
    try:
        mounted.dir.chmod(0o755)
        yield mounted
    finally:
        mounted.close()


@contextmanager
def mounts_of_nodes(binary: Path, at: Path, nodes: int, mounts: int, *flags: str) -> Iterator[list[Path]]:
    """So many mounts, each a process of its own, of a pool of so many nodes, each a process of its own; all ended afterwards."""
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
