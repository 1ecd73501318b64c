"""Follows docs/FIRST-WORKFLOW.md: saves its files, runs its commands, and compares their output."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from example_runs import ROOT

PAGE = ROOT / "docs" / "FIRST-WORKFLOW.md"
# A code block with a language and, for a file, its name.
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(console: str) -> list[tuple[str, str]]:
    """The commands of a block, with their output."""
    return [
        (command, "".join(printed)) for command, *printed in (part.splitlines(keepends=True) for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:])
    ]


def is_like(printed: str, page: str) -> bool:
    """True if the output matches the page, where `...` matches any text."""
    pattern = ".*".join(re.escape(part) for part in page.split("..."))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def test_the_first_workflow_is_made_and_run_by_the_words_of_its_page(binary: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(runtime)}
    folder = tmp_path
    blocks = BLOCK.findall(PAGE.read_text())
    assert {name for _, name, _ in blocks} == {"mean.py", "tools.toml", "weather.js", ""}
    for language, name, text in blocks:
        if name:
            (folder / name).write_text(text)
            continue
        assert language == "console"
        for command, page in steps(text):
            # The next command starts in the directory in which this one ends.
            script = f'{command}\necho "$?" > {tmp_path}/code; pwd > {tmp_path}/folder\n'
            done = subprocess.run(
                ["sh", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=True
            )
            if not is_like(done.stdout, page):
                pytest.fail(f"{command}prints\n{done.stdout}\nand the page has\n{page}")
            folder = Path((tmp_path / "folder").read_text().strip())


def test_a_page_says_only_what_was_printed() -> None:
    assert is_like("7 tasks on 2 slots; x\ndone\n", "7 tasks on ...\ndone\n")
    assert not is_like("7 tasks on 2 slots\nfailed\n", "7 tasks on ...\ndone\n")
    assert steps("$ a\nb\n$ c\n") == [("a\n", "b\n"), ("c\n", "")]
