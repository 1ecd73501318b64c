"""The preload library without an available pool: one line on standard error and a suitable errno.

No program hangs or crashes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
from preloaded import PREFIX, Pool
from waiting import wait_for

# Time in seconds after which a program must have failed: the library waits a second or two for
# nodes.
SECONDS_MAX = 20
SEED = 5
KILLS = 100
# The program makes three calls, and prints the errno of each.
ASKS = f"""
import errno, os
for call in (os.stat, os.listdir, lambda path: open(path, "w")):
    try:
        call("{PREFIX}/f")
        print("may")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
# The same with a file that was opened before: reads, and prints the outcomes of new calls after a
# line comes on standard input.
HOLDS = f"""
import errno, os, sys
file = os.open("{PREFIX}/f", os.O_RDWR | os.O_CREAT)
os.write(file, b"x" * 100_000)
print("ready", flush=True)
sys.stdin.readline()
def outcome(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]
print(outcome(lambda: len(os.pread(file, 1 << 20, 0))), outcome(os.stat, "{PREFIX}/f"), outcome(os.open, "{PREFIX}/g", os.O_CREAT), outcome(os.close, file))
"""
# Opens, writes, renames and removes files until it is killed.
BUSY = f"""
import os, sys
os.mkdir(mine := "{PREFIX}/" + sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    with open(f"{{mine}}/a{{number % 7}}", "wb") as file:
        file.write(b"b" * 70_000)
    os.rename(f"{{mine}}/a{{number % 7}}", f"{{mine}}/b")
    file = os.open(f"{{mine}}/b", os.O_RDONLY)
    os.unlink(f"{{mine}}/b")
    os.close(file)
"""


def preload_library(binary: Path) -> Path:
    """The preload library, beside the binary."""
    return binary.parent / "libtidemill_preload.so"


def run_calls(binary: Path, file: Path | None, *before: str) -> tuple[list[str], list[str]]:
    """The errnos of the program's calls and its lines on standard error, with this pool file."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")} | {"LD_PRELOAD": str(preload_library(binary))}
    if file is not None:
        environment["TIDEMILL_POOL"] = str(file)
    command = [*before, sys.executable, "-c", ASKS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return done.stdout.split(), done.stderr.splitlines()


def check_refused(binary: Path, file: Path | None, errno: str, words: str, *before: str) -> None:
    """Checks that each call fails with this errno, and that one line gives the reason."""
    errnos, lines = run_calls(binary, file, *before)
    assert errnos == [errno] * 3
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"tidemill: {PREFIX}: ")
    assert words in lines[0]


def test_no_pool_named(binary: Path) -> None:
    check_refused(binary, None, "ENODEV", "TIDEMILL_POOL")


def test_a_pool_file_that_is_not_there(binary: Path, tmp_path: Path) -> None:
    check_refused(binary, tmp_path / "pool", "ENODEV", "there is no pool file")


def modified_pool_file(pool: Pool, change: Callable[[dict[str, object]], object]) -> Path:
    """A modified copy of the pool file."""
    said = json.loads((pool.folder / "pool").read_text())
    change(said)
    copy = pool.shared_dir / "changed"
    copy.write_text(json.dumps(said))
    copy.chmod(0o600)
    return copy


def test_a_token_that_is_not_the_pools(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        check_refused(binary, modified_pool_file(pool, lambda said: said.update(token="ab" * 32)), "EACCES", "token is wrong")


def test_a_pool_file_of_another_version(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        check_refused(binary, modified_pool_file(pool, lambda said: said.update(tidemill_pool=99)), "EPROTO", "version 99")


def test_a_file_that_is_no_pool_file(binary: Path, tmp_path: Path) -> None:
    other = tmp_path / "pool"
    other.write_text("nothing of the kind\n")
    check_refused(binary, other, "EINVAL", "is not a pool file")


@pytest.mark.usefixtures("root")
def test_a_token_that_the_user_may_not_read(binary: Path, shared_dir: Path) -> None:
    # The system's Python, because another user may be unable to run that of this environment.
    code = f'import sys; sys.argv = ["-c"]; exec({ASKS!r})'
    with preloaded.pool(binary, shared_dir) as pool:
        copy = shared_dir / "library.so"
        copy.write_bytes(preload_library(binary).read_bytes())
        copy.chmod(0o755)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", code]
        environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(copy), "TIDEMILL_POOL": str(pool.folder / "pool")}
        done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.stdout.split() == ["EACCES"] * 3, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr or "may not" in done.stderr


@pytest.mark.usefixtures("root")
def test_a_child_that_becomes_another_user_is_told_that_the_pool_is_not_its_own(binary: Path, shared_dir: Path) -> None:
    program = f"""
import os, sys
os.listdir("{PREFIX}")
if os.fork() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    exec({ASKS!r})
    sys.stdout.flush()
    os._exit(0)
os.wait()
"""
    with preloaded.pool(binary, shared_dir) as pool:
        done = pool.run(sys.executable, "-c", program)
    assert done.stdout.split() == ["EACCES"] * 3, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr


def kill_nodes(pool: Pool) -> None:
    """Kills the nodes of the pool, as in a crash."""
    for pid in pool.pids():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pool.pids()), "a node lives on")


def test_a_pool_whose_nodes_are_dead(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        kill_nodes(pool)
        check_refused(binary, pool.folder / "pool", "ENOTCONN", "answers")


def test_a_pool_that_dies_under_an_open_file_leaves_its_bytes_and_refuses_the_rest(binary: Path, shared_dir: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        command = pool.command(sys.executable, "-c", HOLDS)
        holder = subprocess.Popen(command, env=pool.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        kill_nodes(pool)
        told, said = holder.communicate("on\n", timeout=SECONDS_MAX)
    assert holder.returncode == 0, said
    assert told.split() == ["100000", "ENOTCONN", "ENOTCONN", "None"]
    assert len(said.splitlines()) == 1, said
    assert "does not answer" in said


def test_programs_that_are_killed_leave_no_open_file_behind(binary: Path, shared_dir: Path) -> None:
    chance = random.Random(SEED)
    with preloaded.pool(binary, shared_dir) as pool:
        began = pool.used()
        for turn in range(KILLS // 4):
            busy = [
                subprocess.Popen(pool.command(sys.executable, "-c", BUSY, f"{turn}-{number}"), env=pool.environment, stdout=subprocess.PIPE, text=True)
                for number in range(4)
            ]
            for process in busy:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            for process in busy:
                time.sleep(chance.random() / 50)
                process.kill()
            for process in busy:
                process.communicate()
        pool.ok("sh", "-c", f"rm -r {PREFIX}/*")
        # The bytes of removed files are freed with their last open descriptor.
        wait_for(lambda: pool.used() <= began + 64 * 1024, f"{pool.used()} bytes are used, {began} were before")
