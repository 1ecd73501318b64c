"""The data directory and the directories that a run writes to are separate.

Standard streams that cannot be written do not stop a run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from workbench import Workbench

pytestmark = pytest.mark.parametrize("storage", ["staging"], indirect=True)

COPY_ALL = r'var a = Data.get(/\.txt$/); var b = Data.define("B", a.length); for (var i = 0; i < a.length; i++) copy({from: a[i], to: b[i]});'


def run_here(bench: Workbench, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs `tidemill run` in the data directory itself, with all default directories."""
    command = [bench.binary, "run", bench.workflow, "--tools", bench.tools, "--memory", "32MiB", *flags]
    return subprocess.run(command, cwd=bench.data, env=bench.environment(), capture_output=True, text=True, timeout=60, check=False)


def test_a_run_does_not_take_the_outputs_of_earlier_ones_for_inputs(bench: Workbench) -> None:
    bench.script(COPY_ALL)
    # `later` is the output directory of the last two runs only. No run may take the default output
    # directory for inputs either.
    runs = [run_here(bench), run_here(bench), run_here(bench, "--out", "later"), run_here(bench, "--out", "later")]
    assert [run.returncode for run in runs] == [0, 0, 0, 0], runs[-1].stderr
    reports = [json.loads(file.read_text()) for file in bench.data.glob("tidemill-report/*/run.json")]
    assert [len(report["tasks"]) for report in reports] == [1, 1, 1, 1]
    bench.script('var a = Data.get("out/B/B_0.txt"); var b = Data.define("C"); copy({from: a, to: b});')
    named = run_here(bench)
    assert named.returncode == 0, named.stderr
    assert (bench.data / "out/C.txt").read_text() == "tide\n"


@pytest.mark.parametrize("out", ["the data directory", "a link to it"])
def test_an_output_that_would_overwrite_an_input_is_refused_with_both_paths(bench: Workbench, out: str) -> None:
    bench.script('var a = Data.get("B"); var b = Data.define("B"); copy({from: a, to: b});'.replace('"B")', '"B.txt")', 1))
    (bench.data / "B.txt").write_text("precious\n")
    folder = bench.data
    if out == "a link to it":
        folder = bench.root / "link"
        folder.symlink_to(bench.data)
    run = bench.run(out=folder)
    assert run.code == 2
    assert str(folder / "B.txt") in run.err
    assert str(bench.data / "B.txt") in run.err
    assert (bench.data / "B.txt").read_text() == "precious\n"
    assert not bench.report.exists()


def test_an_output_that_would_overwrite_the_script_or_the_tools_is_refused(bench: Workbench) -> None:
    for name in ("flow.js", "tools.toml"):
        bench.tools.write_text(f'version = 1\n[tools.copy]\ncommand = ["cp", "{{from}}", "{{to}}"]\ninputs.from = {{}}\noutputs.to = {{ file = "{name}" }}\n')
        bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
        run = bench.run(out=bench.root)
        assert run.code == 2, run.err
        assert "would overwrite the" in run.err


def test_a_report_that_cannot_be_written_is_refused_at_the_start(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); shell({script: "echo on > $1", to: d});')
    for place in ("/proc/none", "/dev/full", str(bench.tools)):
        run = bench.run("--report", place)
        assert (run.code, "--report" in run.err) == (2, True), run.err
        assert not bench.out.exists()


def test_links_to_folders_are_followed_and_names_that_cannot_be_used_are_named(bench: Workbench) -> None:
    (bench.root / "other").mkdir()
    (bench.root / "other" / "far.txt").write_text("far\n")
    (bench.data / "link").symlink_to(bench.root / "other")
    (bench.data / "round").symlink_to(bench.data)
    (Path(os.fsdecode(os.fsencode(bench.data) + b"/caf\xe9.txt"))).write_text("")
    bench.script(COPY_ALL)
    run = bench.run()
    assert run.code == 0, run.err
    assert [member["path"] for member in run.report["data"] if "path" in member] == ["in.txt", "link/far.txt"]
    assert "warning: " in run.err
    assert r"caf\xe9.txt is not an input: its name is not UTF-8 text" in run.err


COMMANDS = {
    "run": ["run", "flow.js", "--memory", "32MiB"],
    "a failing run": ["run", "bad.js", "--memory", "32MiB"],
    "run --json": ["run", "flow.js", "--json", "--memory", "1TiB"],
    "refused": ["run", "none.js"],
    "flow check": ["flow", "check", "flow.js"],
    "flow show": ["flow", "show", "flow.js"],
    "mount": ["mount", "none"],
    "umount": ["umount", "none"],
    "pool start": ["pool", "start", "--memory", "1KiB"],
    "pool stop": ["pool", "stop", "--pool", "none"],
    "pool status": ["pool", "status", "--pool", "none"],
    "node": ["node", "--pool", "none", "--id", "0"],
    "put": ["put", "--pool", "none", "a", "flow.js"],
    "get": ["get", "--pool", "none", "a", "-"],
    "ls": ["ls", "--pool", "none"],
    "exec": ["exec", "--pool", "none", "--strict", "true"],
    "bench": ["bench", "metadata", "--on", "dir:none", "--files", "1", "--workers", "1", "--runs", "1"],
    "flags": ["run", "--nonsense"],
    "help": ["--help"],
}


@pytest.mark.parametrize("stream", ["/dev/full", "a pipe without a reader", "closed"])
def test_standard_error_that_cannot_be_written_ends_no_command(bench: Workbench, stream: str) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    (bench.root / "bad.js").write_text('var d = Data.define("D"); shell({script: "echo no >&2; exit 3", to: d});')
    for name, words in COMMANDS.items():
        command = [str(bench.binary), *words, *(["--data", str(bench.data)] if words[0] in ("run", "flow") else [])]
        said = subprocess.run(command, cwd=bench.root, env=bench.environment(), capture_output=True, timeout=60, check=False)
        silent = run_with(stream, command, bench)
        assert silent == said.returncode, f"{name}: {silent}, and {said.returncode} with a standard error"
        assert silent in (0, 1, 2), name


def run_with(stream: str, command: list[str], bench: Workbench) -> int:
    """The exit code of a command whose standard error is `stream`."""
    if stream == "closed":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
        return subprocess.run(command, cwd=bench.root, env=bench.environment(), stdout=subprocess.DEVNULL, timeout=60, check=False).returncode
    end = os.open("/dev/full", os.O_WRONLY) if stream == "/dev/full" else broken_pipe()
    try:
        return subprocess.run(command, cwd=bench.root, env=bench.environment(), stdout=subprocess.DEVNULL, stderr=end, timeout=60, check=False).returncode
    finally:
        os.close(end)


def broken_pipe() -> int:
    """The write end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_mount_whose_standard_error_cannot_be_written_is_unmounted_as_any_other(bench: Workbench) -> None:
    place = bench.root / "place"
    place.mkdir()
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([bench.binary, "mount", place, "--memory", "32MiB"], env=bench.environment(), stderr=full)
    bench.wait_for(lambda: bench.mounts() or process.poll() is not None)
    if process.poll() is None:
        (place / "file").write_text("tide")
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) in (143, 2)
    assert bench.mounts() == []


def test_what_is_refused_or_failed_has_the_exit_code_of_the_page(bench: Workbench) -> None:
    for words, said in {
        ("umount", "/nonexistent"): "is not a Tidemill mount: it is not there",
        ("umount", bench.data): "an ordinary directory",
        ("run", "f.js", "--memory", "-5GiB"): "`-5GiB` is less than nothing",
        ("mount", "/nonexistent"): "mkdir -p /nonexistent",
        ("flow", "show", "none.js"): "none.js",
    }.items():
        done = bench.tidemill(*words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "mkdir" not in bench.tidemill("umount", "/nonexistent").stderr


def test_equal_failures_are_told_once_and_the_events_have_all(bench: Workbench) -> None:
    bench.script('var d = Data.define("D", 4); for (var i = 0; i < 4; i++)\n  shell({script: "seq 30 >&2; exit " + (i == 3 ? 4 : 3), to: d[i]});')
    run = bench.run("--slots", "1")
    assert run.code == 1
    assert run.err.count("it ended with exit code 3") == 1
    assert "called in line 2; writes D[0]; with script = " in run.err
    assert "2 more tasks of shell failed as task 0 did: 1, 2\n" in run.err
    events = [json.loads(line) for line in bench.run("--json").out.splitlines()]
    assert sum(event["event"] == "task_failed" for event in events) == 4
    assert events[-1]["report"] == str(bench.report / "report.html")
