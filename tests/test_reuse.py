"""`tidemill run --reuse`: results of an earlier run stand in for tasks that would do the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from workbench import Run, Workbench

pytestmark = pytest.mark.usefixtures("storage")

# Each task adds a line to a file outside of the pool.
TOOLS = """
version = 1

[tools.step]
command = ["sh", "-c", "echo {name} >> LOG && cat $1 > $2 && echo {name} >> $2", "sh", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }
config.name = { type = "string" }

[tools.last]
command = ["sh", "-c", "echo {name} >> LOG && cat $1 > $2", "sh", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }
config.name = { type = "string" }
"""

FLOW = """
var i = Data.get("in"); var a = Data.define("A"); var b = Data.define("B"); var c = Data.define("C");
step({from: i, to: a, name: "a"});
step({from: a, to: b, name: "b"});
last({from: a, to: c, name: "c"});
"""


class Repeated:
    """A run that has ended, and others that may take its results."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.log, self.second = bench, bench.root / "log", bench.root / "second"
        bench.tools.write_text(TOOLS.replace("LOG", str(self.log)))
        bench.script(FLOW)

    def first(self, *flags: str) -> Run:
        """The first run."""
        done = self.bench.run(*flags)
        assert done.code == 0, done.err
        return done

    def reuse(self, *flags: str, out: Path | None = None) -> list[str]:
        """Runs the workflow again with the results of the first run; the tasks that ran."""
        self.log.unlink()
        words = self.bench.arguments("--reuse", str(self.bench.report), "--report", str(self.second), *flags, out=out or self.second / "out")
        done = self.bench.tidemill(*words[1:])
        assert done.returncode == 0, done.stderr
        return sorted(self.log.read_text().split()) if self.log.exists() else []

    def report(self) -> dict:
        """The report of the second run."""
        return json.loads((self.second / "run.json").read_text())


@pytest.fixture
def repeated(bench: Workbench) -> Repeated:
    """A workflow whose results are reused."""
    return Repeated(bench)


def test_a_run_like_an_earlier_one_does_nothing_and_has_all_outputs(repeated: Repeated, bench: Workbench) -> None:
    first = repeated.first()
    assert repeated.reuse() == []
    for name, text in (("B.txt", "tide\na\nb\n"), ("C.txt", "tide\na\n")):
        assert (repeated.second / "out" / name).read_text() == text
    report = repeated.report()
    assert [(task["status"], task["reused"], task["start_s"]) for task in report["tasks"]] == [("done", first.report["id"], None)] * 3
    members = {member["name"]: member for member in report["data"]}
    assert members["B"]["exported"] == str(repeated.second / "out" / "B.txt")
    assert members["B"]["hash"] == next(member["hash"] for member in first.report["data"] if member["name"] == "B")
    assert "stand in for it" in bench.tidemill("explain", repeated.second, "B").stdout


def test_only_what_differs_runs_and_what_it_needs(repeated: Repeated, bench: Workbench) -> None:
    repeated.first()
    bench.script(FLOW.replace('name: "c"', 'name: "other"'))
    # A was not exported, so its writer runs again; B is taken.
    assert repeated.reuse() == ["a", "other"]
    assert (repeated.second / "out" / "B.txt").read_text() == "tide\na\nb\n"


def test_exported_temporaries_are_read_by_tasks_that_run(repeated: Repeated, bench: Workbench) -> None:
    repeated.first("--keep")
    bench.script(FLOW.replace('name: "c"', 'name: "other"') + 'var d = Data.define("D"); step({from: b, to: d, name: "d"});')
    assert repeated.reuse() == ["d", "other"]
    assert (repeated.second / "out" / "D.txt").read_text() == "tide\na\nb\nd\n"
    reused = [task["id"] for task in repeated.report()["tasks"] if task.get("reused")]
    assert reused == [0, 1]


def test_outputs_that_are_in_place_stay_there(repeated: Repeated, bench: Workbench) -> None:
    repeated.first()
    before = (bench.out / "B.txt").stat()
    assert repeated.reuse(out=bench.out) == []
    assert (bench.out / "B.txt").stat().st_ino == before.st_ino
    assert next(member["exported"] for member in repeated.report()["data"] if member["name"] == "B") == str(bench.out / "B.txt")
    # What was reused can be reused.
    assert repeated.bench.tidemill("explain", repeated.second, 0).returncode == 0


def test_contents_count_and_not_times(repeated: Repeated, bench: Workbench) -> None:
    repeated.first()
    os.utime(bench.data / "in.txt", (1, 1))
    assert repeated.reuse() == []
    (bench.data / "in.txt").write_text("ebb\n")
    repeated.log.touch()
    assert repeated.reuse() == ["a", "b", "c"]
    assert (repeated.second / "out" / "B.txt").read_text() == "ebb\na\nb\n"


def test_another_tool_and_an_output_that_was_changed_count(repeated: Repeated, bench: Workbench) -> None:
    repeated.first("--keep")
    tools = bench.tools.read_text()
    bench.tools.write_text(tools.replace("[tools.last]", "[tools.last]\nretries = 1"))
    assert repeated.reuse() == ["c"]
    bench.tools.write_text(tools)
    (bench.out / "B.txt").write_text("TIDE\na\nb\n")
    assert repeated.reuse() == ["b"]
    assert (repeated.second / "out" / "B.txt").read_text() == "tide\na\nb\n"


def test_a_run_that_was_killed_is_not_reused_and_flags_that_exclude_each_other_are_refused(repeated: Repeated, bench: Workbench) -> None:
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    process.kill()
    process.wait()
    refused = bench.tidemill(*bench.arguments("--reuse", str(bench.report), "--report", str(repeated.second))[1:])
    assert refused.returncode == 2
    assert "go on with it" in refused.stderr
    assert bench.tidemill("run", bench.workflow, "--reuse", bench.report, "--resume", bench.report).returncode == 2
    assert bench.run().code == 0
