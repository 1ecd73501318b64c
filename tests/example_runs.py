"""What the tests of the examples share: the binary with results in a folder, the examples' Python, real inputs.

Real inputs are taken from ../shared/data beside the repository, where that folder exists; tests that need them are skipped
elsewhere, and say so.
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
# Ten times what the longest of them takes on two idle processors: whoever gets here hangs.
RUN_SECONDS_MAX = 600


@dataclasses.dataclass(frozen=True)
class Run:
    """A workflow that was run: where its results lie."""

    out: Path
    report: Path

    def tools(self) -> dict[str, int]:
        """How many tasks of each tool were done, by run.json; fails if any was not."""
        counts: dict[str, int] = {}
        for task in json.loads((self.report / "run.json").read_text())["tasks"]:
            assert task["status"] == "done", task
            counts[task["tool"]] = counts.get(task["tool"], 0) + 1
        return counts

    def files(self) -> dict[str, bytes]:
        """Every exported file by its path below --out."""
        return tree(self.out)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclasses.dataclass(frozen=True)
class Tidemill:
    """The binary, with a folder for its results."""

    binary: Path
    folder: Path
    storage: str

    def run(self, example: Path, data: Path, *arguments: object) -> Run:
        """Runs a script with the tools beside it, and wants it to succeed."""
        out, report = self.folder / "out", self.folder / "report"
        places = ["--data", data, "--tools", example.parent / "tools.toml", "--out", out, "--report", report]
        command = [str(word) for word in (self.binary, "run", example, *places, *arguments)]
        ended(command, 0, cwd=self.folder, env=os.environ | {"TIDEMILL_STORAGE": self.storage})
        return Run(out, report)


def ended(command: list[str], exit_code: int, **how: object) -> subprocess.CompletedProcess[str]:
    """Runs a command and wants this exit code; all it printed is in the message if it is another."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX, **how)
    assert done.returncode == exit_code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def python(*arguments: object, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a script of the examples in their environment."""
    interpreter = EXAMPLES / ".venv/bin/python3"
    assert interpreter.exists(), "the environment of the examples is missing: examples/setup.sh makes it"
    return ended([str(word) for word in (interpreter, *arguments)], exit_code)


def check(example: Path, data: Path, out: Path, exit_code: int = 0) -> str:
    """What the check.py of an example says to a result."""
    done = python(example / "check.py", "--data", data, "--out", out, exit_code=exit_code)
    return done.stdout + done.stderr


def real_data(name: str) -> Path:
    """A folder of real inputs; skips the test where it is not there."""
    folder = ROOT.parent / "shared" / "data" / name
    if not folder.is_dir():
        pytest.skip(f"no real inputs at {folder}")
    return folder


def need_program(program: str, package: str) -> None:
    """Skips the test where a program is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: examples/packages.sh {package}")
