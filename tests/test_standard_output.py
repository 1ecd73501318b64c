"""Output of commands is complete, or the command fails; names are safe for a terminal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from test_pool import Home, home  # noqa: F401 - a fixture

PRINTING = [
    ["--version"],
    ["--help"],
    ["run", "--help"],
    ["flow", "show", "flow.js"],
    ["flow", "show", "--commands", "flow.js"],
    ["flow", "check", "flow.js"],
    ["flow", "export", "flow.js"],
    ["run", "flow.js", "--json"],
    ["pool", "status"],
    ["pool", "status", "--json"],
    ["cat", "a/b"],
    ["get", "a/b", "-"],
    ["ls"],
    ["ls", "-lr"],
    ["stat", "a/b"],
    ["stat", "--json", "a/b"],
    ["locate", "a/b"],
    ["locate", "--json", "a/none"],
]


def test_a_full_disk_behind_standard_output_is_a_failure_of_every_command_and_a_reader_that_left_is_none(home: Home) -> None:  # noqa: F811
    (home.folder / "flow.js").write_text("")
    home.ok("pool", "start", "--memory", "64MiB")
    home.ok("put", "a/b", "-", stdin=b"x" * 200_000)
    for words in PRINTING:
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run([home.binary, *words], env=home.environment, cwd=home.folder, stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1, (words, done)
        assert b"error: standard output could not be written: No space left" in done.stderr, (words, done)
        reader = subprocess.Popen([home.binary, *words], env=home.environment, cwd=home.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.stderr is not None
        said = reader.stderr.read()
        assert reader.wait() == 0, (words, said)
        assert b"error" not in said, (words, said)
    home.ok("pool", "stop")


def test_names_in_a_pool_cannot_command_a_terminal(home: Home) -> None:  # noqa: F811
    home.ok("pool", "start", "--memory", "64MiB")
    name = "x\x1b[2J\u202etxt.exe"
    home.ok("put", f"a/{name}", "-", stdin=b"x")
    for words in (["ls", "a"], ["ls", "-lr"], ["stat", f"a/{name}"], ["locate", f"a/{name}"]):
        assert "x\\u{1b}[2J\\u{202e}txt.exe" in home.ok(*words), words
    assert "a/x\\u{1b}[2J\\u{202e}txt.exe/z: a part of it" in home.fails("put", f"a/{name}/z", "-", code=1)
    assert json.loads(home.ok("stat", "--json", f"a/{name}"))["key"] == f"a/{name}", "and to a program its name is as it is"
    home.ok("pool", "stop")
