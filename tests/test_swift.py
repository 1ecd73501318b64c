"""`tidemill run W.swift`: scripts of Swift/T on one machine, their files, errors and results that stand in."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from workbench import Run, Workbench

pytestmark = pytest.mark.usefixtures("storage")

PIPELINE = """
import files;
import io;
import string;

app (file o) sort(file i) { "sort" i @stdout=o }
app (file o) number(file i, int start) { "nl" "-v" start i @stdout=o }
app (file o) join(file all[]) { "cat" all @stdout=o }
app (file o, file e) both(string words[]) { "sh" "-c" "echo $@; echo err >&2" "x" words @stdout=o @stderr=e }

file raw = input("letters.txt");
file sorted<"deep/sorted.txt"> = sort(raw);
file parts[];
foreach i in [0:3] { parts[i] = number(sorted, i * 10); }
file all<"all.txt"> = join(parts);
printf("%i lines\\n", size(file_lines(all)));
file note<"note.txt"> = write("hello " + argv("name", "nobody"));
file copy<"copy.txt"> = sort(note);
file o<"o.txt">; file e<"e.txt">;
(o, e) = both(["one", "two words"]);
"""


@pytest.fixture
def swift(bench: Workbench) -> Workbench:
    """A workbench whose script is in Swift."""
    bench.workflow = bench.root / "flow.swift"
    bench.tools.write_text('version = 1\n[tools.unused]\ncommand = ["true"]\n')
    (bench.data / "letters.txt").write_text("b\na\nc\n")
    return bench


def outputs(bench: Workbench) -> dict[str, str]:
    """Every exported file by its path."""
    return {str(path.relative_to(bench.out)): path.read_text() for path in bench.out.rglob("*") if path.is_file()}


def run(bench: Workbench, text: str, *flags: str) -> Run:
    """Runs a script."""
    bench.script(text)
    return bench.run(*flags)


def test_a_script_runs_programs_on_files_and_mapped_files_appear_below_out(swift: Workbench) -> None:
    done = run(swift, PIPELINE, "--", "--name=tide")
    assert done.code == 0, done.err
    assert done.out == "12 lines\n"
    found = outputs(swift)
    assert sorted(found) == ["all.txt", "copy.txt", "deep/sorted.txt", "e.txt", "note.txt", "o.txt"]
    assert (found["deep/sorted.txt"], found["copy.txt"]) == ("a\nb\nc\n", "hello tide\n")
    assert (found["o.txt"], found["e.txt"]) == ("one two words\n", "err\n")
    assert found["all.txt"].splitlines()[3].split() == ["10", "a"]
    by_name = {member["name"]: member for member in done.report["data"]}
    assert all(member["dropped_s"] is not None for name, member in by_name.items() if name.startswith("parts"))
    assert {task["line"] for task in done.report["tasks"]} == {12, 14, 15, 18, 20}
    assert swift.leftovers() == []


def test_temporaries_are_dropped_while_the_script_goes_on(swift: Workbench) -> None:
    text = """
        app (file o) make(int i) { "sh" "-c" "head -c 8000000 /dev/zero > $0; echo $1 >> $0" o i }
        app (file o) last(file i) { "tail" "-n" "1" i @stdout=o }
        foreach i in [1:30] { file big = make(i); file f<"o/" + i + ".txt"> = last(big); }
    """
    done = run(swift, text, "--memory", "96MiB", "--slots", "2")
    assert done.code == 0, done.err
    assert len(outputs(swift)) == 30, "the pool has no space for all temporaries at a time"
    big = [member for member in done.report["data"] if member["name"].startswith("big")]
    assert len(big) == 30
    assert all(member["dropped_s"] is not None for member in big)


def test_the_text_of_a_result_decides_how_the_script_goes_on(swift: Workbench) -> None:
    text = """
        import files; import string; import io;
        app (file o) step(int n) { "sh" "-c" "echo $(($0 * 2))" n @stdout=o }
        (int result) double(int n) { result = toint(trim(read(step(n)))); }
        int x = double(4);
        if (x > 7) { printf("%i\\n", double(x)); } else { printf("small\\n"); }
    """
    done = run(swift, text)
    assert (done.code, done.out) == (0, "16\n"), done.err
    assert len(done.report["tasks"]) == 2


def test_a_failed_program_is_told_with_its_output_and_the_calls_that_led_there(swift: Workbench) -> None:
    text = """
        app (file o) boom(int i) { "sh" "-c" "echo oh no >&2; exit 3" "x" i @stdout=o }
        app (file o) fine(int i) { "echo" i @stdout=o }
        (file o) wrap(int i) { o = boom(i * 2); }
        file a<"a.txt"> = wrap(4);
        file b<"b.txt"> = fine(1);
        file c<"c.txt"> = sorted(a);
        app (file o) sorted(file i) { "sort" i @stdout=o }
    """
    done = run(swift, text)
    assert done.code == 1
    assert "oh no" in done.err
    assert "exit code 3" in done.err
    assert "flow.swift:4 has failed; called as `wrap` in" in done.err
    assert outputs(swift) == {"b.txt": "1\n"}, "what does not depend on it is finished"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(int o) f(int a) { o = 7 %/ a; }\ntrace(f(0));", ["flow.swift:1:", "division by zero", "called as `f` in"]),
        ('file a = input("none.txt");\napp (file o) c(file i) { "cat" i @stdout=o }\nfile b<"b"> = c(a);', ["flow.swift:1:", "none.txt", "data directory"]),
        ('app (file o) c(int i) { "no-such-program" i @stdout=o }\nfile b<"b"> = c(3);', ["line 2:", "tool c", "no-such-program"]),
        ('app (file o) c(int i) { "echo" i @stdout=o }\nforeach i in [0:1] { file b<"same"> = c(i); }', ["flow.swift:2:", "two files are mapped to `same`"]),
        ('app (file o) c(int i) { "echo" i @stdout=o }\nfile b<"../b"> = c(1);', ["flow.swift:2:", "leads out of the directory of outputs"]),
        ('import assert;\nassert(1 > 2, "one is small");', ["flow.swift:2:", "one is small"]),
        ('import io;\nprintf("before\\n") => trace(1 %/ 0);', ["flow.swift:2:", "division by zero"]),
        ("int A[]; A[0] = 1;\ntrace(A[3]);", ["flow.swift:2:", "has no member [3]"]),
        ("int A[];\nA[0] = A[1];\nA[1] = A[0];\ntrace(A[0]);", ["nobody gives these variables their values", "flow.swift:4: waits for a value: trace(A[0]);"]),
    ],
)
def test_an_error_while_the_script_runs_names_its_line_and_fails_the_run(swift: Workbench, text: str, told: list[str]) -> None:
    done = run(swift, text)
    assert done.code == 1, done.err
    for part in told:
        assert part in done.err, done.err
    assert "error: " in done.err
    assert done.out == ("before\n" if "before" in text else "")
    assert done.report["outcome"] == "failed"
    assert swift.leftovers() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('int x = "a";', "flow.swift:1:9: "),
        ("int x;\ntrace(x);", "flow.swift:2:7: `x` is read here, but never assigned"),
        ("import nomodule;", "flow.swift:1:1: there is no module `nomodule`"),
        ("trace(1;", "flow.swift:1:8: "),
    ],
)
def test_a_script_that_is_wrong_is_refused_before_anything_runs(swift: Workbench, text: str, told: str) -> None:
    done = run(swift, text)
    assert done.code == 2
    assert told in done.err, done.err
    assert not swift.report.exists()


def test_options_of_other_languages_are_refused_with_what_to_use_instead(swift: Workbench) -> None:
    done = run(swift, "trace(1);", "--set", "n=3")
    assert done.code == 2
    assert "pass an argument: -- --n=3" in done.err
    swift.workflow = swift.root / "flow.js"
    done = run(swift, "var n = 1;", "--", "a")
    assert done.code == 2
    assert "only a Swift script" in done.err
    assert swift.tidemill("flow", "export", swift.root / "flow.swift").returncode == 2


def test_a_tool_file_gives_an_app_retries_and_a_time_out(swift: Workbench) -> None:
    command = 'command = ["sh"]'
    swift.tools.write_text(f'version = 1\n[tools.flaky]\n{command}\nretries = 2\n[tools.slow]\n{command}\ntimeout = "300ms"\n[tools.unused]\n{command}\n')
    text = """
        app (file o) flaky() { "sh" "-c" "test $TIDEMILL_ATTEMPT -ge 3 && echo attempt $TIDEMILL_ATTEMPT > $0" o }
        app (void v) slow() { "sleep" "60" }
        file f<"f.txt"> = flaky();
        slow();
    """
    done = run(swift, text)
    assert done.code == 1
    assert outputs(swift) == {"f.txt": "attempt 3\n"}
    assert "time-out of 0.3 s" in done.err
    assert "tool `unused` of the tool file changes nothing" in done.err


def test_programs_inputs_and_patterns_go_by_the_data_directory(swift: Workbench) -> None:
    tool = swift.data / "bin" / "count"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nwc -l < $1 > $2\n")
    tool.chmod(0o755)
    (swift.data / "m10.txt").write_text("x\n" * 10)
    (swift.data / "m2.txt").write_text("x\n" * 2)
    text = """
        import files; import io;
        app (file o) count(file i) { "./bin/count" i o }
        foreach f, i in glob("m*.txt") { file c<"c" + i> = count(f); printf("%s\\n", filename(f)); }
        printf("%s %s\\n", repr(file_exists("m2.txt")), repr(file_exists("m3.txt")));
    """
    done = run(swift, text)
    assert done.code == 0, done.err
    assert sorted(done.out.split()) == sorted(["m2.txt", "m10.txt", "1", "0"])
    assert {name: text.strip() for name, text in outputs(swift).items()} == {"c0": "2", "c1": "10"}


def test_included_and_imported_files_are_found_by_their_paths_and_macros(swift: Workbench) -> None:
    library = swift.root / "lib"
    library.mkdir()
    (library / "mine.swift").write_text("(int o) twice(int i) { o = i * FACTOR; }\n")
    text = '#ifdef LOUD\n#define WORD "loud"\n#else\n#define WORD "quiet"\n#endif\nimport mine; import io; printf("%s %i\\n", WORD, twice(4));'
    done = run(swift, text, "-I", str(library), "-D", "FACTOR=2", "-D", "LOUD")
    assert (done.code, done.out) == (0, "loud 8\n"), done.err
    assert run(swift, text, "-I", str(library), "-D", "FACTOR=3").out == "quiet 12\n"


COUNTED = """
app (file o) step(file i, string name) { "sh" "-c" "echo $2 >> LOG; cat $0 > $1; echo $2 >> $1" i o name }
file a = step(input("letters.txt"), "a");
file b<"b.txt"> = step(a, "b");
file c<"c.txt"> = step(b, "c");
file d = step(c, LAST);
file e<"e.txt"> = step(d, "e");
"""


class Counted:
    """Runs of a script whose programs tell that they ran."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.log = bench, bench.root / "log"

    def run(self, last: str, *flags: str) -> tuple[Run, list[str]]:
        """Runs it with this name of the step before the last; the steps that ran."""
        self.log.unlink(missing_ok=True)
        self.bench.script(COUNTED.replace("LOG", str(self.log)).replace("LAST", json.dumps(last)))
        words = self.bench.arguments(*flags)
        done = self.bench.tidemill(*words[1:])
        return Run(done.returncode, done.stdout, done.stderr, {}), sorted(self.log.read_text().split()) if self.log.exists() else []


def test_results_of_an_earlier_run_stand_in_for_calls_that_do_the_same(swift: Workbench) -> None:
    counted = Counted(swift)
    done, ran = counted.run("d")
    assert (done.code, ran) == (0, ["a", "b", "c", "d", "e"]), done.err
    again, ran = counted.run("d", "--reuse", str(swift.report), "--report", str(swift.root / "second"))
    assert (again.code, ran) == (0, []), again.err
    assert "the results of 5 tasks are reused" in again.err
    other, ran = counted.run("other", "--reuse", str(swift.report), "--report", str(swift.root / "third"))
    assert (other.code, ran) == (0, ["e", "other"]), other.err
    (swift.out / "c.txt").write_text("changed")
    (swift.data / "letters.txt").write_text("new")
    fresh, ran = counted.run("d", "--reuse", str(swift.report), "--report", str(swift.root / "fourth"))
    assert (fresh.code, ran) == (0, ["a", "b", "c", "d", "e"]), fresh.err


def test_data_that_is_gone_is_made_again_if_a_call_that_runs_needs_it(swift: Workbench) -> None:
    counted = Counted(swift)
    counted.run("d")
    (swift.out / "e.txt").unlink()
    done, ran = counted.run("d", "--reuse", str(swift.report), "--report", str(swift.root / "second"))
    assert (done.code, ran) == (0, ["d", "e"]), "the temporary of d is made again from c, which is there"
    assert outputs(swift)["e.txt"] == "b\na\nc\na\nb\nc\nd\ne\n"


def test_a_script_that_was_killed_goes_on_with_what_was_done(swift: Workbench) -> None:
    gate, log = swift.root / "gate", swift.root / "log"
    text = f"""
        import random; import io;
        app (file o) step(int i) {{ "sh" "-c" "echo $0 >> {log}; echo $0 > $1" i o }}
        app (file o) gated(file i) {{ "sh" "-c" "while ! test -e {gate}; do sleep 0.05; done; cat $0 > $1" i o }}
        foreach i in [1:5] {{ file f<"f" + i> = step(i); file g<"g" + i> = gated(f); }}
        printf("%i\\n", randint(0, 1000000));
    """
    swift.script(text)
    process = swift.start("--slots", "2")
    journal = swift.report / "journal.jsonl"
    swift.wait_for(lambda: journal.exists() and journal.read_text().count('"event":"exported"') >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    before = {Path(line["path"]).name for line in lines if line.get("event") == "exported"}
    gate.touch()
    log.write_text("")
    resumed = swift.tidemill("run", "--resume", swift.report)
    assert resumed.returncode == 0, resumed.stderr
    ran = {f"f{number}" for number in log.read_text().split()}
    assert ran.isdisjoint(before), "what was exported is not done again"
    assert sorted(outputs(swift)) == sorted([f"{kind}{number}" for kind in "fg" for number in range(1, 6)])
    report = json.loads((swift.report / "run.json").read_text())
    assert report["outcome"] == "done"
    explained = swift.tidemill("explain", swift.report, "f1")
    assert explained.returncode == 0, explained.stderr
    plain = swift.tidemill(*swift.arguments("--report", str(swift.root / "other"))[1:])
    assert plain.stdout == resumed.stdout, "random numbers are the same in each run"


def test_events_of_a_script_are_one_stream_of_json(swift: Workbench) -> None:
    done = run(swift, 'import io; printf("a\\nb"); trace(1, "x");', "--json")
    events = [json.loads(line) for line in done.out.splitlines()]
    printed = "".join(event["text"] for event in events if event["event"] == "printed")
    assert printed == "a\nbtrace: 1,x\n"
    assert events[-1]["event"] == "ended"


def test_a_loop_without_calls_can_be_interrupted(swift: Workbench) -> None:
    swift.script("for (boolean b = true; b; b = b) { }")
    process = swift.start("--json")
    swift.wait_for_event(process, "progress")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 128 + signal.SIGINT
    assert swift.leftovers() == []


@pytest.mark.parametrize(
    "text",
    [
        'file i = input("letters.txt"); file o<"OUT/letters.txt"> = i;',
        'file o<"OUT/letters.txt"> = c(1); app (file o) c(int i) { "echo" i @stdout=o } file i = input("letters.txt");',
    ],
)
def test_an_input_is_never_overwritten_by_whatever_path(swift: Workbench, text: str) -> None:
    (swift.root / "link").symlink_to(swift.data)
    for way, out in (("", swift.data), ("data/", swift.root), ("link/", swift.root)):
        done = run(swift, text.replace("OUT/", way), "--out", str(out))
        assert done.code == 1, done.err
        assert "is an input of the script" in done.err or "is a file that this script writes" in done.err
        assert (swift.data / "letters.txt").read_text() == "b\na\nc\n"


def test_a_hostile_script_cannot_write_over_itself_or_read_devices(swift: Workbench) -> None:
    swift.workflow = swift.out / "flow.swift"
    swift.out.mkdir()
    done = run(swift, 'app (file o) c() { "echo" "x" @stdout=o } file f<"flow.swift"> = c();')
    assert done.code == 1
    assert "a part of the script" in done.err
    swift.workflow = swift.root / "flow.swift"
    for text in ['#include "/dev/zero"', 'import files; trace(read(input("/dev/zero")));']:
        done = run(swift, text)
        assert done.code in (1, 2)
        assert "not a regular file" in done.err, done.err
    os.mkfifo(swift.data / "pipe")
    assert "not a regular file" in run(swift, 'import files; trace(read(input("pipe")));').err


def test_flow_check_names_problems_and_counts_apps(swift: Workbench) -> None:
    swift.script(PIPELINE)
    told = swift.tidemill("flow", "check", swift.workflow, "--data", swift.data)
    assert (told.returncode, told.stdout) == (0, f"{swift.workflow}: 4 app functions; all is well\n")
    shown = swift.tidemill("flow", "show", swift.workflow, "--data", swift.data).stdout
    assert "  both: sh -c {literal2} x {words} > {o} 2> {e}\n" in shown


def test_the_script_of_an_unreadable_path_is_told(swift: Workbench) -> None:
    told = swift.tidemill("run", Path("none.swift"))
    assert told.returncode == 2
    assert "none.swift: No such file" in told.stderr
