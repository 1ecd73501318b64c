"""`tidemill run` with the real binary: what tasks see, how they fail, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import Workbench

pytestmark = pytest.mark.usefixtures("storage")


def test_a_pipeline_writes_its_output_and_deletes_its_temporaries(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); var c = Data.define("C"); copy({from: a, to: b}); copy({from: b, to: c});')
    run = bench.run()
    assert run.code == 0, run.err
    assert (bench.out / "C.txt").read_text() == "tide\n"
    assert not (bench.out / "B.txt").exists()
    by_name = {member["name"]: member for member in run.report["data"]}
    assert by_name["B"]["dropped_s"] is not None
    assert by_name["C"]["exported"].endswith("C.txt")
    assert [task["status"] for task in run.report["tasks"]] == ["done", "done"]


def test_a_failing_tool_is_shown_and_the_rest_is_finished(bench: Workbench) -> None:
    bench.script(
        'var a = Data.get("in"); var x = Data.define("X"); var y = Data.define("Y"); var z = Data.define("Z");'
        "shell({script: 'echo broken pipe organ >&2; exit 3', to: x}); copy({from: x, to: y}); copy({from: a, to: z});"
    )
    run = bench.run()
    assert run.code == 1
    assert "broken pipe organ" in run.err
    assert "exit code 3" in run.err
    assert (bench.out / "Z.txt").read_text() == "tide\n", "what does not depend on the failure is finished and kept"
    assert not (bench.out / "Y.txt").exists()
    reasons = {task["id"]: task.get("reason") for task in run.report["tasks"]}
    assert reasons[0]["kind"] == "exit"
    assert "broken pipe organ" in reasons[0]["stderr"]["head"]
    assert (reasons[1]["kind"], reasons[1]["root"]) == ("upstream", 0)
    assert reasons[2] is None


def test_fail_fast_starts_nothing_after_the_first_failure(bench: Workbench) -> None:
    calls = "".join(f"shell({{script: 'exit 1', to: d[{i}]}});" for i in range(20))
    bench.script(f'var d = Data.define("D", 20); {calls}')
    run = bench.run("--fail-fast", "--slots", "1")
    assert run.code == 1
    started = [task for task in run.report["tasks"] if task["attempts"] > 0]
    assert len(started) == 1


def test_a_tool_that_does_not_write_its_output_is_told_so(bench: Workbench) -> None:
    bench.script('var d = Data.define("D", 3); shell({script: "true", to: d[1]});')
    run = bench.run()
    assert run.code == 1
    reason = run.report["tasks"][0]["reason"]
    assert reason["kind"] == "missing-output"
    assert "D[1]" in reason["text"]


def test_a_missing_member_of_an_output_array_is_named_by_its_index(bench: Workbench) -> None:
    bench.script('var d = Data.define("D", 3); spread({to: d});')
    run = bench.run()
    assert run.code == 1
    text = run.report["tasks"][0]["reason"]["text"]
    assert "D[1]" in text
    assert "D[0]" not in text
    assert "D[2]" not in text


def test_a_tool_killed_by_a_signal_is_told_so(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); shell({script: "kill -9 $$", to: d});')
    run = bench.run()
    assert run.code == 1
    reason = run.report["tasks"][0]["reason"]
    assert (reason["kind"], reason["signal"]) == ("signal", 9)


def test_a_tool_out_of_time_is_ended(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); slow({to: d});')
    run = bench.run()
    assert run.code == 1
    assert run.report["tasks"][0]["reason"]["kind"] == "timeout"


def test_a_failed_attempt_is_repeated_from_a_clean_folder(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); flaky({to: d});')
    run = bench.run()
    assert run.code == 0, run.err
    task = run.report["tasks"][0]
    assert task["attempts"] == 3
    assert len(task["earlier"]) == 2
    assert (bench.out / "D.txt").read_text() == "attempt 3\n"


def test_a_full_pool_is_enospc_with_the_reason_and_nothing_written_is_lost(bench: Workbench) -> None:
    bench.script(
        'var s = Data.define("Small"); var d = Data.define("Big"); var e = Data.define("End");'
        "shell({script: 'echo safe > \"$1\"', to: s}); both({from: s, to: e, big: d});"
    )
    run = bench.run("--memory", "32MiB", env={"TIDEMILL_SPACE_WAIT": "0.2"})
    assert run.code == 1
    reason = run.report["tasks"][1]["reason"]
    assert reason["kind"] == "no-space", reason
    assert "--memory" in reason["text"]
    assert run.report["tasks"][0]["status"] == "done"


def test_keep_exports_every_temporary_and_export_only_some(bench: Workbench) -> None:
    bench.script(
        'var a = Data.get("in"); var b = Data.define("B", 2); var c = Data.define("C");'
        "copy({from: a, to: b[0]}); copy({from: b[0], to: b[1]}); copy({from: b[1], to: c});"
    )
    assert bench.run("--export", "B[1]").code == 0
    assert sorted(path.name for path in bench.out.rglob("*.txt")) == ["B_1.txt", "C.txt"]
    assert bench.run("--export", "/^B/").code == 0
    assert sorted(path.name for path in bench.out.rglob("*.txt")) == ["B_0.txt", "B_1.txt", "C.txt"]
    assert bench.run("--keep").code == 0
    refused = bench.run("--export", "Bx")
    assert refused.code == 2
    assert "no data element matches" in refused.err


def test_events_are_json_one_a_line(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    run = bench.run("--json")
    events = [json.loads(line) for line in run.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "ended"
    assert {"task_started", "task_done", "exported"} <= set(kinds)
    assert events[-1]["outcome"] == "done"


def test_a_bound_input_cannot_be_changed_through_the_pool(bench: Workbench, storage: str) -> None:
    if storage == "staging":
        pytest.skip("staging shows inputs as links to the files themselves (docs/SEMANTICS.md)")
    bench.script('var a = Data.get("in"); var b = Data.define("B"); vandal({from: a, to: b});')
    run = bench.run()
    assert run.code == 1
    assert (bench.data / "in.txt").read_text() == "tide\n"


def test_staged_in_inputs_are_copies(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    run = bench.run("--stage-in")
    assert run.code == 0, run.err
    assert (bench.out / "B.txt").read_text() == "tide\n"


def test_large_files_come_through_whole(bench: Workbench) -> None:
    blob = os.urandom(5 * 1024 * 1024 + 12345)
    (bench.data / "blob.bin").write_bytes(blob)
    bench.script('var a = Data.get("blob"); var b = Data.define("B"); var c = Data.define("C"); copy({from: a, to: b}); copy({from: b, to: c});')
    run = bench.run()
    assert run.code == 0, run.err
    assert (bench.out / "C.txt").read_bytes() == blob


def test_a_full_output_disk_leaves_nothing_half_written(bench: Workbench, small_disk: Path) -> None:
    bench.script('var d = Data.define("D"); shell({script: \'head -c 3000000 /dev/zero > "$1"\', to: d});')
    run = bench.run(out=small_disk / "out")
    assert run.code == 1
    assert "could not be exported" in run.err
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_everything_and_leaves_nothing(bench: Workbench, number: int, code: int) -> None:
    marker = f"sleep 7{os.getpid()}.{number}"
    bench.script(f"var d = Data.define(\"D\"); shell({{script: '{marker} & {marker}', to: d}});")
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    bench.wait_for(lambda: bench.processes(marker))
    process.send_signal(number)
    assert process.wait(timeout=30) == code
    assert bench.processes(marker) == []
    assert bench.mounts() == []
    assert json.loads((bench.report / "run.json").read_text())["outcome"] == "interrupted"


def test_what_a_killed_run_leaves_is_removed_by_the_next(bench: Workbench) -> None:
    marker = f"sleep 8{os.getpid()}.5"
    bench.script(f"var d = Data.define(\"D\"); shell({{script: '{marker}', to: d}});")
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    bench.wait_for(lambda: bench.processes(marker))
    process.kill()
    process.wait()
    bench.wait_for(lambda: not bench.processes(marker))
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    assert bench.run().code == 0
    assert bench.mounts() == []
    assert bench.leftovers() == []


def test_daemons_of_a_killed_run_are_ended_by_the_next_mount_too(bench: Workbench) -> None:
    if not bench.can_mount():
        pytest.skip("no FUSE here")
    marker = f"sleep 7{os.getpid()}.5"
    bench.script(f"var d = Data.define(\"D\"); shell({{script: 'setsid {marker} & sleep 3600', to: d}});")
    process = bench.start("--json")
    bench.wait_for(lambda: bench.processes(marker))
    process.kill()
    process.wait()
    assert bench.processes(marker), "a process outside the group outlives the run"
    place = bench.root / "mounted"
    place.mkdir()
    mount = subprocess.Popen([bench.binary, "mount", "--memory", "16MiB", str(place)], env=bench.environment())
    try:
        bench.wait_for(lambda: not bench.processes(marker))
    finally:
        mount.send_signal(signal.SIGINT)
        mount.wait()
    assert bench.mounts() == []
    assert bench.leftovers() == []


def test_memory_that_a_tool_declares_is_enforced_where_that_can_be_and_watched_elsewhere(bench: Workbench) -> None:
    enforced = bench.group_parent() is not None
    # Uses 150 MB: until it is killed if the limit is enforced, otherwise as long as four checks
    # take.
    hold = f"(head -c 150000000 /dev/zero; sleep {3600 if enforced else 1}) | tail -c 150000000 > /dev/null"
    bench.script(
        'var h = Data.define("H"); var f = Data.define("F");'
        f"frugal({{script: '{hold}; echo held > $1', to: h}}); frugal({{script: 'head -c 150000000 /dev/zero > $1', to: f}});"
    )
    run = bench.run("--memory", "512MiB")
    hog, writer = run.report["tasks"]
    assert writer["status"] == "done", f"files are not a tool's memory: {writer}"
    assert (bench.out / "F.txt").stat().st_size == 150_000_000
    if enforced:
        assert run.code == 1
        assert hog["reason"]["kind"] == "memory"
        assert "it took more memory than its tool declares (memory = 64 MiB; " in run.err
        assert run.report["warnings"] == []
    else:
        assert run.code == 0, run.err
        assert 'more than its `memory = "64MiB"`' in run.err
    assert bench.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_control_group_stays_of_a_run_that_was_ended(bench: Workbench, number: int) -> None:
    if bench.group_parent() is None:
        pytest.skip("no control groups here")
    marker = f"sleep 9{os.getpid()}.{number}"
    bench.script(f"var d = Data.define(\"D\"); frugal({{script: 'setsid {marker} & {marker}', to: d}});")
    process = bench.start("--json")
    bench.wait_for(lambda: len(bench.processes(marker)) == 2)
    assert len(bench.groups() - bench.groups_before) == 1
    process.send_signal(number)
    process.wait(timeout=30)
    if number == signal.SIGKILL:
        assert bench.tidemill("mount", bench.root / "none").returncode == 2
    bench.wait_for(lambda: not bench.processes(marker))
    assert bench.leftovers() == []


def test_ten_runs_at_once_do_not_meet(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    started = [bench.start("--out", str(bench.root / f"o{i}"), "--report", str(bench.root / f"r{i}")) for i in range(10)]
    assert [process.wait(timeout=60) for process in started] == [0] * 10
    assert all((bench.root / f"o{i}" / "B.txt").read_text() == "tide\n" for i in range(10))
    assert bench.mounts() == []


def test_arrays_pass_as_arguments_lists_and_directories(bench: Workbench) -> None:
    for name in ("p1", "p2", "p10"):
        (bench.data / "P").mkdir(exist_ok=True)
        (bench.data / "P" / f"{name}.txt").write_text(f"{name}\n")
    bench.script(
        'var p = Data.get("P", 3); var a = Data.define("A"); var l = Data.define("L"); var d = Data.define("Dir");'
        "join_args({from: p, to: a}); join_list({from: p, to: l}); join_dir({from: p, to: d}); "
        'var s = Data.define("Slice"); join_args({from: p.slice(1), to: s});'
    )
    run = bench.run()
    assert run.code == 0, run.err
    assert (bench.out / "A.txt").read_text() == "p1\np2\np10\n", "natural order"
    assert (bench.out / "L.txt").read_text() == "p1\np2\np10\n"
    assert (bench.out / "Dir.txt").read_text() == "p1.txt\np10.txt\np2.txt\n"
    assert (bench.out / "Slice.txt").read_text() == "p2\np10\n"


def test_a_very_long_array_becomes_a_response_file(bench: Workbench) -> None:
    count = 2500
    (bench.data / "P").mkdir()
    for i in range(count):
        (bench.data / "P" / f"a-rather-long-name-of-a-part-{i}.txt").write_text("x")
    bench.script(f'var p = Data.get("P", {count}); var a = Data.define("A"); count_args({{from: p, to: a}});')
    run = bench.run()
    assert run.code == 0, run.err
    first, lines = (bench.out / "A.txt").read_text().split()
    assert first.startswith("@")
    assert int(lines) == count


def test_the_report_numbers_agree_with_the_files(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    run = bench.run("--set", "unused=1")
    assert run.code == 2
    bench.script('var n = 1; var a = Data.get("in"); var b = Data.define("B", n); for (var i = 0; i < n; i++) copy({from: a, to: b[i]});')
    run = bench.run("--set", "n=4")
    assert run.code == 0, run.err
    assert run.report["totals"]["tasks_done"] == 4
    assert run.report["sets"] == {"n": 4}
    sizes = {member["name"]: member["bytes"] for member in run.report["data"]}
    assert sizes["B[3]"] == (bench.out / "B" / "B_3.txt").stat().st_size
    tools = {tool["name"]: tool for tool in run.report["provenance"]["tools"]}
    assert tools["copy"]["program_version"].startswith("cp (")
    assert tools["copy"]["hash"]
    assert all(member["hash"] for member in run.report["data"])


def test_an_empty_script_is_a_run_of_nothing(bench: Workbench) -> None:
    bench.script("")
    run = bench.run()
    assert run.code == 0, run.err
    assert run.report["settings"]["mode"] == "none"


def test_an_exported_flow_runs_by_itself(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    exported = bench.tidemill("flow", "export", bench.workflow, "--data", bench.data, "--tools", bench.tools)
    assert exported.returncode == 0, exported.stderr
    flow = bench.root / "flow.json"
    flow.write_text(exported.stdout)
    done = bench.tidemill("run", flow, "--data", bench.data, "--out", bench.out, "--report", bench.report, "--quiet")
    assert done.returncode == 0, done.stderr
    assert (bench.out / "B.txt").read_text() == "tide\n"


def test_a_writer_that_waits_for_space_proceeds_when_there_is_some(bench: Workbench) -> None:
    """Each task writes 20 MB into a pool of 32 MiB.

    The second waits until the first one's output is exported and dropped.
    """
    bench.script('var d = Data.define("D", 2); for (var i = 0; i < 2; i++) shell({script: \'head -c 20000000 /dev/zero > "$1"\', to: d[i]});')
    run = bench.run("--memory", "32MiB", "--slots", "1", env={"TIDEMILL_SPACE_WAIT": "60"})
    assert run.code == 0, run.err
    assert [path.stat().st_size for path in sorted(bench.out.rglob("D_*"))] == [20_000_000, 20_000_000]


def test_cancel_while_a_writer_waits_for_space_is_prompt(bench: Workbench, storage: str) -> None:
    if storage == "preload":
        pytest.skip("who writes to its file's own memory does not wait (docs/SEMANTICS.md)")
    bench.script('var d = Data.define("D"); shell({script: \'head -c 64000000 /dev/zero > "$1"\', to: d});')
    # A writer with passthrough does not wait for space.
    process = bench.start("--memory", "32MiB", "--json", "--no-passthrough", env={"TIDEMILL_SPACE_WAIT": "300"})
    bench.wait_for_event(process, "task_started")
    bench.wait_for(lambda: bench.last_progress(process)["used"] > 28 << 20)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert time.monotonic() - begun < 30, "far below the wait for space"
    assert bench.mounts() == []


def test_a_second_run_replaces_the_outputs_of_the_first(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    assert bench.run().code == 0
    (bench.data / "in.txt").write_text("ebb\n")
    assert bench.run().code == 0
    assert (bench.out / "B.txt").read_text() == "ebb\n"


def test_standard_streams_of_the_run_itself_stay_usable(bench: Workbench) -> None:
    """Closing the reader of --json does not stop the run."""
    bench.script('var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});')
    command = f"{bench.command_line('--json')} | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=bench.root, capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(done.stdout)["event"] == "started"
    bench.wait_for((bench.report / "run.json").exists)
    assert (bench.out / "B.txt").exists()


CROWD = """
var d = Data.define("D", 2), f = Data.define("F", 2);
for (var i = 0; i < 2; i++) {
    var mine = i, other = 1 - i;
    shell({script: 'set -e; { head -c 6291456 /dev/zero; touch ROOT/' + mine + '; while [ ! -e ROOT/' + other + ' ]; do sleep 0.01; done;' +
        'head -c 6291456 /dev/zero; } > "$1"', to: d[i]});
    measure({from: d[i], to: f[i]});
}
"""


def test_writers_that_crowd_each_other_out_are_tried_again_alone(bench: Workbench, storage: str) -> None:
    """Each writer holds half of the pool and waits for more space.

    Without a retry both would fail, although they fit one after the other.
    """
    bench.script(CROWD.replace("ROOT", str(bench.root)))
    run = bench.run("--memory", "16MiB", "--slots", "2", env={"TIDEMILL_SPACE_WAIT": "0.5"})
    assert run.code == 0, run.err
    assert [(bench.out / "F" / f"F_{i}.txt").read_text().strip() for i in range(2)] == [str(12 << 20)] * 2
    # A staged task writes to the RAM disk first, so one of the two may finish first.
    if storage != "staging":
        retried = [task for task in run.report["tasks"] if task["attempts"] == 2]
        assert "pool was full" in retried[0]["earlier"][0]["text"]


CHAINS = """
var a = Data.define("A", COUNT), b = Data.define("B", COUNT), merged = Data.define("Merged");
for (var i = 0; i < COUNT; i++) {
    shell({script: 'head -c 5000000 /dev/zero > "$1"', to: a[i]});
    STEP
}
MERGE
"""
SMALL = "measure({from: a[i], to: b[i]});"
HALF = "half({from: a[i], to: b[i]});"
MERGE = "merge({from: b, to: merged});"
HALF_TOOLS = r"""
[tools.merge]
command = ["sh", "-c", "cat \"$@\" | wc -c", "sh", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = {}

[tools.half]
command = ["head", "-c", "2000000", "{from}"]
stdout = "{to}"
inputs.from = {}
outputs.to = {}
"""


@pytest.mark.parametrize(("count", "step", "merge", "memory"), [(40, SMALL, "", 30), (20, HALF, MERGE, 64)])
def test_temporaries_of_many_chains_go_before_new_ones_come(bench: Workbench, count: int, step: str, merge: str, memory: int) -> None:
    """All first steps together write 100 MB or more.

    The pool is large enough only if the tasks that read these files run first.
    """
    with bench.tools.open("a") as tools:
        tools.write(HALF_TOOLS)
    bench.script(CHAINS.replace("COUNT", str(count)).replace("STEP", step).replace("MERGE", merge))
    run = bench.run("--memory", f"{memory}MiB", "--slots", "2")
    assert run.code == 0, run.err
    pool = run.report["pool"]
    assert pool["peak_bytes"] <= memory << 20
    assert pool["peak_bytes"] >= max(sample[1] for sample in pool["samples"])
    assert pool["least_peak_bytes"] >= 10_000_000
    assert pool["least_peak_orders"] == 10_000


def test_a_tool_that_ignores_a_full_pool_is_warned_about(bench: Workbench, storage: str) -> None:
    if storage == "staging":
        pytest.skip("a staged tool writes to the RAM disk: the pool refuses us, not the tool")
    bench.script('var d = Data.define("D"); shell({script: \'head -c 64000000 /dev/zero > "$1"; true\', to: d});')
    run = bench.run("--memory", "32MiB", env={"TIDEMILL_SPACE_WAIT": "0.2"})
    assert run.code == 0
    assert "cut short" in run.err
    assert any("cut short" in warning for warning in run.report["warnings"])


def test_a_signal_that_was_ignored_stays_ignored(bench: Workbench) -> None:
    """`nohup tidemill run` continues after a hangup of the terminal."""
    go = bench.root / "go"
    bench.script(f'var d = Data.define("D"); shell({{script: \'while [ ! -e {go} ]; do sleep 0.02; done; echo on > "$1"\', to: d}});')
    command = ["bash", "-c", "trap '' HUP INT; exec \"$@\"", "bash", *bench.arguments("--json")]
    process = subprocess.Popen(command, cwd=bench.root, env=bench.environment(), stdout=subprocess.PIPE, text=True)
    bench.wait_for_event(process, "task_started")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    bench.last_progress(process)
    go.touch()
    assert process.wait(timeout=30) == 0
    assert (bench.out / "D.txt").read_text() == "on\n"


def test_a_second_signal_ends_at_once_and_takes_daemons_along(bench: Workbench) -> None:
    marker = f"sleep 6{os.getpid()}.25"
    bench.script(f'var d = Data.define("D"); shell({{script: \'trap "" TERM; setsid {marker} & {marker}; {marker}\', to: d}});')
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    bench.wait_for(lambda: len(bench.processes(marker)) == 2)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # sent at once, both count as the first, as from `timeout`
    begun = bench.last_progress(process)["elapsed"]
    while bench.last_progress(process)["elapsed"] < begun + 1.1:
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    bench.wait_for(lambda: not bench.processes(marker))
    assert bench.mounts() == []
    assert not list(Path("/dev/shm").glob(f"tidemill-*-{process.pid}-*"))


def test_a_time_out_ends_children_too(bench: Workbench) -> None:
    marker = f"sleep 5{os.getpid()}.5"
    with bench.tools.open("a") as tools:
        tools.write(f'\n[tools.family]\ncommand = ["sh", "-c", "{marker} & {marker}", "sh", "{{to}}"]\ntimeout = "300ms"\noutputs.to = {{}}\n')
    bench.script('var d = Data.define("D"); family({to: d});')
    run = bench.run()
    assert run.report["tasks"][0]["reason"]["kind"] == "timeout"
    assert bench.processes(marker) == []


def test_output_of_a_tool_cannot_command_the_terminal(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); shell({script: \'printf "\\\\033[31mred\\\\033[0m\\\\a" >&2; exit 1\', to: d});')
    run = bench.run()
    assert "| red" in run.err
    assert "\x1b" not in run.err
    assert "\x1b[31m" in run.report["tasks"][0]["reason"]["stderr"]["head"], "the report has all of it"


def test_names_of_inputs_may_be_odd(bench: Workbench) -> None:
    folder = bench.data / "P"
    folder.mkdir()
    names = ["-dash.txt", "with space.txt", "quo'te\".txt", "ünï ☂.txt", "$HOME.txt", "{to}.txt"]
    for name in names:
        (folder / name).write_text(name)
    (folder / "empty.txt").touch()
    (folder / "link.txt").symlink_to(bench.data / "in.txt")
    bench.script('var p = Data.get(/^P/); var a = Data.define("A"), d = Data.define("Dir"); join_args({from: p, to: a}); join_dir({from: p, to: d});')
    run = bench.run()
    assert run.code == 0, run.err
    joined = (bench.out / "A.txt").read_text()
    assert all(name in joined for name in names)
    assert "tide\n" in joined
    assert set(names) <= set((bench.out / "Dir.txt").read_text().splitlines())


def test_a_task_knows_what_it_is(bench: Workbench) -> None:
    """docs/formats/tools.md lists these variables."""
    bench.script('var d = Data.define("D"); shell({script: \'env | grep ^TIDEMILL_ > "$1"; pwd >> "$1"\', to: d});')
    run = bench.run()
    *variables, folder = (bench.out / "D.txt").read_text().splitlines()
    said = dict(line.split("=", 1) for line in variables)
    assert said["TIDEMILL_RUN"] == run.report["id"]
    assert (said["TIDEMILL_TASK"], said["TIDEMILL_TOOL"], said["TIDEMILL_ATTEMPT"]) == ("0", "shell", "1")
    assert folder.endswith("/shell.0")


def test_what_stands_where_an_output_belongs_is_told(bench: Workbench) -> None:
    bench.script('var d = Data.define("D", 2); shell({script: \'mkdir "$1"\', to: d[0]}); shell({script: \'ln -s /etc/hostname "$1"\', to: d[1]});')
    run = bench.run()
    assert run.code == 1
    texts = [task["reason"]["text"] for task in run.report["tasks"]]
    assert "a directory is there" in texts[0]
    assert "a symbolic link is there" in texts[1]


def test_much_output_of_a_tool_is_bounded_in_the_report(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); shell({script: \'head -c 50000000 /dev/zero | tr "\\\\0" x; echo the end >&2; exit 1\', to: d});')
    run = bench.run()
    reason = run.report["tasks"][0]["reason"]
    assert reason["stdout"]["bytes"] == 50_000_000
    assert len(json.dumps(reason)) < 100_000
    assert "the end" in run.err


def test_a_program_that_a_task_writes_stays_executable(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); shell({script: \'echo "#!/bin/sh" > "$1"; chmod +x "$1"\', to: d});')
    assert bench.run().code == 0
    assert os.access(bench.out / "D.txt", os.X_OK)


def test_many_outputs_are_named_up_to_ten_and_counted(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B", 12); for (var i = 0; i < 12; i++) copy({from: a, to: b[i]});')
    run = bench.run()
    assert run.err.count("wrote /") == 10
    assert "wrote 2 more; 12 outputs, 60 B" in run.err


def test_two_runs_with_one_output_folder_both_write_whole_files(bench: Workbench) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B", 20); for (var i = 0; i < 20; i++) copy({from: a, to: b[i]});')
    started = [bench.start() for _ in range(2)]
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert {path.read_text() for path in bench.out.rglob("*.txt")} == {"tide\n"}
    assert list(bench.root.rglob("*.part")) == []
    assert json.loads((bench.report / "run.json").read_text())["outcome"] == "done"


def test_a_failed_task_is_kept_and_repeated_outside_the_run(bench: Workbench) -> None:
    """The kept script ends as the task did, with the same inputs, variables and standard streams.

    After a correction it succeeds.
    """
    with bench.tools.open("a") as tools:
        tools.write(r'''
[tools.picky]
command = ["sh", "-c", """echo $MOOD $TIDEMILL_TOOL; ls $3 >&2
 cat $1 - $(cat $4); echo trace > trace; test -e $2.mended""", "sh", "{made}", "{raw}", "{dir}", "{list}"]
stdin = "{raw}"
stdout = "{to}"
env = { MOOD = "it's fine" }
inputs.made = {}
inputs.raw = {}
inputs.dir = { array = "dir" }
inputs.list = { array = "list" }
outputs.to = {}
''')
    bench.script(
        'var raw = Data.get("in"); var made = Data.define("Made"); var p = Data.define("P", 2); var to = Data.define("To");'
        "copy({from: raw, to: made}); copy({from: raw, to: p[0]}); copy({from: made, to: p[1]});"
        "picky({made: made, raw: raw, dir: p, list: p, to: to});"
    )
    run = bench.run("--keep-failed")
    assert run.code == 1
    reason = next(task["reason"] for task in run.report["tasks"] if task["status"] == "failed")
    kept, script = Path(reason["kept"]), Path(reason["repeat"])
    assert str(kept) in run.err
    assert str(script) in run.err
    assert kept.parent == bench.report / "failed"
    assert (kept / "left/trace").read_text() == "trace\n"
    shown = "it's fine picky\n" + 4 * "tide\n"
    assert (kept / "left/To").read_text() == shown
    again = subprocess.run([script], cwd="/", capture_output=True, text=True, timeout=30, check=False)
    assert (again.returncode, again.stderr) == (1, "P_0.txt\nP_1.txt\n")
    assert (kept / "again/To").read_text() == shown
    (kept / "inputs/data/in.txt.mended").touch()
    assert subprocess.run([script], cwd="/", capture_output=True, timeout=30, check=False).returncode == 0
