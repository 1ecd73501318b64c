"""Pools of several nodes: their start, their use by commands and mounts, their end, and failures.

The nodes run on this machine. SSH and Slurm are replaced by scripts that start the given command,
as `ssh` and `srun` do.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import mount_unsupported_reason
from example_runs import ROOT
from waiting import wait_for

SECONDS_MAX = 60

SSH = """#!/bin/sh
# ssh [-o OPTION] HOST COMMAND: the other host is this one. Those called "dead" do not answer.
[ "$3" = dead ] && { echo "ssh: connect to host dead port 22: Connection refused" >&2; exit 255; }
[ "$3" = chatty ] && echo "Welcome to this host"
exec sh -c "$4"
"""

SRUN = """#!/usr/bin/env python3
# srun --nodes=N ...: N tasks, each with its rank; what comes in goes to all of them.
import os, subprocess, sys, threading
count = int(sys.argv[1].removeprefix("--nodes="))
first = next(at for at, word in enumerate(sys.argv[1:], 1) if not word.startswith("--"))
tasks = [subprocess.Popen(sys.argv[first:], env=os.environ | {"SLURM_PROCID": str(rank)}, stdin=subprocess.PIPE) for rank in range(count)]
def pass_on():
    for line in sys.stdin.buffer:
        for task in tasks:
            task.stdin.write(line)
            task.stdin.flush()
    for task in tasks:
        task.stdin.close()
threading.Thread(target=pass_on, daemon=True).start()
sys.exit(max(task.wait() for task in tasks))
"""


class Home:
    """A user's runtime directory, and commands that use it."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        # Not in the test's directory, whose path may be too long for a socket.
        self.runtime = Path(tempfile.mkdtemp(prefix="run-"))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "SLURM_"))}
        self.environment["XDG_RUNTIME_DIR"] = str(self.runtime)

    def run(self, *words: str | Path, stdin: bytes = b"", **more: str) -> subprocess.CompletedProcess[bytes]:
        """Runs a command to its end."""
        command = [str(self.binary), *map(str, words)]
        environment = self.environment | more
        return subprocess.run(command, env=environment, cwd=self.folder, input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False)

    def ok(self, *words: str | Path, stdin: bytes = b"", **more: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*words, stdin=stdin, **more)
        assert done.returncode == 0, f"{words}: {done.stderr.decode()}"
        return done.stdout.decode()

    def fails(self, *words: str | Path, code: int = 2, **more: str) -> str:
        """The error message of a command that must fail."""
        done = self.run(*words, **more)
        assert done.returncode == code, f"{words}: {done.returncode}: {done.stderr.decode()}"
        return done.stderr.decode()

    def status(self) -> list[dict[str, object]]:
        """All nodes, as `pool status --json` lists them, whether they answer or not."""
        return json.loads(self.run("pool", "status", "--json").stdout)["nodes"]

    def pids(self) -> list[int]:
        """Process ids of the nodes in the pool file."""
        return [node["pid"] for node in json.loads((self.runtime / "tidemill/pool").read_text())["nodes"]]

    def node_processes(self) -> list[int]:
        """Nodes whose pool file is in this home, found by their command lines."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"node" in words and any(word.startswith((os.fsencode(self.folder), os.fsencode(self.runtime))) for word in words):
                    found.append(int(entry.name))
        return found

    def leftover_files(self) -> list[str]:
        """Files that are left in the runtime directory."""
        folder = self.runtime / "tidemill"
        return sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.exists() else []

    def is_clean(self) -> bool:
        """True if no pool left anything."""
        return not self.node_processes() and not self.leftover_files()


@pytest.fixture
def home(binary: Path, tmp_path: Path) -> Iterator[Home]:
    """A home whose nodes are stopped after the test."""
    home = Home(binary, tmp_path)
    yield home
    for pid in home.node_processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(home.runtime)


@contextmanager
def mounted(home: Home, *flags: str | Path) -> Iterator[Path]:
    """A mount of the pool."""
    folder = home.folder / f"mount{len(list(home.folder.glob('mount*')))}"
    folder.mkdir()
    process = subprocess.Popen([home.binary, "mount", *flags, folder], env=home.environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "is mounted at" in process.stderr.readline()
        yield folder
    finally:
        home.ok("umount", folder)
        assert process.wait(SECONDS_MAX) == 0


def script(home: Home, name: str, text: str) -> Path:
    """Makes a program in the home."""
    path = home.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("paragraph", "shown"), [("A pool of several nodes.", "# Tidemill"), ("Without a mount", "readme.gz")])
def test_the_pools_of_the_readme_run_as_they_stand_there(home: Home, paragraph: str, shown: str) -> None:
    start = re.escape(f"**{paragraph}**")
    block = re.search(rf"{start}.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block
    shutil.copy(ROOT / "README.md", home.folder)
    environment = home.environment | {"PATH": f"{home.binary.parent}:{os.environ['PATH']}"}
    command = ["bash", "-e", "-c", block[1]]
    done = subprocess.run(command, env=environment, cwd=home.folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert len(block[1].strip().splitlines()) <= 5
    assert home.is_clean()


@pytest.mark.parametrize("nodes", [1, 4, 8])
def test_a_pool_starts_answers_and_leaves_nothing(home: Home, nodes: int) -> None:
    home.ok("pool", "start", "--nodes", str(nodes), "--memory", "64MiB", "--slots", "0")
    status = home.status()
    assert [node["id"] for node in status] == list(range(1, nodes + 1))
    assert {node["state"] for node in status} == {"up"}
    assert {(node["memory"], node["slots"]) for node in status} == {(64 << 20, 0)}
    assert sum(int(str(node["partitions"])) for node in status) == 4096
    home.ok("pool", "stop")
    assert home.is_clean()
    assert "there is no pool file" in home.fails("pool", "status")


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 5_000_000, 40_000_000])
def test_what_is_put_is_got(home: Home, size: int) -> None:
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB")
    data = random.Random(size).randbytes(size)
    (home.folder / "file").write_bytes(data)
    home.ok("put", "a/b/c", "file")
    home.ok("get", "a/b/c", "back")
    assert (home.folder / "back").read_bytes() == data
    assert home.run("cat", "a/b/c").stdout == data
    home.ok("cp", "a/b/c", "copies/1")
    assert home.run("get", "copies/1", "-").stdout == data
    home.ok("put", "a/b/c", "-", stdin=b"shorter")
    assert home.ok("cat", "a/b/c", "a/b/c") == "shorter" * 2
    assert home.ok("ls", "-r") == "a/\na/b/\na/b/c\ncopies/\ncopies/1\n"
    assert json.loads(home.ok("stat", "--json", "copies/1"))["size"] == size
    located = json.loads(home.ok("locate", "--json", "copies/1"))
    assert sum(share["bytes"] for share in located["nodes"]) == size
    home.ok("rm", "-r", "a", "copies")
    assert home.ok("ls") == ""
    assert {node["used"] for node in home.status()[1:]} == {0}, "all memory has come back"
    home.ok("pool", "stop")


def test_a_pool_file_that_lacks_nodes_leads_to_them_too(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB")
    data = random.Random(1).randbytes(8_000_000)
    (home.folder / "file").write_bytes(data)
    whole = json.loads((home.runtime / "tidemill/pool").read_text())
    for kept in range(4):
        older = home.folder / f"older{kept}"
        older.write_text(json.dumps(whole | {"nodes": [whole["nodes"][kept]]}))
        older.chmod(0o600)
        home.ok("put", "--pool", older, f"a/{kept}", "file")
        located = json.loads(home.ok("locate", "--pool", older, "--json", f"a/{kept}"))
        assert sorted(share["node"] for share in located["nodes"]) == [1, 2, 3, 4]
        assert home.run("cat", "--pool", older, f"a/{kept}").stdout == data
    home.ok("pool", "stop")


@pytest.mark.parametrize("size", [3, 5_000_000])
def test_a_put_under_a_condition_replaces_what_was_looked_at_and_nothing_else(home: Home, size: int) -> None:
    def version() -> str:
        return str(json.loads(home.ok("stat", "--json", "k"))["version"])

    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    home.ok("put", "--if-absent", "k", "-", stdin=bytes(size))
    first = version()
    home.ok("put", "--if-version", first, "k", "-", stdin=b"2" * size)
    second = version()
    assert second != first
    for condition in (["--if-absent"], ["--if-version", first]):
        assert f"k exists, in version {second}" in home.fails("put", *condition, "k", "-", code=1)
    assert "other does not exist" in home.fails("put", "--if-version", first, "other", "-", code=1)
    assert home.run("cat", "k").stdout == b"2" * size
    assert version() == second
    home.ok("put", "k", "-", stdin=b"")
    assert home.ok("cat", "k") == ""
    home.ok("pool", "stop")


def test_the_command_line_says_what_was_wrong_with_which_key(home: Home) -> None:
    home.ok("pool", "start", "--memory", "64MiB")
    home.ok("put", "a/b", "-", stdin=b"x")
    assert "a/x: no such file or directory" in home.fails("get", "a/x", "-", code=1)
    assert "a/b exists, in version" in home.fails("put", "--if-absent", "a/b", "-", code=1)
    assert "a is a directory" in home.fails("cat", "a", code=1)
    assert "rm -r" in home.fails("rm", "a", code=1)
    assert "a part of its path is not a directory" in home.fails("put", "a/b/c", "-", code=1)
    assert "no part of a key is" in home.fails("put", "a/..", "-", code=1)
    assert home.fails("put", "/", "-", code=1) == "error: / is a directory\n  hint: say which name the file gets in it\n", "what and why once"
    assert "the root directory cannot be removed" in home.fails("rm", "-r", "/", code=1)
    assert "not a version" in home.fails("put", "--if-version", "1", "a/b", "-")
    said = home.fails("put", "n" * 256, "-", code=1)
    assert "too long" in said
    assert "nnn... (256 bytes)" in said
    assert "No such file" in home.fails("put", "a/c", "missing", code=1)
    assert "no node 9 that holds data" in home.fails("put", "--placement", "at(9)", "a/c", "-", code=1)
    assert home.ok("ls", "a") == "b\n", "nothing came of all that"
    home.ok("pool", "stop")


def test_a_name_that_ends_with_a_slash_is_a_folder_and_what_comes_keeps_its_name(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    (home.folder / "file").write_text("hello")
    home.ok("put", "a/", "file")
    home.ok("cp", "a/file", "b/c/")
    home.ok("get", "b/c/file", home.runtime)
    assert (home.runtime / "file").read_text() == "hello"
    (home.runtime / "file").unlink()
    assert "say which name" in home.fails("put", "a/", "-", code=1)
    listed = [json.loads(line) for line in home.ok("ls", "--json", "-r").splitlines()]
    assert [(entry["key"], entry["kind"]) for entry in listed] == [
        ("a", "folder"),
        ("a/file", "file"),
        ("b", "folder"),
        ("b/c", "folder"),
        ("b/c/file", "file"),
    ]
    assert listed[1] == json.loads(home.ok("stat", "--json", "a/file"))
    status = json.loads(home.ok("pool", "status", "--json"))
    assert (status["up"], status["memory"], status["waiting"]) == (2, 128 << 20, 0)
    assert (status["used"], status["files"]) == tuple(sum(node[what] for node in status["nodes"]) for what in ("used", "files"))
    assert home.ok("pool", "status").splitlines()[-1].startswith("2 of 2 nodes of ")
    home.ok("pool", "stop")


def test_a_mount_says_once_that_a_node_is_silent_and_ends_with_its_pool(home: Home) -> None:
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    folder = home.folder / "mount"
    folder.mkdir()
    for way in ("nodes killed", "pool stopped"):
        home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
        command = [home.binary, "mount", "--pool", home.runtime / "tidemill/pool", folder]
        process = subprocess.Popen(command, env=home.environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "is mounted at" in process.stderr.readline()
        for number in range(60):
            (folder / f"d{number}").mkdir()
        pids = home.pids()
        if way == "nodes killed":
            os.kill(pids[1], signal.SIGKILL)
            listed = subprocess.run(["ls", "-lR", folder], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
            assert "d59" in listed.stdout + listed.stderr
            os.kill(pids[0], signal.SIGKILL)
        else:
            home.ok("pool", "stop")
        said = process.communicate(timeout=SECONDS_MAX)[1]
        assert process.returncode == 1, said
        assert said.count("the pool of ") == said.count("has ended, and its mount ends with it") == 1, said
        assert all(said.count(f"warning: node {node} does not answer") <= 1 for node in (1, 2)), said
        assert len(said.splitlines()) <= 4, said
        assert not os.path.ismount(folder)
    assert home.run("umount", folder / "none").stderr.decode().endswith("is not a Tidemill mount: it is not there\n")


def test_a_second_pool_at_the_same_file_is_refused_and_the_first_goes_on(home: Home) -> None:
    home.ok("pool", "start", "--memory", "64MiB")
    home.ok("put", "k", "-", stdin=b"kept")
    assert "1 of its 1 nodes answer" in home.fails("pool", "start", "--nodes", "2")
    assert home.ok("cat", "k") == "kept"
    home.ok("pool", "start", "--memory", "64MiB", "--pool", "other")
    assert home.ok("ls", "--pool", "other") == ""
    home.ok("pool", "stop", "--pool", "other")
    home.ok("pool", "stop")
    assert home.is_clean()


def test_the_file_of_a_pool_that_is_no_more_is_replaced_and_other_files_are_not(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    for pid in home.pids():
        os.kill(pid, signal.SIGKILL)
    said = home.fails("ls")
    assert "no node of the pool of" in said
    assert "pool status" in said
    done = home.run("pool", "start", "--memory", "64MiB")
    assert done.returncode == 0
    assert "does not run any more" in done.stderr.decode()
    home.ok("pool", "stop")
    assert not home.node_processes()
    foreign = home.folder / "notes.txt"
    foreign.write_text("mine")
    assert "not a pool file" in home.fails("pool", "start", "--pool", foreign)
    assert foreign.read_text() == "mine"


def test_a_node_that_died_is_named_and_the_others_go_on(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB")
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        home.ok("put", key, "-", stdin=key.encode())
    os.kill(home.pids()[3], signal.SIGKILL)
    assert [node["state"] for node in home.status()] == ["up", "up", "up", "down"]
    assert home.run("pool", "status").returncode == 1
    homes = {key: json.loads(home.ok("locate", "--json", key))["inode"] for key in keys[:4]}
    assert set(homes.values()) == {1}, "small files lie beside their names"
    assert home.ok("cat", *keys) == "".join(keys)
    done = home.run("pool", "stop")
    assert "node 4" in done.stderr.decode()
    assert done.returncode == 0
    assert home.is_clean()


def test_what_the_other_nodes_hold_is_listed_and_who_does_not_answer_is_named(home: Home) -> None:
    if reason := mount_unsupported_reason():
        pytest.skip(reason)
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    folders = [f"d{number}" for number in range(12)]
    for folder in folders:
        home.ok("put", f"{folder}/f", "-", stdin=b"x")
    homes = {folder: json.loads(home.ok("locate", "--json", folder))["inode"] for folder in folders}
    lost = sorted(folder for folder in folders if homes[folder] == 2)
    assert 0 < len(lost) < 12
    with mounted(home, "--pool", home.runtime / "tidemill/pool") as folder:
        os.kill(home.pids()[1], signal.SIGKILL)
        assert sorted(entry.name for entry in folder.iterdir()) == sorted(folders), "also those whose inodes are lost"
        assert (folder / next(name for name in folders if homes[name] == 1) / "f").read_bytes() == b"x"
        with pytest.raises(OSError, match="Input/output"):
            (folder / lost[0]).stat()
        done = home.run("ls", "-l", "-r")
        listed, said = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == 1
        assert all((f" {name}/f\n" in listed) == (homes[name] == 1) for name in folders), listed
        assert all(f"{name}: a node that is needed does not answer: node 2: " in said for name in lost), said
    home.run("pool", "stop")
    assert home.is_clean()


def test_a_node_that_hangs_is_ended_by_stop(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    os.kill(home.pids()[1], signal.SIGSTOP)
    assert [node["state"] for node in home.status()] == ["up", "down"]
    assert "did not answer" in home.run("pool", "stop").stderr.decode()
    assert home.is_clean()


def test_a_start_that_is_killed_at_any_moment_leaves_nothing(home: Home) -> None:
    chance = random.Random(3)
    survived = 0
    for _ in range(25):
        starter = subprocess.Popen([home.binary, "pool", "start", "--nodes", "3", "--memory", "64MiB"], env=home.environment, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            starter.wait(chance.uniform(0, 0.05))
        starter.kill()
        starter.wait()
        wait_for(lambda: len(home.node_processes()) in (0, 3), "some nodes of a start are left")
        if home.run("pool", "status").returncode == 0:
            survived += 1
        else:
            wait_for(lambda: not home.node_processes(), "a node outlived its starter")
        home.run("pool", "stop")
        wait_for(lambda: not home.node_processes(), "a node was left")
    home.ok("pool", "start", "--memory", "64MiB")
    home.ok("pool", "stop")
    assert home.leftover_files() == []
    assert survived < 25, "none was killed in time"


@pytest.mark.parametrize("stands", [True, False])
def test_a_node_whose_starter_was_ended_stays_where_the_pool_file_names_it(home: Home, stands: bool) -> None:  # noqa: FBT001 - both cases are tested
    file = home.folder / "own.pool"
    command, pipe = [home.binary, "node", "--pool", file, "--id", "1"], subprocess.PIPE
    node = subprocess.Popen(command, env=home.environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert node.stdin is not None
    assert node.stdout is not None
    with node.stdin as told, node.stdout as said:
        seat = {"id": 1, "nodes_here": 1, "reach": "Here", "port": 0, "memory": {"Bytes": 64 << 20}, "slots": 0}
        version = home.ok("--version").split()[1]
        order = {
            "version": version,
            "pool": "b" * 32,
            "token": "a" * 64,
            "identity": None,
            "partitions": 16,
            "space_wait": {"secs": 1, "nanos": 0},
            "seats": [seat],
        }
        print(json.dumps(order), file=told, flush=True)
        here = json.loads(said.readline())["Here"]
        print(json.dumps({"Deal": [here]}), file=told, flush=True)
        assert json.loads(said.readline()) == {"Ready": 1}
        if stands:
            file.touch(mode=0o600)
            file.write_text(
                json.dumps({"tidemill_pool": 2, "started": 0, "id": "b" * 32, "token": "a" * 64, "partitions": 16, "max_nodes": 1, "nodes": [here]})
            )
    if stands:
        assert "of 64 MiB used" in home.ok("pool", "status", "--pool", file)
        home.ok("pool", "stop", "--pool", file)
    assert (node.wait(SECONDS_MAX) == 0) == stands
    assert home.is_clean()


def test_a_port_in_use_is_named_and_nothing_is_half_started(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = home.fails("pool", "start", "--nodes", "2", "--memory", "64MiB", "--port", str(port - 1))
        assert f"127.0.0.1:{port}" in said
        assert said.count("in use") == 1, "said once, by the starter"
    assert home.is_clean()


def test_a_node_cannot_be_looked_into(home: Home) -> None:
    # An unprivileged user can read the descriptors of his own processes, unless they are not
    # dumpable.
    no_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []

    def is_listed(number: int) -> bool:
        return subprocess.run([*no_rights, "readlink", f"/proc/{number}/fd/0"], capture_output=True, check=False).returncode == 0

    subprocess.run([*no_rights, home.binary, "pool", "start", "--memory", "64MiB", "--quiet"], env=home.environment, check=True)
    pid = json.loads((home.runtime / "tidemill/pool").read_text())["nodes"][0]["pid"]
    with subprocess.Popen([*no_rights, "cat"], stdin=subprocess.PIPE) as other:
        wait_for(lambda: is_listed(other.pid), "another process of the user is seen")
        assert other.stdin is not None
        other.stdin.close()
    wait_for(lambda: not is_listed(pid), "nobody looks into it")
    home.ok("pool", "stop")


def test_a_wrong_token_is_refused_and_others_notice_nothing(home: Home) -> None:
    home.ok("pool", "start", "--memory", "64MiB")
    home.ok("put", "k", "-", stdin=b"v")
    file = json.loads((home.runtime / "tidemill/pool").read_text())
    (home.folder / "forged").write_text(json.dumps(file | {"token": "0" * 64}))
    assert "token" in home.fails("ls", "--pool", "forged")
    assert home.ok("cat", "k") == "v"
    home.ok("pool", "stop")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--memory", "1KiB"], "too little"),
        (["--memory", "0"], "a pool needs a node with memory"),
        (["--nodes", "4", "--max-nodes", "2"], "--max-nodes 2"),
        (["--partitions", "100"], "100"),
        (["--nodes", "8", "--partitions", "4"], "at least one"),
        (["--port", "65535", "--nodes", "2"], "no port for node 2"),
        (["--pool", "/nowhere/pool"], "/nowhere/pool"),
    ],
)
def test_what_no_pool_can_be_is_refused_before_anything_runs(home: Home, flags: list[str], why: str) -> None:
    said = home.fails("pool", "start", *flags)
    assert why in said
    assert said.count("error:") == 1
    assert home.is_clean()


def test_where_paths_are_too_long_for_sockets_they_lie_in_memory(home: Home) -> None:
    deep = home.folder / ("d" * 100)
    deep.mkdir(mode=0o700)
    home.environment["XDG_RUNTIME_DIR"] = str(deep)
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    home.ok("put", "k", "-", stdin=b"v")
    assert home.ok("cat", "k") == "v"
    sockets = [Path(node["addresses"][0].removeprefix("unix:")) for node in home.status()]
    assert all(path.is_socket() and path.is_relative_to("/dev/shm") for path in sockets)
    home.ok("pool", "stop")
    assert not home.node_processes()
    assert not any(path.parent.exists() for path in sockets)


def test_hosts_are_reached_over_ssh_and_named(home: Home) -> None:
    ssh = script(home, "ssh", SSH)
    home.ok("pool", "start", "--hosts", "127.0.0.1,127.0.0.2,ada@127.0.0.1", "--ssh", str(ssh), "--memory", "64MiB")
    assert [node["host"] for node in home.status()] == ["127.0.0.1", "127.0.0.2", "127.0.0.1"]
    assert any("127.0.0.2" in str(address) for address in home.status()[1]["addresses"])
    home.ok("put", "k", "-", stdin=b"v")
    assert home.ok("cat", "k") == "v"
    home.ok("pool", "stop")
    assert home.is_clean()


@pytest.mark.parametrize(("host", "why"), [("dead", "node 2 at dead ended before it was ready"), ("chatty", "must not go to standard output")])
def test_a_host_that_does_not_do_its_part_is_named_and_nothing_is_half_started(home: Home, host: str, why: str) -> None:
    ssh = script(home, "ssh", SSH)
    assert why in home.fails("pool", "start", "--hosts", f"127.0.0.1,{host}", "--ssh", str(ssh), "--memory", "64MiB")
    wait_for(home.is_clean, f"left: {home.node_processes()} {home.leftover_files()}")


def test_inside_a_slurm_allocation_each_host_gets_a_node(home: Home) -> None:
    path = f"{script(home, 'srun', SRUN).parent}:{os.environ['PATH']}"
    home.ok("pool", "start", "--memory", "64MiB", SLURM_JOB_NUM_NODES="3", PATH=path)
    assert [node["state"] for node in home.status()] == ["up"] * 3
    home.ok("pool", "stop")
    wait_for(home.is_clean, "srun ends with its tasks")


def test_a_put_that_is_killed_leaves_nothing(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "2", "--memory", "64MiB")
    home.ok("put", "k", "-", stdin=b"before")
    empty = [node["used"] for node in home.status()]
    for _ in range(3):
        putting = subprocess.Popen([home.binary, "put", "k", "-"], env=home.environment, stdin=subprocess.PIPE)
        assert putting.stdin is not None
        putting.stdin.write(bytes(9_000_000))
        putting.stdin.flush()
        wait_for(lambda: [node["used"] for node in home.status()] != empty, "nothing was written")
        putting.kill()
        putting.wait()
        putting.stdin.close()
        wait_for(lambda: [node["used"] for node in home.status()] == empty, "what was written is left")
        assert home.ok("cat", "k") == "before"
    home.ok("pool", "stop")


@pytest.mark.skipif(mount_unsupported_reason() is not None, reason=str(mount_unsupported_reason()))
def test_mounts_of_a_pool_show_what_others_do_at_once(home: Home) -> None:
    home.ok("pool", "start", "--nodes", "4", "--memory", "64MiB")
    file = home.runtime / "tidemill/pool"
    with mounted(home, "--pool", file) as one, mounted(home, "--pool", file) as other:
        (one / "folder").mkdir()
        for number in range(50):
            (one / "folder" / "now").write_text(str(number))
            assert (other / "folder" / "now").read_text() == str(number)
            (other / "folder" / "now").rename(other / "folder" / str(number))
            assert sorted(int(path.name) for path in (one / "folder").iterdir()) == list(range(number + 1))
        home.ok("put", "folder/put", "-", stdin=bytes(3_000_000))
        assert (one / "folder" / "put").stat().st_size == 3_000_000
        assert os.statvfs(one).f_blocks * os.statvfs(one).f_frsize == 4 * (64 << 20)
        assert "no_such" not in home.fails("mount", "--pool", home.folder / "no_such_pool", home.folder).split("hint")[1]
    home.ok("pool", "stop")
    assert home.is_clean()
