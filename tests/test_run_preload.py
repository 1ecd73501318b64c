"""`tidemill run` with the preload library: when it is chosen, and that nothing is left behind.

Where no mount is allowed the run chooses it, tool by tool. Tests for every storage mode are in
test_run.py, which also runs with the library.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from workbench import Run, Workbench

# Sockets in /dev/shm, for runs whose directory has a path that is too long for a socket.
DOORS = "tidemill-*-door"
TOOLS = """
[tools.static]
command = ["{here}/static", "{from}", "{to}"]
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.streams]
command = ["sh", "-c", "head -c 3; echo; cat; stat -L -c %s /dev/stdin"]
stdin = "{from}"
stdout = "{to}"
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.listing]
# A static program.
command = ["/sbin/ldconfig", "-p"]
stdout = "{to}"
outputs.to = { extension = ".txt" }

[tools.nested]
command = ["sh", "-c", "/sbin/ldconfig -p; /sbin/ldconfig -r missing -p || echo none"]
stdout = "{to}"
outputs.to = { extension = ".txt" }

[tools.with_library]
command = ["sh", "-c", "echo $LD_PRELOAD > $1", "sh", "{to}"]
env = { LD_PRELOAD = "libm.so.6" }
outputs.to = { extension = ".txt" }
"""
COPY_STATIC = """
#include <stdio.h>
int main(int count, char **words) {
    FILE *from = fopen(words[1], "r"), *to = fopen(words[2], "w");
    if (count < 3 || !from || !to) return perror("static"), 1;
    for (int c; (c = fgetc(from)) != EOF;) fputc(c, to);
    return fclose(to);
}
"""
COPY = 'var a = Data.get("in"); var b = Data.define("B"); copy({from: a, to: b});'


@pytest.fixture
def storage() -> str:
    """The only storage mode of these tests."""
    return "preload"


@pytest.fixture
def bench(binary: Path, tmp_path: Path, storage: str) -> Workbench:
    """A workbench with the tools of this file."""
    bench = Workbench(binary, tmp_path, storage)
    with bench.tools.open("a") as tools:
        tools.write(TOOLS)
    return bench


@pytest.fixture
def static(bench: Workbench) -> Path:
    """A static program that copies a file."""
    source, program = bench.root / "static.c", bench.root / "static"
    source.write_text(COPY_STATIC)
    subprocess.run(["cc", "-static", "-o", str(program), str(source)], check=True)
    return program


def line_of(run: Run) -> str:
    """The line that says how tasks accessed the pool."""
    return run.report["settings"]["mode_reason"]


def nothing_is_left(bench: Workbench) -> None:
    """Checks that no directory, socket or pool file is left, here or on the RAM disk."""
    assert bench.leftovers() == []


def test_the_form_is_said_and_reported(bench: Workbench) -> None:
    bench.script(COPY)
    run = bench.run()
    assert run.code == 0, run.err
    assert run.err.count("the pool is reached by the preload library, since --storage preload was asked for") == 1
    assert run.report["settings"]["mode"] == "preload"
    started = json.loads(bench.run("--json").out.splitlines()[0])
    assert (started["storage"], started["storage_line"]) == ("preload", line_of(run))
    assert '"preload"' in (bench.report / "report.html").read_text()
    nothing_is_left(bench)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be kept from what it may")
def test_where_no_mount_is_allowed_the_library_is_chosen_and_that_is_said_in_one_line(bench: Workbench) -> None:
    bench.script(COPY)
    # As in a container without the capability: set-id helpers do not have it either.
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    environment = bench.environment({"TIDEMILL_STORAGE": "auto"})
    done = subprocess.run([*without, *bench.arguments()], cwd=bench.root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (bench.out / "B.txt").read_text() == "tide\n"
    assert done.stderr.count("the pool is reached by the preload library, since ") == 1
    assert json.loads((bench.report / "run.json").read_text())["settings"]["mode"] == "preload"
    nothing_is_left(bench)


def test_a_static_tool_is_staged_among_others_that_are_not(bench: Workbench, static: Path) -> None:
    bench.script(
        'var a = Data.get("in"); var b = Data.define("B"), c = Data.define("C"), d = Data.define("D"), e = Data.define("E");'
        "copy({from: a, to: b}); static({from: b, to: c}); copy({from: c, to: d}); static({from: a, to: e});"
    )
    run = bench.run()
    assert run.code == 0, run.err
    assert [(bench.out / f"{name}.txt").read_text() for name in "DE"] == ["tide\n"] * 2
    assert line_of(run).endswith(f"; by RAM-disk staging: static, since `{static}` is statically linked")
    commands = {task["tool"]: json.dumps(task) for task in run.report["tasks"]}
    assert "/dev/shm/tidemill-" in commands["static"]
    assert "/dev/shm/" not in commands["copy"]
    nothing_is_left(bench)


def test_where_the_library_reaches_no_tool_a_demand_is_refused(bench: Workbench, static: Path) -> None:
    bench.script('var a = Data.get("in"); var b = Data.define("B"); static({from: a, to: b});')
    run = bench.run()
    assert run.code == 2
    assert f"`{static}` is statically linked" in run.err
    assert "hint: leave --storage preload out" in run.err
    nothing_is_left(bench)


def test_a_library_that_is_not_there_is_an_error_with_what_to_do(bench: Workbench) -> None:
    bench.script(COPY)
    run = bench.run(env={"TIDEMILL_PRELOAD": "/none/library.so"})
    assert run.code == 2
    assert "TIDEMILL_PRELOAD names /none/library.so, which is not a file" in run.err
    assert "hint:" in run.err
    nothing_is_left(bench)


def test_standard_files_are_of_the_pool(bench: Workbench) -> None:
    """Standard streams on a bound input, a small task output, and long files in stripes."""
    (bench.data / "long.txt").write_text("tide" * 100_000)
    bench.script(
        'var a = Data.get("in"), l = Data.get("long"); var b = Data.define("B"), c = Data.define("C", 4);'
        "copy({from: a, to: b}); streams({from: a, to: c[0]}); streams({from: b, to: c[1]});"
        'var m = Data.define("M"); copy({from: l, to: m}); streams({from: l, to: c[2]}); streams({from: m, to: c[3]});'
    )
    run = bench.run()
    assert run.code == 0, run.err
    short, long = "tid\ne\n5\n", "tid\ne" + "tide" * 99_999 + "400000\n"
    assert [(bench.out / "C" / f"C_{i}.txt").read_text() for i in range(4)] == [short, short, long, long]


def test_a_child_that_the_library_does_not_reach_works_on_what_it_inherits_and_finds_nothing_else(bench: Workbench) -> None:
    bench.script('var a = Data.define("A"), b = Data.define("B"); listing({to: a}); nested({to: b});')
    run = bench.run()
    assert run.code == 0, run.err
    listed, nested = ((bench.out / f"{name}.txt").read_text() for name in "AB")
    assert listed.splitlines()[0] in nested
    assert nested.endswith("none\n"), "its folder is of the pool"
    nothing_is_left(bench)


def test_libraries_that_a_tool_wants_before_it_stay(bench: Workbench) -> None:
    bench.script('var d = Data.define("D"); with_library({to: d});')
    run = bench.run()
    assert run.code == 0, run.err
    first, second = (bench.out / "D.txt").read_text().strip().split(":")
    assert (Path(first).name, second) == ("libtidemill_preload.so", "libm.so.6")


def test_the_pool_file_is_of_this_user_alone_and_gone_with_the_run(bench: Workbench) -> None:
    script = 'stat -c %a $TIDEMILL_POOL $(dirname $TIDEMILL_POOL) > "$1"; echo $TIDEMILL_POOL >> "$1"; ls $(dirname $TIDEMILL_POOL) >> "$1"'
    bench.script(f"var d = Data.define(\"D\"); shell({{script: '{script}', to: d}});")
    run = bench.run()
    assert run.code == 0, run.err
    file_mode, folder_mode, file, *names = (bench.out / "D.txt").read_text().split()
    assert (file_mode, folder_mode, names) == ("600", "700", ["pool", "socket"])
    assert not Path(file).parent.exists()
    nothing_is_left(bench)


def test_the_runs_own_folder_has_the_door_where_a_socket_has_room(bench: Workbench, shared_dir: Path) -> None:
    runtime = shared_dir / "r"
    runtime.mkdir(mode=0o700)
    bench.script('var d = Data.define("D"); shell({script: \'echo $TIDEMILL_POOL > "$1"\', to: d});')
    run = bench.run(env={"XDG_RUNTIME_DIR": str(runtime)})
    assert run.code == 0, run.err
    assert (bench.out / "D.txt").read_text().startswith(f"{runtime}/tidemill/")
    assert [path.name for path in (runtime / "tidemill").iterdir()] == [".lock"]


def test_a_killed_task_holds_no_space(bench: Workbench) -> None:
    """Each attempt has half of the pool open when it is killed."""
    with bench.tools.open("a") as tools:
        tools.write("\n[tools.dies]\nretries = 4\noutputs.to = {}\n")
        tools.write(
            'command = ["sh", "-c", "exec 5> gone; rm gone; head -c 9m /dev/zero >&5; [ $TIDEMILL_ATTEMPT = 5 ] || kill -9 $$; echo > $1", "sh", "{to}"]\n'
        )
    bench.script('var d = Data.define("D"); dies({to: d});')
    run = bench.run("--memory", "16MiB")
    assert run.code == 0, run.err
    assert run.report["tasks"][0]["attempts"] == 5
    nothing_is_left(bench)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_tools_of_a_run_that_ends_end_with_it_and_so_does_the_door(bench: Workbench, how: int) -> None:
    marker = f"sleep 4{os.getpid()}.{how}"
    bench.script(f"var d = Data.define(\"D\"); shell({{script: 'exec 5> open; {marker}', to: d}});")
    process = bench.start("--json")
    bench.wait_for_event(process, "task_started")
    bench.wait_for(lambda: bench.processes(marker))
    process.send_signal(how)
    process.wait(timeout=30)
    bench.wait_for(lambda: not bench.processes(marker))
    bench.script(COPY)
    assert bench.run().code == 0
    nothing_is_left(bench)
    assert not [path for path in Path("/dev/shm").glob(DOORS) if str(process.pid) in path.name]
