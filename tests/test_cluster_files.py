"""Files of tools travel to hosts that do not have them: workers in mount namespaces that see neither the tools nor the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster
from example_runs import EXAMPLES, check, python

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

# Count is a script with a module, Stamp a program of its own, Lost the link to an interpreter.
TOOLS = """
version = 1

[tools.Count]
command = ["python3", "{here}/count.py", "{from}", "{to}"]
files = ["count.py", "parts"]
env = { NOTE = "{here}/parts/note.txt" }
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.Stamp]
command = ["stamp", "{from}", "{to}"]
path = ["bin"]
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.Lost]
command = ["env/bin/python3", "{here}/count.py", "{from}", "{to}"]
files = ["count.py", "env"]
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.Join]
command = ["cat", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = { extension = ".txt" }

[tools.Huge]
command = ["cp", "{from}", "{to}"]
files = ["huge"]
inputs.from = {}
outputs.to = { extension = ".txt" }
"""
COUNT = """
import os, sys
from parts.words import count
source, target = sys.argv[1:]
note = open(os.environ["NOTE"]).read().strip()
open(target, "w").write(f"{count(open(source).read())} {note} {__file__}")
"""
STAMP = """#!/bin/sh
{ cat "$1" && echo && echo "$0"; } > "$2"
"""
FAN = """
var i = Data.get("in.txt");
var a = Data.define("A", 8), b = Data.define("B", 8);
for (var k = 0; k < 8; k++) {
    Count({from: i, to: a[k]});
    Stamp({from: a[k], to: b[k]});
}
"""


@pytest.fixture(scope="module")
def cluster(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """The user's host with the scheduler, one that sees neither tools nor data, and one that sees both."""
    folder = tmp_path_factory.mktemp("cluster")
    with hosts.network(folder, 3) as net:
        made = DaskCluster(binary, folder, net, scheduler=0)
        made.tools = write_kit(folder)
        try:
            made.start_scheduler()
            made.start_worker("blind", 1, 2, extra=temporary(made, 1), hidden=[folder / "kit", made.data])
            made.start_worker("seeing", 2, 2, extra=temporary(made, 2))
            yield made
        finally:
            made.close()


def write_kit(folder: Path) -> Path:
    """Writes the tools below `kit`; returns the tool file."""
    kit = folder / "kit"
    texts = {
        "tools.toml": TOOLS,
        "count.py": COUNT,
        "parts/words.py": "def count(text):\n    return 2 * len(text)\n",
        "parts/note.txt": "note\n",
        "bin/stamp": STAMP,
    }
    for name, text in texts.items():
        path = kit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (kit / "bin/stamp").chmod(0o755)
    (kit / "env/bin").mkdir(parents=True)
    (kit / "env/bin/python3").symlink_to(folder / "data/python3")
    (folder / "data/python3").symlink_to(sys.executable)
    with (kit / "huge").open("wb") as huge:
        huge.truncate(5 << 30)
    return kit / "tools.toml"


def temporary(cluster: DaskCluster, host: int) -> dict[str, str]:
    """A host's own directory for temporary files, as a variable of its workers."""
    path = cluster.folder / f"tmp{host}"
    path.mkdir(exist_ok=True)
    return {"TMPDIR": str(path)}


def run(cluster: DaskCluster, script: str, *flags: str) -> None:
    """Runs a workflow that succeeds and leaves nothing."""
    cluster.script(script)
    done = cluster.run("--workers", "2", *flags)
    assert done.returncode == 0, done.stderr
    cluster.assert_nothing_left()
    assert list(cluster.folder.glob("tmp*/tidemill-*")) == []


@pytest.mark.parametrize("storage", ["mount", "preload", "staging"])
def test_tools_run_on_hosts_that_have_none_of_their_files(cluster: DaskCluster, storage: str) -> None:
    run(cluster, FAN, "--storage", storage, "--export", "A")
    kit, copies = str(cluster.folder / "kit"), str(cluster.folder / "tmp1")
    node_of = {task["outputs"][0] if isinstance(task["outputs"][0], str) else task["outputs"][0]["name"]: task["node"] for task in cluster.run_json["tasks"]}
    assert set(node_of.values()) == {0, 1}, "both hosts had tasks"
    for name, node in node_of.items():
        element, index = name.rstrip("]").split("[")
        lines = (cluster.out / element / f"{element}_{index}.txt").read_text().splitlines()
        number, note, _ = lines[0].split()
        assert (number, note) == ("10", "note")
        # The host that has the files uses its own, the other one has copies.
        assert lines[-1].split()[-1].startswith((copies, kit)[node]), name


def test_a_file_that_changed_between_two_runs_is_noticed(cluster: DaskCluster) -> None:
    words = cluster.folder / "kit/parts/words.py"
    run(cluster, FAN, "--export", "A")
    before = words.stat()
    words.write_text(words.read_text().replace("2 *", "3 *"))
    os.utime(words, ns=(before.st_atime_ns, before.st_mtime_ns))
    for cache in words.parent.glob("__pycache__/*"):
        cache.unlink()
    run(cluster, FAN, "--export", "A")
    assert {(cluster.out / f"A/A_{k}.txt").read_text().split()[0] for k in range(8)} == {"15"}


def test_a_link_that_leads_nowhere_on_a_host_is_named(cluster: DaskCluster) -> None:
    cluster.script('var b = Data.define("B", 8); for (var k = 0; k < 8; k++) { Lost({from: Data.get("in.txt"), to: b[k]}); }')
    done = cluster.run("--workers", "2")
    assert done.returncode == 1
    assert "the files of tool Lost cannot be had on this host: `env/bin/python3` is a link to " in done.stderr
    cluster.assert_nothing_left()


def test_files_that_are_too_large_are_refused_before_the_start(cluster: DaskCluster) -> None:
    cluster.script('Huge({from: Data.get("in.txt"), to: Data.define("B")});')
    done = cluster.run("--workers", "2")
    assert done.returncode == 2
    assert "the files of Huge cannot travel: more than 4 GiB or 200000 files" in done.stderr


def test_thousands_of_inputs_in_one_directory_are_shown_to_all_hosts(cluster: DaskCluster) -> None:
    many = cluster.data / "many"
    many.mkdir()
    for number in range(5000):
        (many / f"{number}.txt").write_text(f"{number}\n")
    cluster.script("""
var parts = Data.define("Part", 10), all = Data.define("All");
for (var k = 0; k < 10; k++) {
    var some = [];
    for (var j = 0; j < 500; j++) some.push(Data.get("many/" + (500 * k + j) + ".txt"));
    Join({from: some, to: parts[k]});
}
Join({from: parts, to: all});
""")
    done = cluster.run("--workers", "2")
    assert done.returncode == 0, done.stderr
    assert (cluster.out / "All.txt").read_text() == "".join(f"{number}\n" for number in range(5000))
    assert {task["node"] for task in cluster.run_json["tasks"]} == {0, 1}, "both hosts had tasks"
    cluster.assert_nothing_left()


@pytest.mark.full
def test_the_classification_runs_on_hosts_that_see_neither_its_tools_nor_their_environment(binary: Path, tmp_path: Path) -> None:
    example, environment = EXAMPLES / "classification", EXAMPLES / ".venv"
    kit = tmp_path / "kit/classification"
    kit.mkdir(parents=True)
    for path in example.iterdir():
        if path.is_file():
            text = path.read_text()
            (kit / path.name).write_text(text.replace("files = [", 'files = ["../.venv", ') if path.name == "tools.toml" else text)
    (kit.parent / ".venv").symlink_to(environment)
    with hosts.network(tmp_path, 3) as net:
        cluster = DaskCluster(binary, tmp_path, net, scheduler=0)
        python(example / "prepare.py", cluster.data, "--parts-unlabelled", 4)
        cluster.tools, cluster.workflow = kit / "tools.toml", kit / "workflow.js"
        try:
            cluster.start_scheduler()
            for host in (1, 2):
                hidden = [kit.parent, cluster.data, environment.resolve(), EXAMPLES]
                cluster.start_worker(f"w{host}", host, 2, extra=temporary(cluster, host), hidden=hidden)
            exports = [word for name in ("TrainPart", "Model", "BestModel") for word in ("--export", name)]
            done = cluster.run("--workers", "2", "--set", "n=4", "--set", "m=4", *exports)
            assert done.returncode == 0, done.stderr
            assert "12 models" in check(example, cluster.data, cluster.out)
            assert {task["node"] for task in cluster.run_json["tasks"]} == {0, 1}, "both hosts had tasks"
            cluster.assert_nothing_left()
            assert list(tmp_path.glob("tmp*/tidemill-*")) == []
        finally:
            cluster.close()
