"""Errors before a run starts: exit code 2, a message with the location, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from workbench import Workbench

COPY = 'var a = Data.get("in"); var b = Data.define("B"); '

BAD_SCRIPTS = {
    "a syntax error shows file, line, column and the line": (
        "var a = 1;\nvar b = = 2;\n",
        ["flow.js:2:", "var b = = 2;"],
    ),
    "an unknown tool gets the nearest": (COPY + "cpy({from: a, to: b});", ["unknown tool `cpy`", "`copy`"]),
    "an unknown parameter gets the nearest": (COPY + "copy({fron: a, to: b});", ["fron", "`from`", "flow.js:1:"]),
    "a missing parameter is named": (COPY + "copy({from: a});", ["copy", "to"]),
    "a missing data element is told with what was there": ('var a = Data.get("inn");', ["inn", "in.txt"]),
    "too few inputs are counted": ('var a = Data.get("in", 3);', ["in", "3"]),
    "an array used out of bounds is named": (
        'var p = Data.define("P", 2);\ncopy({from: p[2], to: p[0]});',
        ["P", "2", "flow.js:2:"],
    ),
    "a cycle is shown": (
        'var a = Data.define("A"); var b = Data.define("B"); copy({from: a, to: b}); copy({from: b, to: a});',
        ["cycle", "A", "B"],
    ),
    "two writers of one element are named": (
        COPY + "copy({from: a, to: b});\ncopy({from: a, to: b});",
        ["B", "flow.js:2"],
    ),
    "an element that nobody writes is named": ('var a = Data.define("A"); var b = Data.define("B"); copy({from: a, to: b});', ["A"]),
    "an array to a scalar parameter is refused": (
        'var p = Data.define("P", 2); var a = Data.get("in"); copy({from: a, to: p});',
        ["to", "array"],
    ),
    "a tool that is not installed is named": (
        'var d = Data.define("D"); ghost({to: d});',
        ["no-such-program-anywhere", "ghost"],
    ),
    "an endless loop ends": ("while (true) {}", ["step"]),
    "endless memory ends": ("var s = []; while (true) s.push(new Array(100000).fill(7));", ["memory"]),
    "files are out of reach": ('require("fs");', ["require"]),
    "an exception of the script stands at its line": ('\n\nthrow new Error("no tide today");', ["no tide today", "flow.js:3:"]),
}


@pytest.fixture(autouse=True)
def tool_without_program(bench: Workbench) -> None:
    """A tool whose program does not exist."""
    with bench.tools.open("a") as tools:
        tools.write('\n[tools.ghost]\ncommand = ["no-such-program-anywhere", "{to}"]\noutputs.to = {}\n')


@pytest.mark.parametrize("storage", ["mount"])
@pytest.mark.parametrize(("script", "said"), BAD_SCRIPTS.values(), ids=BAD_SCRIPTS)
def test_script(bench: Workbench, script: str, said: list[str]) -> None:
    bench.script(script)
    run = bench.run()
    assert run.code == 2, run.err
    for words in said:
        assert words in run.err
    assert run.report == {}
    assert not bench.out.exists()
    assert bench.mounts() == []


BAD_TOOLS = {
    "unknown key": ('[tools.x]\ncommand = ["true"]\nretires = 1\n', ["retires", "retries"]),
    "unknown parameter in the command": ('[tools.x]\ncommand = ["cat", "{inn}"]\ninputs.in = {}\n', ["inn", "x", "in"]),
    "bad time": ('[tools.x]\ncommand = ["true"]\ntimeout = "soon"\n', ["timeout", "soon"]),
    "missing file": ('[tools.x]\ncommand = ["sh", "{here}/gone.sh"]\nfiles = ["gone.sh"]\n', ["gone.sh"]),
    "no TOML": ("[tools.x\n", ["tools.toml:"]),
    "a redirection": ('[tools.x]\ncommand = ["sort", "{i}", ">", "{o}"]\ninputs.i = {}\noutputs.o = {}\n', ["tools.toml:3:", "no shell", 'stdout = "{o}"']),
}


@pytest.mark.parametrize("storage", ["mount"])
@pytest.mark.parametrize(("text", "said"), BAD_TOOLS.values(), ids=BAD_TOOLS)
def test_tool_file(bench: Workbench, text: str, said: list[str]) -> None:
    bench.script("")
    bench.tools.write_text("version = 1\n" + text)
    run = bench.run()
    assert run.code == 2
    for words in said:
        assert words in run.err


FLAGS = {
    "a variable that the script never declares": (["--set", "m=3"], ["m"]),
    "an assignment without a value": (["--set", "n"], ["--set n"]),
    "a size that is none": (["--memory", "lots"], ["lots"]),
    "a pool too small for anything": (["--memory", "1KiB"], ["--memory", "16 MiB"]),
    "a report folder below a file": (["--report", "/etc/hostname/r"], ["--report", "/etc/hostname"]),
    "a regular expression that is none": (["--export", "/(/"], ["--export", "unclosed"]),
    "no slots": (["--slots", "0"], ["0"]),
    "an unknown flag": (["--keeep"], ["--keep"]),
    "a data folder that is not there": (["--data", "/nowhere/at/all"], ["/nowhere/at/all"]),
    "a tool file that is not there": (["--tools", "/nowhere/tools.toml"], ["/nowhere/tools.toml"]),
    "an output folder that is a file": (["--out", "/etc/hostname"], ["/etc/hostname"]),
}


@pytest.mark.parametrize("storage", ["mount"])
@pytest.mark.parametrize(("flags", "said"), FLAGS.values(), ids=FLAGS)
def test_flags(bench: Workbench, flags: list[str], said: list[str]) -> None:
    bench.script("var n = 1; " + COPY + "copy({from: a, to: b});")
    run = bench.run(*flags)
    assert run.code == 2, run.err
    for words in said:
        assert words in run.err


@pytest.mark.parametrize("storage", ["mount"])
@pytest.mark.parametrize(
    "text",
    [
        '{"tidemill_flow": 2}',
        '{"tidemill_flow": 1, "tasks": [{"tool": "nobody"}]}',
        '{"tidemill_flow": 1, "surprise": true}',
        '{"tidemill_flow": 1, "tools": [',
        '{"tools": [',
        "",
    ],
)
def test_descriptor(bench: Workbench, text: str) -> None:
    flow = bench.root / "flow.json"
    flow.write_text(text)
    done = bench.tidemill("run", flow, "--data", bench.data)
    assert done.returncode == 2
    assert "flow.json" in done.stderr
    assert ("this is not JSON" in done.stderr) == (not text.endswith("}")), done.stderr


@pytest.mark.parametrize("storage", ["mount"])
def test_a_task_larger_than_the_machine_is_refused(bench: Workbench) -> None:
    bench.tools.write_text('version = 1\n[tools.big]\ncommand = ["true"]\ncpus = 3000\n')
    bench.script("big({});")
    run = bench.run("--slots", "2")
    assert run.code == 2
    assert "3000" in run.err


@pytest.mark.parametrize("storage", ["mount"])
def test_a_script_that_is_not_there_is_named(bench: Workbench) -> None:
    done = bench.tidemill("run", "gone.js")
    assert done.returncode == 2
    assert "gone.js" in done.stderr


@pytest.mark.parametrize("storage", ["mount"])
def test_check_says_what_run_would_and_show_lists(bench: Workbench) -> None:
    bench.script(COPY + "copy({from: a, to: b});")
    flags = ["--data", bench.data, "--tools", bench.tools]
    checked = bench.tidemill("flow", "check", bench.workflow, *flags)
    assert checked.returncode == 0, checked.stderr
    assert "1 task" in checked.stdout
    shown = bench.tidemill("flow", "show", bench.workflow, *flags)
    assert "copy(in.txt) -> B" in shown.stdout
    exported = bench.tidemill("flow", "export", bench.workflow, *flags)
    assert json.loads(exported.stdout)["tidemill_flow"] == 1
    bench.script('var d = Data.define("D"); ghost({to: d});')
    assert bench.tidemill("flow", "check", bench.workflow, *flags).returncode == 2


@pytest.mark.parametrize("storage", ["mount"])
def test_a_workflow_of_no_tasks_is_said_to_be_strange(bench: Workbench) -> None:
    bench.script('print("\\x1b[2J");')
    run = bench.run()
    assert run.code == 0
    assert "warning: " in run.err
    assert "0 tasks" in run.err
    assert "\\u{1b}[2J" in run.err
    assert "\x1b" not in run.err
    checked = bench.tidemill("flow", "check", bench.workflow, "--data", bench.data, "--tools", bench.tools)
    assert "warning: " in checked.stderr


@pytest.mark.parametrize("storage", ["mount"])
def test_the_commands_that_are_shown_do_what_the_run_does(bench: Workbench) -> None:
    """Pastes them into a shell, with another directory in place of the pool's."""
    (bench.data / "it's odd.txt").write_text("odd\n")
    bench.script(
        'var a = Data.get("in"), o = Data.get("it\'s odd"), p = Data.define("P", 2), d = Data.define("D"), l = Data.define("L"), m = Data.define("M");'
        "copy({from: o, to: p[1]}); copy({from: a, to: p[0]}); measure({from: p[1], to: m});"
        "join_list({from: p, to: l}); join_dir({from: [p[1], p[0], m], to: d});"
    )
    run = bench.run()
    assert run.code == 0, run.err
    shown = bench.tidemill("flow", "show", bench.workflow, "--data", bench.data, "--tools", bench.tools, "--commands")
    assert shown.returncode == 0, shown.stderr
    script = shown.stdout.replace("POOL=$(mktemp -d)", "POOL=$PWD/pasted")
    subprocess.run(["sh", "-e"], input=script, text=True, cwd=bench.root, check=True)
    for place in ("join_list.3/L.txt", "join_dir.4/D.txt"):
        assert (bench.root / "pasted" / place).read_text() == (bench.out / Path(place).name).read_text()


@pytest.mark.parametrize("storage", ["mount"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link", "nothing"])
def test_an_input_that_is_no_file_is_refused_without_waiting(bench: Workbench, kind: str) -> None:
    """Opening a FIFO would wait for a writer.

    A descriptor names its inputs itself, so they may be any kind of file.
    """
    bench.script(COPY + "copy({from: a, to: b});")
    exported = bench.tidemill("flow", "export", bench.workflow, "--data", bench.data, "--tools", bench.tools)
    odd = bench.data / "odd.txt"
    make = {"fifo": lambda: os.mkfifo(odd), "folder": odd.mkdir, "dangling link": lambda: odd.symlink_to("gone"), "nothing": lambda: None}
    make[kind]()
    flow = bench.root / "flow.json"
    flow.write_text(exported.stdout.replace("in.txt", "odd.txt"))
    done = bench.tidemill("run", flow, "--data", bench.data)
    assert done.returncode == 2
    assert "odd.txt" in done.stderr


@pytest.mark.parametrize("storage", ["mount"])
def test_a_workflow_without_an_end_is_refused(bench: Workbench) -> None:
    done = bench.tidemill("run", "/dev/zero")
    assert done.returncode == 2
    assert "larger than" in done.stderr


@pytest.mark.parametrize("storage", ["mount"])
def test_a_folder_that_is_gone_is_told(bench: Workbench) -> None:
    bench.script(COPY + "copy({from: a, to: b});")
    gone = bench.root / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {bench.binary} run {bench.workflow} --data {bench.data} --tools {bench.tools}"
    done = subprocess.run(["bash", "-c", command], env=bench.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "the current directory no longer exists" in done.stderr
