"""The journal of a run: what `explain` and `top` tell from it, while the run goes on and after."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

pytestmark = pytest.mark.usefixtures("storage")

# The first task waits for the gate; the second has no slot meanwhile; the last reads both.
GATED = """
var d = Data.define("D", 2); var e = Data.define("E");
shell({script: 'while [ ! -e GATE ]; do sleep 0.02; done; echo one > "$1"', to: d[0]});
shell({script: 'echo two > "$1"', to: d[1]});
join_args({from: d, to: e});
"""


@pytest.fixture
def gate(bench: Workbench) -> Iterator[Path]:
    """A file outside of the pool for which the first task waits."""
    path = bench.root / "gate"
    bench.script(GATED.replace("GATE", str(path)))
    yield path
    path.touch()


def records(bench: Workbench) -> list[dict]:
    """The lines of the journal."""
    return [json.loads(line) for line in (bench.report / "journal.jsonl").read_text().splitlines()]


def explain(bench: Workbench, task: object) -> dict:
    """The account of a task."""
    done = bench.tidemill("explain", bench.report, task, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def started(bench: Workbench, *flags: str) -> subprocess.Popen[str]:
    """A run of which one task has started."""
    shutil.rmtree(bench.report, ignore_errors=True)
    process = bench.start("--json", *flags)
    bench.wait_for_event(process, "task_started")
    return process


def test_a_journal_tells_each_step_of_a_run_in_order(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); var c = Data.define("C"); copy({from: a, to: b}); copy({from: b, to: c});')
    assert bench.run().code == 0
    header, *rest = records(bench)
    assert (header["tidemill_journal"], header["workflow"]["tasks"], header["workflow"]["data"]) == (1, 2, 3)
    assert header["run"] == json.loads((bench.report / "run.json").read_text())["id"]
    steps = [(record["event"], record.get("task", record.get("data"))) for record in rest if record["event"] not in ("pool", "program")]
    before = [("input", 0), ("worker_joined", None), ("started", 0), ("done", 0), ("started", 1), ("done", 1)]
    assert steps[: len(before)] == before
    assert {("dropped", 1), ("exported", 2)} <= set(steps)
    assert steps[-1] == ("ended", None)
    assert [record["t"] for record in rest] == sorted(record["t"] for record in rest)
    exported = next(record for record in rest if record["event"] == "exported")
    assert exported["path"] == str(bench.out / "C.txt")
    # The descriptor beside it is the workflow.
    again = bench.tidemill("flow", "check", bench.report / "flow.json", "--data", bench.data)
    assert again.returncode == 0, again.stderr


def test_explain_tells_why_a_task_ran_when_it_did_and_how_it_failed(bench: Workbench) -> None:
    bench.script(
        'var d = Data.define("D"); var c = Data.define("C"); var x = Data.define("X");flaky({to: d}); copy({from: d, to: c}); shell({script: "exit 3", to: x});'
    )
    assert bench.run().code == 1
    first, second, third = (explain(bench, task) for task in ("D", 1, "X"))
    assert first["condition"] == "done"
    assert [attempt.get("failure") is None for attempt in first["attempts"]] == [False, False, True]
    assert (first["ready_s"], first.get("ready_by")) == (0, None)
    assert (second["ready_by"]["data"], second["ready_by"]["task"]) == ("D", 0)
    assert second["ready_s"] == first["attempts"][-1]["ended_s"]
    assert second["attempts"][0]["started_s"] >= second["ready_s"]
    assert second["wrote"][0]["exported"] == str(bench.out / "C.txt")
    assert (third["condition"], third["run_condition"]) == ("failed", "ended")
    assert "exit code 3" in third["failure"]
    text = bench.tidemill("explain", bench.report, "C").stdout
    assert "task 1 copy(D) -> C: done" in text
    assert "task 0 flaky had written D" in text
    assert "because" in text


def test_explain_tells_what_a_task_of_a_run_under_way_waits_for(bench: Workbench, gate: Path) -> None:
    process = started(bench, "--slots", "1")
    running, ready, waiting = (explain(bench, task) for task in ("D[0]", "D[1]", "E"))
    assert (running["condition"], running["run_condition"]) == ("running", "live")
    assert running["attempts"][0]["slot"] == 0
    assert (ready["condition"], ready["ahead"], ready["slots"]) == ("ready", 0, [1, 1])
    assert (waiting["condition"], waiting["missing_count"]) == ("waiting", 2)
    assert [(part["data"], part["task"], part["condition"]) for part in waiting["missing"]] == [("D[0]", 0, "running"), ("D[1]", 1, "ready")]
    text = bench.tidemill("explain", bench.report, "E").stdout
    assert "D[0], written by task 0 shell, which runs on" in text
    gate.touch()
    assert process.wait(30) == 0
    assert explain(bench, "E")["condition"] == "done"


def test_explain_tells_that_a_run_was_killed(bench: Workbench, gate: Path) -> None:
    assert not gate.exists()
    process = started(bench, "--slots", "1")
    process.kill()
    process.wait()
    account = explain(bench, 0)
    assert (account["run_condition"], account["condition"]) == ("killed", "running")
    assert "ran when the run was killed" in bench.tidemill("explain", bench.report, 0).stdout
    assert "was killed" in bench.tidemill("top", bench.report).stdout
    # The next run removes what the killed one left.
    gate.touch()
    assert bench.run().code == 0


def test_top_shows_slots_tools_and_counts_of_a_run_under_way(bench: Workbench, gate: Path) -> None:
    process = started(bench, "--slots", "2")
    bench.wait_for_event(process, "task_done")
    lines = bench.tidemill("top", bench.report, "--once").stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "1 of 3 tasks done, 1 running, 0 ready, 1 waiting, 0 failed" in lines
    assert any("goes on" in line for line in lines)
    assert any("1 tasks in 2 slots" in line for line in lines)
    assert any("task 0 shell -> D[0]" in line for line in lines)
    assert [line.split()[1:6] for line in lines if line.startswith("shell ")] == [["1", "1", "0", "0", "0"]]
    gate.touch()
    assert process.wait(30) == 0
    assert "3 of 3 tasks done" in bench.tidemill("top", bench.report, "--once").stdout


def test_the_newest_run_that_goes_on_is_shown_and_found_by_its_name(bench: Workbench, gate: Path) -> None:
    none = bench.tidemill("top")
    assert none.returncode == 2
    assert "no run goes on" in none.stderr
    reports = bench.root / "tidemill-report"
    process = started(bench, "--report", str(reports / "mine"))
    assert "tasks done" in bench.tidemill("top").stdout
    assert "task 0" in bench.tidemill("explain", "mine", 0).stdout
    wrong = bench.tidemill("explain", "mime", 0)
    assert wrong.returncode == 2
    assert "mine" in wrong.stderr
    gate.touch()
    assert process.wait(30) == 0
    assert bench.tidemill("top").returncode == 2


def test_what_cannot_be_explained_is_said_with_the_nearest_name(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("Bread", 2); copy({from: a, to: b[0]}); copy({from: a, to: b[1]});')
    assert bench.run().code == 0
    for task, said in (("Braed", "Bread"), ("Bread", "Bread[0]"), ("Bread[7]", "Bread[2]"), ("9", "the last one is 1"), ("in", "an input")):
        done = bench.tidemill("explain", bench.report, task)
        assert done.returncode == 2
        assert said in done.stderr, done.stderr


def test_a_damaged_journal_is_refused_with_its_line_and_a_torn_end_is_not(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    assert bench.run().code == 0
    journal = bench.report / "journal.jsonl"
    whole = journal.read_text()
    journal.write_text(whole[:-9])
    assert bench.tidemill("explain", bench.report, 0).returncode == 0
    lines = whole.splitlines()
    journal.write_text("\n".join([*lines[:2], "{nonsense", *lines[2:]]) + "\n")
    refused = bench.tidemill("explain", bench.report, 0)
    assert refused.returncode == 2
    assert "line 3 is damaged" in refused.stderr


def test_of_two_runs_with_one_report_directory_the_first_has_the_journal(bench: Workbench, gate: Path) -> None:
    process = started(bench)
    run = records(bench)[0]["run"]
    bench.script('var d = Data.define("Other"); shell({script: "echo other > $1", to: d});')
    other = bench.tidemill(*bench.arguments()[1:])
    assert other.returncode == 0, other.stderr
    assert f"run {run} writes it, by process {process.pid}" in other.stderr
    gate.touch()
    assert process.wait(30) == 0
    assert (records(bench)[0]["run"], records(bench)[-1]["outcome"]) == (run, "done")
    assert explain(bench, "E")["condition"] == "done"
