"""`tidemill mount` and `tidemill umount`: a pool for any program."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pools
import pytest
from workbench import Workbench

pytestmark = pytest.mark.parametrize("storage", ["mount"])


class Mounted:
    """A mounted pool."""

    def __init__(self, bench: Workbench, *flags: str) -> None:
        self.bench, self.dir = bench, bench.root / "pool"
        # On a dead mount no other check for the directory works.
        with suppress(FileExistsError):
            self.dir.mkdir()
        command = [str(bench.binary), "mount", str(self.dir), "--memory", "256MiB", *flags]
        self.process = subprocess.Popen(command, env=bench.environment(), stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert "is mounted at" in said, said

    def end(self) -> int:
        """Unmounts with the command; returns the exit code of the mount process."""
        done = self.bench.tidemill("umount", self.dir)
        assert done.returncode == 0, done.stderr
        return self.process.wait(timeout=20)


@pytest.fixture
def mounted(bench: Workbench) -> Iterator[Mounted]:
    """A pool mounted at `pool`, and unmounted after the test."""
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    pool = Mounted(bench)
    yield pool
    if pool.process.poll() is None:
        assert pool.end() == 0
    assert not os.path.ismount(pool.dir)


def sh(script: str, cwd: Path) -> str:
    """Runs a shell script that must succeed."""
    done = subprocess.run(["bash", "-euc", script], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ordinary_programs_work_in_it(mounted: Mounted) -> None:
    script = """
    mkdir -p a/b && echo one > a/b/x && cp a/b/x a/y && mv a/y a/z && ln -s b/x a/link && cat a/link
    head -c 3000000 /dev/urandom > big && cp big copy && cmp big copy && truncate -s 100 copy && stat -c %s copy
    echo two >> a/b/x && wc -l < a/b/x && chmod 600 a/z && stat -c %a a/z && touch -d 2001-02-03 a/z && stat -c %Y a/z
    tar cf t.tar a && mkdir u && tar xf t.tar -C u && diff -r a u/a && gzip -9 big && gunzip big.gz && sort -r a/b/x
    rm -r u a && ls
    """
    out = sh(script, mounted.dir).split()
    assert out[:2] == ["one", "100"]
    assert out[-3:] == ["big", "copy", "t.tar"]


def test_python_maps_a_file_of_it_for_reading(mounted: Mounted) -> None:
    (mounted.dir / "m").write_bytes(b"abc" * 100_000)
    code = "import mmap,sys; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ); print(m[299997:].decode())"
    done = subprocess.run([sys.executable, "-c", code, str(mounted.dir / "m")], capture_output=True, text=True, check=True)
    assert done.stdout == "abc\n"


def test_git_keeps_a_repository_in_it(mounted: Mounted) -> None:
    script = """
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
    git init -q r && cd r && for i in $(seq 50); do echo $i > f$i; done && git add . && git commit -qm one
    git clone -q . ../s && cd ../s && git fsck --strict && git status --porcelain
    """
    assert sh(script, mounted.dir) == ""


def test_sqlite_keeps_a_database_in_it(mounted: Mounted) -> None:
    with closing(sqlite3.connect(mounted.dir / "db")) as db:
        db.execute("create table t (x)")
        db.executemany("insert into t values (?)", [(i,) for i in range(2000)])
        db.commit()
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_df_tells_the_size_of_the_pool(mounted: Mounted) -> None:
    shown = subprocess.run(["df", "--local", "--output=source", mounted.dir], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[1].startswith("tidemill-")
    status = os.statvfs(mounted.dir)
    assert status.f_blocks * status.f_frsize == 256 << 20
    before = status.f_bavail * status.f_frsize
    (mounted.dir / "x").write_bytes(bytes(32 << 20))
    after = os.statvfs(mounted.dir)
    assert before - after.f_bavail * after.f_frsize >= 32 << 20


def test_twenty_mounts_of_a_pool_show_each_change_at_once(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that is not notified says so, and may show old names and attributes for a second."""
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    monkeypatch.setenv("TIDEMILL_LOG", "mount=info")
    with pools.shared_dir() as at, pools.pool(bench.binary, at, points=20) as pool:
        for number, own in enumerate(pool.dirs):
            assert not any((other / "f").exists() for other in pool.dirs), f"mount {number - 1} has removed it"
            (own / "f").write_text("x" * number)
            assert {(other / "f").stat().st_size for other in pool.dirs} == {number}
            (own / "f").chmod(0o600 + number)
            assert {(other / "f").stat().st_mode & 0o777 for other in pool.dirs} == {0o600 + number}
            (own / "f").unlink()
        unnotified = [line for line in pool.messages if "are kept for" in line]
        assert not unnotified, unnotified


def test_a_signal_unmounts(bench: Workbench) -> None:
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        pool = Mounted(bench)
        pool.process.send_signal(number)
        assert pool.process.wait(timeout=20) == code
        assert not os.path.ismount(pool.dir)


def test_a_signal_at_any_moment_of_the_start_leaves_nothing(bench: Workbench) -> None:
    """Checks this without another start, which would clean up."""
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    folders = [bench.root / "one", bench.root / "two"]
    for folder in folders:
        folder.mkdir()
    command = [str(bench.binary), "mount", *map(str, folders), "--memory", "64MiB", "--quiet"]
    for moment in range(40):
        # A signal before the first line of the program ends the process by default; it has made
        # nothing then.
        process = subprocess.Popen(command, env=bench.environment(), stderr=subprocess.PIPE, text=True)
        time.sleep(moment / 1000)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        assert process.returncode in (143, -signal.SIGTERM), said
        assert bench.mounts() == []
        assert bench.leftovers() == []


def test_several_directories_show_one_pool_until_all_are_unmounted(bench: Workbench) -> None:
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    folders = [bench.root / "one", bench.root / "two"]
    for folder in folders:
        folder.mkdir()
    command = [str(bench.binary), "mount", *map(str, folders), "--memory", "64MiB"]
    with subprocess.Popen(command, env=bench.environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert all(f"umount {folder}`" in said for folder in folders), said
        (folders[0] / "note").write_text("seen in both")
        assert (folders[1] / "note").read_text() == "seen in both"
        assert bench.tidemill("umount", folders[0]).returncode == 0
        assert (folders[1] / "note").read_text() == "seen in both"
        assert process.poll() is None
        assert bench.tidemill("umount", folders[1]).returncode == 0
        assert process.wait(timeout=20) == 0
    assert bench.leftovers() == []


def test_a_killed_mount_is_cleared_by_the_next_start(bench: Workbench) -> None:
    if not bench.can_mount():
        pytest.skip("FUSE cannot be used here")
    pool = Mounted(bench)
    pool.process.kill()
    pool.process.wait()
    again = Mounted(bench)
    assert list(again.dir.iterdir()) == []
    assert again.end() == 0


def test_unsuitable_mount_points_are_refused(bench: Workbench, tmp_path: Path) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "x").touch()
    file.touch()
    for where, word in ((full, "empty"), (file, "directory"), (tmp_path / "gone", "gone")):
        done = bench.tidemill("mount", where)
        assert done.returncode == 2
        assert word in done.stderr, done.stderr
    ours = [tmp_path / "ours", tmp_path / "ours/inner", tmp_path / "other"]
    for folder in ours:
        folder.mkdir()
    for dirs, words in (((ours[2], ours[2]), "is named twice"), ((ours[0], ours[1]), "lies inside"), ((ours[2], tmp_path / "none"), "does not exist")):
        done = bench.tidemill("mount", *dirs)
        assert done.returncode == 2
        assert words in done.stderr, done.stderr
        assert bench.mounts() == []
    done = bench.tidemill("umount", full)
    assert done.returncode == 2
    assert "full" in done.stderr
