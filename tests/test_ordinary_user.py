"""An ordinary user without FUSE: staging is chosen by itself and said, and what tools leave is removed.

Root starts the binary as user 1000, in a folder of that user (pytest's own belong to root).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

USER = 1000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class User:
    """A workbench that belongs to an ordinary user, who has no fusermount3."""

    def __init__(self, binary: Path, root: Path) -> None:
        self.bench = Workbench(binary, root, "auto")
        programs = root / "bin"
        programs.mkdir()
        for name in ("cp", "sh", "mkdir", "touch", "chmod"):
            (programs / name).symlink_to(shutil.which(name) or "")
        self.environment = {**self.bench.environment(), "PATH": str(programs), "HOME": str(root)}
        for path in (root, *root.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Runs the workflow as the user."""
        return self.command(*self.bench.arguments(*flags))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs any command as the user."""
        root, who = self.bench.root, {"user": USER, "group": USER, "extra_groups": []}
        return subprocess.run(words, cwd=root, env=self.environment, capture_output=True, text=True, timeout=60, check=False, **who)


@pytest.fixture
def user(binary: Path) -> Iterator[User]:
    """A user who can reach the binary."""
    with tempfile.TemporaryDirectory(prefix="tidemill-user-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        copy = Path(shutil.copy(binary, folder))
        yield User(copy, Path(folder))


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
    """Root may remove anything; their owner must first give himself the right."""
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
