"""Swift scripts on real Dask: locations of tasks, places of files, reads, and hosts that are lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster, next_event, next_warning
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

# Each task holds its slot until there is a file, so that no slot gets two tasks by chance.
PLACED = """
import location;
app (file o) at(int i) { "sh" "-c" "echo $0 > $1" i o }
foreach i in [0:7] { location l = location(i %% turbine_workers(), HARD, RANK); file f<"f" + i> = @location=l at(i); }
"""


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, and two with a worker of two threads."""
    folder = tmp_path_factory.mktemp("cluster")
    with hosts.network(folder, 3) as net, dask_cluster(binary, folder, net, {1: 2, 2: 2}) as made:
        made.workflow = folder / "flow.swift"
        yield made


def nodes(cluster: DaskCluster) -> dict[str, int]:
    """The node where the writer of each file ran."""
    return {output: task["node"] for task in cluster.run_json["tasks"] for output in task["outputs"]}


def run(cluster: DaskCluster, text: str, *flags: str) -> str:
    """Runs a script that succeeds; what it printed."""
    cluster.script(text)
    done = cluster.run("--workers", "2", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_runs_on_the_hosts_and_reads_what_they_wrote(cluster: DaskCluster) -> None:
    printed = run(
        cluster,
        """
        import files; import io; import string; import location;
        app (file o) count(file i, int n) { "sh" "-c" "cat $0 > $2; echo $1 >> $2" i n o }
        app (file o) join(file all[]) { "cat" all @stdout=o }
        file parts[];
        foreach i in [0:5] { parts[i] = count(input("in.txt"), i); }
        file all<"all.txt"> = join(parts);
        printf("%i lines on %i slots of %i hosts\\n", size(file_lines(all)), turbine_workers(), size(hostmapList()));
        """,
    )
    assert printed == "12 lines on 4 slots of 2 hosts\n"
    assert (cluster.out / "all.txt").read_text() == "".join(f"tide\n{i}\n" for i in range(6))
    assert set(nodes(cluster).values()) == {0, 1}
    cluster.assert_nothing_left()


def test_a_hard_rank_is_the_slot_where_a_task_runs(cluster: DaskCluster) -> None:
    run(cluster, PLACED)
    slots = {task["outputs"][0]: (task["node"], task["slot"]) for task in cluster.run_json["tasks"]}
    assert slots == {f"f{i}": (i % 4 // 2, i % 4) for i in range(8)}


def test_any_slot_of_a_node_will_do_and_a_wish_gives_way(cluster: DaskCluster) -> None:
    """Paper 002, section V: with RANK a slot is busy while its neighbour idles, with NODE only a whole host."""
    busy = """
        import location;
        app (file o) at(int i) {{ "sh" "-c" "sleep 0.3; echo $0 > $1" i o }}
        foreach i in [0:3] {{ location l = location(0, {how}); file f<"f" + i> = @location=l at(i); }}
    """
    used = {}
    for how in ("HARD, RANK", "HARD, NODE", "SOFT, NODE"):
        run(cluster, busy.format(how=how))
        used[how] = Counter((task["node"], task["slot"]) for task in cluster.run_json["tasks"])
    assert set(used["HARD, RANK"]) == {(0, 0)}, "one slot has all tasks"
    assert set(used["HARD, NODE"]) == {(0, 0), (0, 1)}, "both slots of the host have some"
    assert {node for node, _ in used["SOFT, NODE"]} == {0, 1}, "the other host helps"


def test_a_task_runs_where_a_file_is_or_will_be(cluster: DaskCluster) -> None:
    (cluster.data / "small.txt").write_text("x")
    run(
        cluster,
        """
        import location;
        app (file o) make(int i) { "sh" "-c" "sleep 0.1; head -c 3000000 /dev/zero > $0; echo $1 >> $0" o i }
        app (file o) near(file small, int i) { "sh" "-c" "sleep 0.1; echo $1 > $2" small i o }
        foreach i in [0:3] {
            file big<"big" + i> = make(i);
            file n<"n" + i> = @location=locationOf(big, HARD) near(input("small.txt"), i);
        }
        """,
    )
    at = nodes(cluster)
    assert [at[f"n{i}"] for i in range(4)] == [at[f"big{i}"] for i in range(4)]


def test_local_reads_are_local_and_others_are_not(cluster: DaskCluster) -> None:
    """The experiment of paper 002, section V: files are written and read at a location, or elsewhere."""
    text = """
        import location;
        app (file o) put(int i) {{ "sh" "-c" "head -c 1000000 /dev/zero > $0; echo $1 >> $0" o i }}
        app (file o) get(file i) {{ "sh" "-c" "cksum < $0 > $1" i o }}
        foreach i in [0:7] {{
            location here = location(i %% 4, HARD, NODE);
            location there = location((i + {away}) %% 4, HARD, NODE);
            file f = @location=here put(i);
            file g<"g" + i> = @location=there get(f);
        }}
    """
    reads = {}
    for away in (0, 2):
        run(cluster, text.format(away=away))
        reads[away] = cluster.run_json["totals"]["reads"]
    assert reads[0]["remote"] == 0
    assert reads[0]["local"] > 8_000_000
    assert reads[2]["local"] == 0
    assert reads[2]["remote"] > 8_000_000


@pytest.mark.parametrize("how", ["SOFT", "HARD"])
def test_what_a_lost_host_had_is_made_again_also_for_the_script_if_another_may_make_it(cluster: DaskCluster, how: str) -> None:
    gate = cluster.folder / "gate"
    gate.unlink(missing_ok=True)
    cluster.script(f"""
        import files; import io; import string; import location;
        app (file o) make(int i) {{ "sh" "-c" "echo $0 > $1" i o }}
        app (void v) gated(int i) {{ "sh" "-c" "while ! test -e {gate}; do sleep 0.05; done; echo $0" i }}
        file f[];
        foreach i in [0:3] {{ f[i] = @location=location(i, {how}, NODE) make(i); }}
        wait deep (f) {{
            void done = @soft_location=location(0, SOFT, NODE) gated(1);
            wait (done) {{ foreach g, i in f {{ printf("%i:%s\\n", i, trim(read(g))); }} }}
        }}
    """)
    process = cluster.start("--workers", "2")
    next_event(process, "task_started", tool="gated")
    os.kill(cluster.node_of(2), signal.SIGKILL)
    next_event(process, "warning")
    gate.touch()
    output = process.stdout.read() if process.stdout else ""
    code = process.wait(timeout=120)
    if how == "HARD":
        assert code == 1
        assert "it is lost, and the task that makes it again has failed" in output
    else:
        assert code == 0, cluster.errors()
        printed = [json.loads(line)["text"] for line in output.splitlines() if '"printed"' in line]
        assert sorted(printed) == [f"{i}:{i}\n" for i in range(4)]
    cluster.assert_nothing_left()


def test_a_script_goes_on_when_the_pool_is_lost_and_formed_anew(cluster: DaskCluster) -> None:
    gate = cluster.folder / "gate3"
    cluster.script(f"""
        import files; import io; import location; import string;
        app (file o) make(int i) {{ "sh" "-c" "echo $0 > $1" i o }}
        app (void v) gated() {{ "sh" "-c" "while ! test -e {gate}; do sleep 0.05; done" }}
        app (void v) late(void after) {{ "true" }}
        file f[];
        foreach i in [0:3] {{ f[i] = make(i); }}
        file kept<"kept.txt"> = make(7);
        location second = location(1, HARD, NODE);
        void done = @location=second gated();
        @location=second late(done);
        wait (done) {{ foreach g, i in f {{ file h<"h" + i> = g; printf("%i:%s\\n", i, trim(read(g))); }} }}
    """)
    process = cluster.start("--workers", "2")
    journal = cluster.report / "journal.jsonl"
    wait_for(lambda: journal.exists() and journal.read_text().count('"event":"done"') == 5 and '"event":"exported"' in journal.read_text(), "no task was done")
    os.kill(cluster.node_of(0), signal.SIGKILL)
    next_warning(process, "the pool is formed anew")
    gate.touch()
    output = process.stdout.read() if process.stdout else ""
    assert process.wait(timeout=120) == 0, cluster.errors() + output
    printed = [json.loads(line)["text"] for line in output.splitlines() if '"printed"' in line]
    assert sorted(printed) == [f"{i}:{i}\n" for i in range(4)]
    assert {path.name: path.read_text() for path in cluster.out.glob("h?")} == {f"h{i}": f"{i}\n" for i in range(4)}
    again = [task["tool"] for task in cluster.run_json["tasks"] if task["attempts"] > 1]
    assert again.count("make") == 4, "what was exported is not made again"
    [gated, late] = [task for task in cluster.run_json["tasks"] if task["tool"] in {"gated", "late"}]
    names = [cluster.run_json["nodes"][ran["node"]]["name"] for ran in (*gated["earlier"], gated, late)]
    assert len(names) == 3, "the task that ran has run again"
    assert len(set(names)) == 1, "the host is known under its new number"
    cluster.assert_nothing_left()


def test_a_killed_run_goes_on_on_the_cluster(cluster: DaskCluster) -> None:
    gate, log = cluster.folder / "gate2", cluster.folder / "log"
    shutil.rmtree(cluster.out)
    cluster.script(f"""
        import io; import sys;
        app (file o) step(int i) {{ "sh" "-c" "echo $0 >> {log}; echo $0 > $1" i o }}
        app (file o) gated(file i) {{ "sh" "-c" "while ! test -e {gate}; do sleep 0.05; done; cat $0 > $1" i o }}
        int at = clock_seconds();
        foreach i in [1:5] {{ file f<"f" + i> = step(i + at - at); file g<"g" + i> = gated(f); }}
    """)
    process = cluster.start("--workers", "2")
    first = {Path(next_event(process, "exported")["path"]).name for _ in range(2)}
    process.kill()
    process.wait()
    log.write_text("")
    gate.touch()
    resumed = cluster.resume()
    assert resumed.wait(timeout=120) == 0, cluster.errors()
    assert {f"f{number}" for number in log.read_text().split()}.isdisjoint(first)
    assert sorted(path.name for path in cluster.out.glob("[fg]?")) == sorted(f"{kind}{i}" for kind in "fg" for i in range(1, 6))
    cluster.assert_nothing_left()
