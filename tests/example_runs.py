"""Shared parts of the tests of the examples: the binary, the examples' Python, real inputs.

Real inputs are in ../shared/data beside the repository, if that directory exists. Otherwise the
tests that need them are skipped, with a message.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
# Ten times the duration of the longest run on two idle processors: a longer run hangs.
RUN_SECONDS_MAX = 600


@dataclasses.dataclass(frozen=True)
class Run:
    """A workflow run: the paths of its results."""

    out: Path
    report: Path

    def tools(self) -> dict[str, int]:
        """The number of finished tasks by tool, from run.json; fails if any task was not done."""
        counts: dict[str, int] = {}
        for task in json.loads((self.report / "run.json").read_text())["tasks"]:
            assert task["status"] == "done", task
            counts[task["tool"]] = counts.get(task["tool"], 0) + 1
        return counts

    def files(self) -> dict[str, bytes]:
        """Every exported file by its path below --out."""
        return tree(self.out)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a directory, by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclasses.dataclass(frozen=True)
class Tidemill:
    """The binary, with a directory for its results."""

    binary: Path
    folder: Path
    storage: str

    def run(self, example: Path, data: Path, *arguments: object) -> Run:
        """Runs a script with the tools beside it; it must succeed."""
        out, report = self.folder / "out", self.folder / "report"
        places = ["--data", data, "--tools", example.parent / "tools.toml", "--out", out, "--report", report]
        command = [str(word) for word in (self.binary, "run", example, *places, *arguments)]
        ended(command, 0, cwd=self.folder, env=os.environ | {"TIDEMILL_STORAGE": self.storage})
        return Run(out, report)


def ended(command: list[str], exit_code: int, **how: object) -> subprocess.CompletedProcess[str]:
    """Runs a command, which must end with `exit_code`; otherwise the failure has its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX, **how)
    assert done.returncode == exit_code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def python(*arguments: object, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a script of the examples in their environment."""
    interpreter = EXAMPLES / ".venv/bin/python3"
    assert interpreter.exists(), "the environment of the examples is missing: examples/setup.sh makes it"
    return ended([str(word) for word in (interpreter, *arguments)], exit_code)


def check(example: Path, data: Path, out: Path, exit_code: int = 0) -> str:
    """The output of an example's check.py for a result."""
    done = python(example / "check.py", "--data", data, "--out", out, exit_code=exit_code)
    return done.stdout + done.stderr


def real_data(name: str) -> Path:
    """A directory of real inputs; skips the test if it does not exist."""
    folder = ROOT.parent / "shared" / "data" / name
    if not folder.is_dir():
        pytest.skip(f"no real inputs at {folder}")
    return folder


def need_program(program: str, package: str) -> None:
    """Skips the test if a program is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: examples/packages.sh {package}")
