"""docs/CLI.md and --help must agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "CLI.md"
COMMANDS = {
    "run": "## tidemill run",
    "explain": "## tidemill explain",
    "top": "## tidemill top",
    "mount": "## tidemill mount",
    "umount": "## tidemill umount",
    "exec": "## tidemill exec",
    "pool start": "## tidemill pool start",
    "pool stop": "## tidemill pool stop",
    "pool status": "## tidemill pool status",
    "node": "## tidemill node",
}
# Commands that share a section.
TOGETHER = {
    "## tidemill put, get, cat": ["put", "get", "cat", "ls", "cp", "rm", "stat", "locate"],
    "## tidemill flow": ["flow show", "flow check", "flow export"],
    "## tidemill bench": ["bench filecopy", "bench locality", "bench metadata", "bench objects"],
}


def section(title: str) -> str:
    """The section of the page with this heading."""
    text = PAGE.read_text()
    start = text.index(title)
    end = text.find("\n## ", start + 1)
    return text[start:end]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_stands_on_the_page_and_no_other(binary: Path, command: str) -> None:
    written = set(re.findall(r"--[a-z][a-z-]+", section(COMMANDS[command])))
    assert flags(binary, *command.split()) == written


def flags(binary: Path, *command: str) -> set[str]:
    """The flags in the help of a command."""
    help_text = subprocess.run([binary, *command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w`])--[a-z][a-z-]+", help_text)) - {"--help"}


@pytest.mark.parametrize("title", TOGETHER)
def test_every_flag_of_commands_that_share_a_section_stands_there_and_no_other(binary: Path, title: str) -> None:
    written = set(re.findall(r"--[a-z][a-z-]+", section(title)))
    assert set().union(*(flags(binary, *command.split()) for command in TOGETHER[title])) == written


def test_the_exit_codes_stand_in_the_help(binary: Path) -> None:
    help_text = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    for code in ("0 done", "1 a task failed", "2 refused", "129/130/143"):
        assert code in help_text


def test_the_version_is_told(binary: Path) -> None:
    told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(r"tidemill \d+\.\d+\.\d+\n", told)
