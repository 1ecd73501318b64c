"""Random calls have the same outcomes on the mount, and with the preload library, as on tmpfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
from pools import Mount
from preloaded import PREFIX

PROGRAM = Path(__file__).parent / "random_calls.py"
SEEDS = range(int(os.environ.get("RANDOM_SEED", "1")), int(os.environ.get("RANDOM_SEED", "1")) + int(os.environ.get("RANDOM_SEEDS", "20")))
STEPS = 800
USER = 1000
SECONDS_MAX = 100


def run_steps(folder: Path | str, seed: int, *before: str, python: str = sys.executable, **how: object) -> list[str]:
    """The output of `random_calls.py` in an empty directory."""
    # The program is passed as text: an ordinary user may have no access to its file.
    command = [*before, python, "-c", PROGRAM.read_text(), str(folder), str(seed), str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, **how)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    return done.stdout.splitlines()


def check_equal(wanted: list[str], got: list[str], seed: int) -> None:
    """Fails with the first step that differs."""
    for want, came in zip(wanted, got, strict=True):
        assert came == want, f"seed {seed}: `random_calls.py FOLDER {seed} {STEPS}`"


@pytest.mark.usefixtures("root")
def test_random_calls_end_by_the_preload_library_as_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path) -> None:
    with preloaded.pool(binary, shared_dir) as pool:
        for seed in SEEDS:
            (tmpfs / str(seed)).mkdir()
            pool.ok("mkdir", f"{PREFIX}/{seed}")
            got = run_steps(f"{PREFIX}/{seed}", seed, *pool.command()[:3], env=pool.environment)
            check_equal(run_steps(tmpfs / str(seed), seed), got, seed)


@pytest.mark.usefixtures("root")
def test_random_calls_of_an_ordinary_user_end_by_the_preload_library_as_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python3 that every user may run")
    with preloaded.pool_of_user(binary, shared_dir, USER) as pool:
        for seed in SEEDS:
            (tmpfs / str(seed)).mkdir()
            os.chown(tmpfs / str(seed), USER, USER)
            pool.ok("mkdir", f"{PREFIX}/{seed}")
            got = run_steps(f"{PREFIX}/{seed}", seed, *pool.command()[:3], python=python, env=pool.environment, **pool.run_as)
            check_equal(run_steps(tmpfs / str(seed), seed, python=python, **pool.run_as), got, seed)


@pytest.mark.usefixtures("root")
def test_random_calls_end_on_a_mount_as_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, io_flags: list[str]) -> None:
    mount = Mount(binary, shared_dir, [shared_dir / "pool"], "--memory", "512MiB", *io_flags)
    try:
        for seed in SEEDS:
            (tmpfs / str(seed)).mkdir()
            (mount.dir / str(seed)).mkdir()
            check_equal(run_steps(tmpfs / str(seed), seed), run_steps(mount.dir / str(seed), seed), seed)
    finally:
        mount.close()
