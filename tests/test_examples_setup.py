"""The scripts that set up the requirements of the examples, with a fake apt-get."""

from __future__ import annotations

import subprocess
from pathlib import Path

from example_runs import EXAMPLES


def packages(folder: Path, *names: str, uid: int, apt: str | None) -> subprocess.CompletedProcess[str]:
    """Runs packages.sh in a PATH with only `id` and, if given, a fake apt-get."""
    for name, text in (("id", f"echo {uid}"), ("apt-get", apt)):
        if text is not None:
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
    command = ["/bin/sh", str(EXAMPLES / "packages.sh"), *names]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False, timeout=60)


def test_a_package_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blastn").write_text("#!/bin/sh\n")
    (tmp_path / "blastn").chmod(0o755)
    done = packages(tmp_path, "ncbi-blast+", uid=0, apt="exit 9")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_root_gets_the_missing_packages_installed_after_one_update(tmp_path: Path) -> None:
    log, program = tmp_path / "log", tmp_path / "mProjectPP"
    # The fake apt-get installs a program by creating it. It uses only builtins of sh, because no
    # other program exists.
    apt = f'echo "$*" >> {log}; case "$*" in *install*) echo > {program} ;; esac'
    program.write_text("")  # exists, but is not executable yet
    done = packages(tmp_path, "montage", uid=0, apt=apt)
    assert done.returncode == 1, "a command that does not appear is told"
    assert "installed, and yet" in done.stderr
    lines = log.read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["update", "montage"]
    assert " install " in lines[1]


def test_others_are_told_the_package_and_the_command(tmp_path: Path) -> None:
    done = packages(tmp_path, "montage", "ncbi-blast+", uid=1000, apt="exit 9")
    assert done.returncode == 1
    assert "sudo apt-get install montage ncbi-blast+" in done.stderr


def test_a_system_without_apt_is_told_what_is_missing(tmp_path: Path) -> None:
    done = packages(tmp_path, "montage", uid=0, apt=None)
    assert done.returncode == 1
    assert "missing: montage. This system has no apt-get" in done.stderr


def test_a_failing_update_is_told(tmp_path: Path) -> None:
    done = packages(tmp_path, "montage", uid=0, apt="exit 100")
    assert done.returncode == 1
    assert "apt-get update failed" in done.stderr
