"""SIGKILL at random moments of a mixed load: nothing hangs, and the next start removes everything.

CRASH_ROUNDS is the number of moments that each test tries. The seed is printed; SOAK_SEED repeats
it.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pools
import pytest
from workbench import Workbench

LOAD = Path(__file__).parent / "soak/crash_load.py"
ROUNDS = int(os.environ.get("CRASH_ROUNDS", "25"))
SOAK_ROUNDS = max(ROUNDS, 200)
SEED = int(os.environ.get("SOAK_SEED", "0")) or random.randrange(1, 1 << 30)
# A killed process is gone in milliseconds, or at most a second per GiB of memory.
GONE_SECONDS = 20


def state_of(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Content, mode and time of every file below a directory."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    told = {path: path.stat() for path in files}
    return {str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), told[path].st_mode, told[path].st_mtime_ns) for path in files}


def processes_with(mark: str) -> list[str]:
    """Processes with `mark` in their environment.

    A program searches for them, because access to a hanging process may hang.
    """
    search = ["sh", "-c", 'grep -lszF -e "$0" /proc/[0-9]*/environ', mark]
    done = subprocess.run(search, capture_output=True, text=True, timeout=10, check=False, env={"PATH": os.environ["PATH"]})
    return done.stdout.split()


def mounts_below(folder: Path) -> list[str]:
    """Mount points below a directory, from the kernel's list."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(f"{folder}/")]


def nothing_is_left(bench: Workbench, seed: int) -> None:
    """Starts tidemill once more; then no process, mount or directory may be left."""
    mark = f"XDG_RUNTIME_DIR={bench.runtime}"
    again = bench.tidemill("mount", bench.root / "none")
    assert again.returncode == 2, f"seed {seed}: {again.stderr}"
    bench.wait_for(lambda: not processes_with(mark), GONE_SECONDS)
    assert mounts_below(bench.root) == [], f"seed {seed}"
    assert bench.leftovers() == [], f"seed {seed}"


@contextmanager
def killed_at_end(process: subprocess.Popen[str], seed: int) -> Iterator[None]:
    """Kills the process; afterwards it must be gone, not a zombie with hanging threads."""
    process.kill()
    yield
    try:
        process.wait(timeout=GONE_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.fail(f"seed {seed}: the killed process hangs")


WORKFLOW = """
var a = Data.get("in"); var small = Data.define("Small", 12); var big = Data.define("Big", 6);
var sizes = Data.define("Sizes", 6); var list = Data.define("List"); var d = Data.define("D");
for (var i = 0; i < 12; i++) copy({from: a, to: small[i]});
for (var i = 0; i < 6; i++) {
  shell({script: 'head -c 3000000 /dev/zero > "$1"; mkdir -p x/y; touch x/y/z', to: big[i]});
  measure({from: big[i], to: sizes[i]});
}
join_dir({from: small, to: list}); flaky({to: d});
"""


def killed_runs(bench: Workbench, rounds: int) -> None:
    """Kills `tidemill run` at random moments."""
    bench.script(WORKFLOW)
    begun = time.monotonic()
    whole = bench.run("--memory", "256MiB", "--slots", "4")
    assert whole.code == 0, whole.err
    life, inputs, outputs = time.monotonic() - begun, state_of(bench.data), {path.name: path.read_bytes() for path in bench.out.rglob("*.txt")}
    print(f"seed {SEED}, a run takes {life:.2f} s")
    for seed in range(SEED, SEED + rounds):
        out = bench.root / f"out{seed}"
        process = bench.start("--memory", "256MiB", "--slots", "4", "--out", str(out))
        time.sleep(random.Random(seed).uniform(0, life))
        with killed_at_end(process, seed):
            nothing_is_left(bench, seed)
        assert state_of(bench.data) == inputs, f"seed {seed}: an input was changed"
        for path in out.rglob("*"):
            if part := re.fullmatch(r"\.(.+)\.\d+\.part", path.name):
                # The file that was being written at the kill (docs/SEMANTICS.md): its name is not
                # that of an output.
                assert part[1] in outputs, f"seed {seed}: {path}"
                continue
            assert path.is_dir() or path.read_bytes() == outputs[path.name], f"seed {seed}: {path} is not whole"


def test_a_killed_run_leaves_nothing_that_the_next_start_does_not_remove(bench: Workbench) -> None:
    killed_runs(bench, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_killed_run_leaves_nothing_at_many_moments(bench: Workbench) -> None:
    killed_runs(bench, SOAK_ROUNDS)


def killed_mounts(binary: Path, root: Path, flags: list[str], rounds: int) -> None:
    """Kills `tidemill mount` with writers at random moments of their load."""
    bench = Workbench(binary, root, "mount")
    print(f"seed {SEED}")
    for seed in range(SEED, SEED + rounds):
        rng = random.Random(seed)
        pool = pools.Pool(binary, root, *flags, points=rng.choice([1, 2]), memory="64MiB")
        writers = start_writers(pool, 3, seed)
        time.sleep(rng.uniform(0, 0.5))
        with killed_at_end(pool.process, seed):
            nothing_is_left(bench, seed)
        for writer in writers:
            # The writers get errors, or SIGBUS in a mapping; the test only checks that they end.
            writer.wait(timeout=GONE_SECONDS)
        # A writer that begins when the mount is gone writes into the directory below it.
        for left in (path for folder in pool.dirs for path in folder.iterdir()):
            shutil.rmtree(left)


def start_writers(pool: pools.Pool, count: int, seed: int) -> list[subprocess.Popen[bytes]]:
    """Starts writers, spread over the mounts of a pool."""
    folders = [pool.dirs[number % len(pool.dirs)] / f"w{number}" for number in range(count)]
    commands = [[sys.executable, str(LOAD), str(folder), str(seed + number)] for number, folder in enumerate(folders)]
    return [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]


@pytest.fixture
def pool_dir(shared_dir: Path) -> Path:
    """A directory for a pool."""
    inner = shared_dir / "crash"
    inner.mkdir()
    return inner


@pytest.mark.usefixtures("root")
def test_a_killed_mount_lets_its_users_go_and_leaves_nothing(binary: Path, pool_dir: Path, io_flags: list[str]) -> None:
    killed_mounts(binary, pool_dir, io_flags, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("root")
def test_a_killed_mount_leaves_nothing_at_many_moments(binary: Path, pool_dir: Path, io_flags: list[str]) -> None:
    killed_mounts(binary, pool_dir, io_flags, SOAK_ROUNDS)


def killed_writers(binary: Path, pool_dir: Path, flags: list[str], rounds: int) -> None:
    """Kills writers at random moments, also while one waits for space; the pool keeps working."""
    print(f"seed {SEED}")
    with pools.pool(binary, pool_dir, *flags, memory="32MiB") as pool:
        (pool.dir / "first").write_bytes(b"first")
        for seed in range(SEED, SEED + rounds):
            rng = random.Random(seed)
            writers = start_writers(pool, 3, seed)
            # This one needs more space than there is: it waits for space when it is killed, if it
            # got so far.
            hungry = ["sh", "-c", 'head -c 100000000 /dev/zero > "$0"', str(pool.dir / "hungry")]
            writers.append(subprocess.Popen(hungry, stderr=subprocess.DEVNULL, start_new_session=True))
            time.sleep(rng.uniform(0, 0.6))
            os.killpg(writers[-1].pid, signal.SIGKILL)
            for writer in writers:
                writer.kill()
            for writer in writers:
                writer.wait(timeout=GONE_SECONDS)
            subprocess.run(f"rm -rf {pool.dir}/w* {pool.dir}/hungry", shell=True, check=True, timeout=GONE_SECONDS)  # noqa: S602 - a glob of this test
            (pool.dir / "again").write_bytes(bytes(8 << 20))
            assert (pool.dir / "again").stat().st_size == 8 << 20, f"seed {seed}: the dead hold space"
            (pool.dir / "again").unlink()
        assert [path.name for path in pool.dir.iterdir()] == ["first"]
        assert (pool.dir / "first").read_bytes() == b"first"


@pytest.mark.usefixtures("root")
def test_a_killed_writer_dies_at_once_and_holds_nothing(binary: Path, pool_dir: Path, io_flags: list[str]) -> None:
    killed_writers(binary, pool_dir, io_flags, ROUNDS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("root")
def test_a_killed_writer_holds_nothing_at_many_moments(binary: Path, pool_dir: Path, io_flags: list[str]) -> None:
    killed_writers(binary, pool_dir, io_flags, SOAK_ROUNDS)
