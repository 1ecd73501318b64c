"""`tidemill run --resume`: a run that was killed goes on, and does not do again what is done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

pytestmark = pytest.mark.usefixtures("storage")

# Each task adds a line to a file outside of the pool. Only the last one waits for the gate.
TOOLS = """
version = 1

[tools.step]
command = ["sh", "-c", "echo {name} >> LOG && cat $1 > $2 && echo {name} >> $2", "sh", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }
config.name = { type = "string" }

[tools.gated]
command = ["sh", "-c", "echo {name} >> LOG && while [ ! -e GATE ]; do sleep 0.02; done; cat $1 > $2 && echo {name} >> $2", "sh", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }
config.name = { type = "string" }

[tools.fork]
command = ["sh", "-c", "echo {name} >> LOG && cat $1 | tee $2 > $3", "sh", "{from}", "{left}", "{right}"]
inputs.from = {}
outputs.left = { extension = ".txt" }
outputs.right = { extension = ".txt" }
config.name = { type = "string" }
"""

# A is read by B and D, B by C; C is an output. D waits for the gate.
FLOW = """
var i = Data.get("in"); var a = Data.define("A"); var b = Data.define("B"); var c = Data.define("C"); var d = Data.define("D");
step({from: i, to: a, name: "a"});
step({from: a, to: b, name: "b"});
step({from: b, to: c, name: "c"});
gated({from: a, to: d, name: "d"});
"""


class Resumable:
    """A workflow that can be killed while it waits, and resumed."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.gate, self.log = bench, bench.root / "gate", bench.root / "log"
        bench.tools.write_text(TOOLS.replace("LOG", str(self.log)).replace("GATE", str(self.gate)))
        bench.script(FLOW)

    def kill_after(self, exported: int, *flags: str) -> None:
        """Starts the run, and kills it after a number of exports."""
        process = self.bench.start("--json", "--slots", "2", *flags)
        for _ in range(exported):
            self.bench.wait_for_event(process, "exported")
        process.kill()
        process.wait()
        if exported:
            self.bench.wait_for(lambda: "d" in self.ran())

    def arguments(self, *flags: str) -> list[str]:
        """The command line that resumes the run."""
        words = self.bench.arguments("--resume", str(self.bench.report), *flags)
        at = words.index("--report")
        return words[:at] + words[at + 2 :]

    def resume(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Resumes the run, and waits for its end."""
        return self.bench.tidemill(*self.arguments(*flags)[1:])

    def ran(self) -> list[str]:
        """Names of the tasks that ran, in order of their starts."""
        return self.log.read_text().split() if self.log.exists() else []

    def report(self) -> dict:
        """The report."""
        return json.loads((self.bench.report / "run.json").read_text())


@pytest.fixture
def resumable(bench: Workbench) -> Iterator[Resumable]:
    """A workflow that can be resumed. What killed runs left is removed by one more run."""
    made = Resumable(bench)
    yield made
    made.gate.touch()
    assert bench.run().code == 0


def test_a_killed_run_goes_on_and_does_only_what_is_needed(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(1)
    assert sorted(resumable.ran()) == ["a", "b", "c", "d"]
    assert not (bench.report / "run.json").exists()
    first = json.loads((bench.report / "journal.jsonl").read_text().splitlines()[0])["run"]
    resumable.log.unlink()
    resumable.gate.touch()
    done = resumable.resume()
    assert done.returncode == 0, done.stderr
    # C is exported, so neither its writer runs again nor B's. D needs A, which went with the pool.
    assert sorted(resumable.ran()) == ["a", "d"]
    assert "2 tasks are not run again; 1 done ones run again" in done.stderr
    assert (bench.out / "C.txt").read_text() == "tide\na\nb\nc\n"
    assert (bench.out / "D.txt").read_text() == "tide\na\nd\n"
    report = resumable.report()
    assert (report["id"], report["outcome"]) == (first, "done")
    assert [task["status"] for task in report["tasks"]] == ["done"] * 4
    members = {member["name"]: member for member in report["data"]}
    assert members["C"]["exported"] == str(bench.out / "C.txt")
    assert members["C"]["hash"] is not None
    ends = {task["id"]: task["end_s"] for task in report["tasks"]}
    assert ends[2] < ends[0] < ends[3], "times count from the first start"
    journal = [json.loads(line) for line in (bench.report / "journal.jsonl").read_text().splitlines()]
    assert [line["event"] for line in journal[1:] if line["event"] in ("resumed", "ended")] == ["resumed", "ended"]
    account = json.loads(bench.tidemill("explain", bench.report, "A", "--json").stdout)
    assert (account["again"], len(account["attempts"]), account["condition"]) == (1, 2, "done")
    assert bench.leftovers() == []


def test_temporaries_that_were_exported_are_read_and_not_made_again(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(3, "--keep")
    resumable.log.unlink()
    resumable.gate.touch()
    done = resumable.resume("--keep")
    assert done.returncode == 0, done.stderr
    assert resumable.ran() == ["d"]
    assert (bench.out / "D.txt").read_text() == "tide\na\nd\n"
    assert (bench.out / "A.txt").read_text() == "tide\na\n", "what a task reads stays as it was"


@pytest.mark.parametrize("harm", ["removed", "changed"])
def test_an_output_that_is_not_as_it_was_written_is_made_again(resumable: Resumable, bench: Workbench, harm: str) -> None:
    resumable.kill_after(1)
    if harm == "removed":
        (bench.out / "C.txt").unlink()
    else:
        (bench.out / "C.txt").write_text("TIDE\na\nb\nc\n")
    resumable.log.unlink()
    resumable.gate.touch()
    done = resumable.resume()
    assert done.returncode == 0, done.stderr
    assert sorted(resumable.ran()) == ["a", "b", "c", "d"]
    assert (bench.out / "C.txt").read_text() == "tide\na\nb\nc\n"


def test_a_run_can_be_killed_and_resumed_again_and_again(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(1)
    for _ in range(2):
        resumable.log.unlink()
        process = subprocess.Popen([*resumable.arguments(), "--json"], cwd=bench.root, env=bench.environment(), stdout=subprocess.PIPE, text=True)
        bench.wait_for(lambda: "d" in resumable.ran())
        process.kill()
        process.wait()
        assert sorted(resumable.ran()) == ["a", "d"]
    resumable.gate.touch()
    assert resumable.resume().returncode == 0
    assert (bench.out / "D.txt").read_text() == "tide\na\nd\n"


def test_a_run_that_is_done_is_resumed_without_a_task_and_a_failed_one_tries_what_failed(resumable: Resumable, bench: Workbench) -> None:
    resumable.gate.touch()
    assert bench.run().code == 0
    resumable.log.unlink()
    done = resumable.resume()
    assert (done.returncode, resumable.ran()) == (0, []), done.stderr
    # Of a failed run only the failed task is left.
    bench.script(
        'var i = Data.get("in"); var a = Data.define("A"); var b = Data.define("B"); step({from: i, to: a, name: "a"}); gated({from: a, to: b, name: "b"});'
    )
    bench.tools.write_text(bench.tools.read_text().replace("while [ ! -e", "[ -e x ] || exit 3; while [ ! -e").replace("[ -e x ]", f"[ -e {bench.root}/well ]"))
    assert bench.run("--keep").code == 1
    resumable.log.unlink()
    (bench.root / "well").touch()
    done = resumable.resume("--keep")
    assert (done.returncode, resumable.ran()) == (0, ["b"]), done.stderr


def test_two_resumes_of_one_run_do_not_mix(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(1)
    resumable.log.unlink()
    first = subprocess.Popen([*resumable.arguments(), "--json"], cwd=bench.root, env=bench.environment(), stdout=subprocess.PIPE, text=True)
    bench.wait_for_event(first, "task_started")
    second = resumable.resume()
    assert second.returncode == 2
    assert f"is resumed already, by process {first.pid}" in second.stderr
    resumable.gate.touch()
    assert first.wait(30) == 0
    assert sorted(resumable.ran()) == ["a", "d"]


def test_a_run_under_way_is_not_resumed(resumable: Resumable, bench: Workbench) -> None:
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    refused = resumable.resume()
    assert refused.returncode == 2
    assert f"goes on, by process {process.pid}" in refused.stderr
    resumable.gate.touch()
    assert process.wait(30) == 0


def test_what_has_changed_since_is_refused_and_named(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(1)
    resumable.gate.touch()
    script, tools = bench.workflow.read_text(), bench.tools.read_text()

    def refused(*flags: str) -> str:
        done = resumable.resume(*flags)
        assert done.returncode == 2, done.stderr
        return done.stderr

    bench.workflow.write_text(script.replace('name: "b"', 'name: "bb"'))
    assert "task 1 step, line 4 of the script, is called otherwise" in refused()
    bench.workflow.write_text(script.replace('step({from: b, to: c, name: "c"});', ""))
    assert "has changed since the run began" in refused()
    bench.workflow.write_text(script)
    bench.tools.write_text(tools.replace("cat $1 > $2 &&", "cat < $1 > $2 &&", 1))
    assert "tool step is defined otherwise: command" in refused()
    bench.tools.write_text(tools)
    assert "the run began with" in refused("--out", str(bench.root / "elsewhere"))
    (bench.data / "in.txt").write_text("ebb\n")
    assert "input in, in.txt, has changed" in refused()
    assert "no run has its journal there" in bench.tidemill("run", bench.workflow, "--resume", "nothing").stderr


def test_the_run_alone_says_what_is_resumed_and_how(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(3, "--keep")
    resumable.log.unlink()
    resumable.gate.touch()
    elsewhere = bench.root / "elsewhere"
    elsewhere.mkdir()
    command = [str(bench.binary), "run", "--resume", os.path.relpath(bench.report, elsewhere), "--json"]
    done = subprocess.run(command, cwd=elsewhere, env=bench.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(event["settled"], event["again"]) for event in events if event["event"] == "resumed"] == [(3, 0)]
    assert resumable.ran() == ["d"]
    assert list(elsewhere.iterdir()) == []
    nothing = bench.tidemill("run")
    assert nothing.returncode == 2
    assert "WORKFLOW" in nothing.stderr


def test_a_comment_in_the_script_is_no_change(resumable: Resumable, bench: Workbench) -> None:
    resumable.kill_after(1)
    resumable.gate.touch()
    bench.workflow.write_text("// a comment\n" + bench.workflow.read_text())
    done = resumable.resume()
    assert done.returncode == 0, done.stderr
    assert Path(bench.out / "D.txt").exists()
