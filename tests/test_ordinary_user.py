"""An ordinary user, with and without fusermount3: mounts work, or staging is selected and reported.

Root starts the binary as user 1000, in a directory of that user (pytest's own belong to root).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

USER = 1000

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"), pytest.mark.usefixtures("fuse_for_users")]


# Paths where the binary looks for the helper in addition to PATH.
HELPERS = [path for path in map(Path, ("/usr/bin/fusermount3", "/bin/fusermount3", "/usr/sbin/fusermount3", "/sbin/fusermount3")) if path.exists()]


class User:
    """A workbench that belongs to an ordinary user."""

    # Words before every command line.
    before: tuple[str, ...] = ()

    def __init__(self, binary: Path, root: Path) -> None:
        self.bench = Workbench(binary, root, "auto")
        programs = root / "bin"
        programs.mkdir()
        for name in ("cp", "sh", "mkdir", "touch", "chmod"):
            (programs / name).symlink_to(shutil.which(name) or "")
        self.environment = {**self.bench.environment(), "PATH": str(programs), "HOME": str(root)}
        self.chown_tree(root)

    @staticmethod
    def chown_tree(root: Path) -> None:
        """Gives everything below `root` to the user."""
        for path in (root, *root.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Runs the workflow as the user."""
        return self.command(*self.bench.arguments(*flags))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs any command as the user."""
        return subprocess.run((*self.before, *words), env=self.environment, capture_output=True, text=True, timeout=60, check=False, **self.run_as())

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Starts any command as the user."""
        return subprocess.Popen((*self.before, *words), env=self.environment, stderr=subprocess.PIPE, text=True, **self.run_as())

    def run_as(self) -> dict:
        """Arguments for subprocess that select the user."""
        return {"cwd": self.bench.root, "user": USER, "group": USER, "extra_groups": []}


class UserWithoutHelper(User):
    """A user in a mount namespace that hides fusermount3, as on machines without it."""

    def __init__(self, binary: Path, root: Path) -> None:
        super().__init__(binary, root)
        hide = " && ".join(f"mount --bind /dev/null {path}" for path in HELPERS) or "true"
        unshare, setpriv = (shutil.which(name) or name for name in ("unshare", "setpriv"))
        drop = f'exec {setpriv} --reuid {USER} --regid {USER} --clear-groups -- "$@"'
        # The shell needs the usual PATH to run mount.
        path = f"PATH={self.environment['PATH']}"
        self.before = (unshare, "--mount", "/bin/sh", "-c", f"PATH=/usr/bin:/bin:/usr/sbin:/sbin; {hide}; {path}; {drop}", "sh")

    def run_as(self) -> dict:
        """Root makes the namespace; setpriv becomes the user in it."""
        return {"cwd": self.bench.root}


@pytest.fixture
def home(binary: Path) -> Iterator[tuple[Path, Path]]:
    """A directory for a user, and the binary in it."""
    with tempfile.TemporaryDirectory(prefix="tidemill-user-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copy(binary, folder)), Path(folder)


@pytest.fixture
def user(home: tuple[Path, Path]) -> User:
    """A user without fusermount3."""
    if HELPERS and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("fusermount3 cannot be hidden here")
    return UserWithoutHelper(*home)


@pytest.fixture
def user_with_helper(home: tuple[Path, Path]) -> User:
    """A user with fusermount3."""
    if not HELPERS or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no fusermount3 here, or no FUSE")
    return User(*home)


COPY = 'var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});'


def test_staging_is_chosen_and_said_in_one_line(user: User) -> None:
    user.bench.script(COPY)
    done = user.run()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RAM-disk staging, since mounting needs root") == 1
    assert (user.bench.out / "B.txt").read_text() == "tide\n"
    assert user.bench.leftovers() == []


def test_a_demand_for_the_mount_is_refused_with_what_to_do(user: User) -> None:
    user.bench.script(COPY)
    for done in (user.run("--storage", "mount"), user.command(str(user.bench.binary), "mount", str(user.bench.out))):
        assert done.returncode == 2
        assert "fusermount3" in done.stderr
        assert "hint:" in done.stderr


def test_leftovers_that_nobody_may_enter_are_removed(user: User) -> None:
    """Root can remove anything; the owner must change the permissions first."""
    script = 'mkdir -p a/b && touch a/b/c && echo x > "$1" && chmod 000 a/b a "$1"'
    user.bench.script(f"var d = Data.define(\"D\"); shell({{script: '{script}', to: d}});")
    done = user.run()
    assert done.returncode == 0, done.stderr
    assert (user.bench.out / "D.txt").read_text() == "x\n"
    assert user.bench.leftovers() == []


def test_folders_that_the_user_may_not_write_to_are_refused(user: User) -> None:
    user.bench.script(COPY)
    for flag in ("--out", "--report"):
        done = user.run(flag, "/usr/tide")
        assert done.returncode == 2
        assert f"{flag} /usr/tide: /usr cannot be written to" in done.stderr


def test_a_run_of_a_user_mounts_through_the_helper_and_says_nothing_odd(user_with_helper: User) -> None:
    user_with_helper.bench.script(COPY)
    done = user_with_helper.run("--storage", "mount")
    assert done.returncode == 0, done.stderr
    assert "the pool is mounted" in done.stderr
    assert not {"warning", "WARN", "ERROR"} & set(done.stderr.split()), done.stderr
    assert (user_with_helper.bench.out / "B.txt").read_text() == "tide\n"
    assert user_with_helper.bench.leftovers() == []


def test_a_user_mounts_uses_and_unmounts_a_pool(user_with_helper: User) -> None:
    pool = user_with_helper.bench.root / "pool"
    pool.mkdir()
    user_with_helper.chown_tree(pool)
    process = user_with_helper.start(str(user_with_helper.bench.binary), "mount", str(pool), "--memory", "64MiB")
    assert process.stderr is not None
    assert "is mounted at" in process.stderr.readline()
    script = 'cd "$0" && mkdir a && echo one > a/x && cp a/x a/y && chmod 640 a/y && cp a/y a/z && cp a/z ../out.txt'
    done = user_with_helper.command("/bin/sh", "-c", script, str(pool))
    assert (done.returncode, done.stderr) == (0, "")
    assert (user_with_helper.bench.root / "out.txt").read_text() == "one\n"
    done = user_with_helper.command(str(user_with_helper.bench.binary), "umount", str(pool))
    assert (done.returncode, done.stderr) == (0, "")
    assert (process.wait(timeout=20), process.stderr.read()) == (0, "")
    assert list(pool.iterdir()) == []


def test_a_killed_mount_of_a_user_is_cleared_by_his_next_start(user_with_helper: User) -> None:
    pool = user_with_helper.bench.root / "pool"
    pool.mkdir()
    user_with_helper.chown_tree(pool)
    for how in (signal.SIGKILL, signal.SIGINT):
        process = user_with_helper.start(str(user_with_helper.bench.binary), "mount", str(pool), "--memory", "64MiB")
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "is mounted at" in said, said
        process.send_signal(how)
        assert process.wait(timeout=20) in (-signal.SIGKILL, 130)
    end = time.monotonic() + 20
    while str(pool) in Path("/proc/self/mountinfo").read_text():
        assert time.monotonic() < end
    assert user_with_helper.bench.leftovers() == []


def test_a_pool_of_a_user_keeps_its_memory_in_a_file_system_of_its_own(home: tuple[Path, Path]) -> None:
    user = User(*home)
    binary, root = home
    runtime = root / "run"
    runtime.mkdir(mode=0o700)
    User.chown_tree(runtime)
    user.environment["XDG_RUNTIME_DIR"] = str(runtime)
    if user.command(shutil.which("unshare") or "unshare", "--user", "--map-root-user", "/bin/true").returncode != 0:
        pytest.skip("users may make no user namespaces here")
    started = user.command(str(binary), "pool", "start", "--memory", "64MiB")
    assert started.returncode == 0, started.stderr
    try:
        (pid,) = [node["pid"] for node in json.loads((runtime / "tidemill/pool").read_text())["nodes"]]
        # One tmpfs for stripes and one for extent files, each in a user namespace; without
        # namespaces there are memfds instead.
        files = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        assert len([name for name in files if name.startswith("user:")]) == 2, files
        assert not any("memfd:tidemill-pool" in name for name in files)
        assert children(pid) == [], "nothing stays that makes or sizes them"
        text = root / "text"
        text.write_text("tide\n")
        assert user.command(str(binary), "put", "key", str(text)).returncode == 0
        assert user.command(str(binary), "cat", "key").stdout == "tide\n"
    finally:
        assert user.command(str(binary), "pool", "stop").returncode == 0


def children(pid: int) -> list[str]:
    """The running children of a process."""
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
