"""Common programs print the same lines on the mount and with the preload library as on tmpfs.

Their scripts are in `programs/`; each starts in an empty directory.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pools
import preloaded
import pytest
from example_runs import need_program, real_data

PROGRAMS = Path(__file__).parent / "programs"
SCRIPTS = sorted(path.stem for path in PROGRAMS.glob("*.sh"))
# The loader opens the libraries that a program needs at its start before the preload library is
# there.
MOUNTS_ONLY = {"loader"}
# Scripts that need a program and real inputs: the program, its package, and the inputs.
INPUTS = {"blast": ("blastn", "ncbi-blast+", "blast"), "montage": ("mProjectPP", "montage", "m17")}
SECONDS_MAX = 120


def environment(script: str, inside: Path | str) -> dict[str, str]:
    """Additional environment variables of a script that runs in this directory."""
    more = {}
    if script in INPUTS:
        program, package, data = INPUTS[script]
        need_program(program, package)
        more["DATA"] = str(real_data(data).parent)
    return {"PYTHON": sys.executable, "LC_ALL": "C", "TZ": "UTC", "HOME": str(inside), "TMPDIR": str(inside)} | more


def output_lines(script: str, folder: Path | str, done: subprocess.CompletedProcess[str]) -> list[str]:
    """The output lines of a script, without the directory in which it ran."""
    assert done.returncode == 0, f"{script} at {folder} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return (done.stdout + done.stderr).replace(str(folder), "").splitlines()


def script_output(script: str, folder: Path) -> list[str]:
    """The output of a script in a directory."""
    inside = folder / "work"
    inside.mkdir(mode=0o755)
    command = ["bash", "-eu", str(PROGRAMS / f"{script}.sh")]
    done = subprocess.run(command, cwd=inside, env=os.environ | environment(script, inside), capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    return output_lines(script, folder, done)


def same(wanted: list[str], got: list[str]) -> None:
    """Fails with the lines that differ."""
    differ = list(difflib.unified_diff(wanted, got, "tmpfs", "pool", lineterm="", n=1))
    assert not differ, "\n".join(differ[:60])


@pytest.mark.parametrize("script", SCRIPTS)
def test_programs_print_what_they_print_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, io_flags: list[str], script: str) -> None:
    wanted = script_output(script, tmpfs)
    with pools.pool(binary, shared_dir, "--shared", *io_flags) as pool:
        same(wanted, script_output(script, pool.dir))


@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - MOUNTS_ONLY))
def test_programs_print_by_the_preload_library_what_they_print_on_tmpfs(binary: Path, shared_dir: Path, tmpfs: Path, script: str) -> None:
    wanted = script_output(script, tmpfs)
    with preloaded.pool(binary, shared_dir) as pool:
        inside = f"{preloaded.PREFIX}/work"
        begin = f"mkdir -m 755 {inside} && cd {inside} && exec bash -eu {PROGRAMS / script}.sh"
        same(wanted, output_lines(script, preloaded.PREFIX, pool.run("bash", "-c", begin, env=environment(script, inside))))
