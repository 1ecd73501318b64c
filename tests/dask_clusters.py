"""Real Dask clusters for tests: a scheduler and workers on hosts that are network namespaces.

    with dask_cluster(folder, net, workers=[1, 2], scheduler=0) as dask: ...

Host 0 is usually the user's and the scheduler's; the others have workers. Each host has its own
runtime directory, as hosts that are machines would.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hosts import Network
from waiting import wait_for

PORT = 8786
SECONDS_MAX = 120
TOOLS = """
version = 1

[tools.make]
command = ["sh", "-c", "cat $1 > $2; echo $3 >> $2", "sh", "{from}", "{to}", "{word}"]
inputs.from = {}
outputs.to = {}
config.word = { type = "string", default = "made" }

[tools.copy]
command = ["cp", "{from}", "{to}"]
inputs.from = {}
outputs.to = {}

[tools.join]
command = ["cat", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = { extension = ".txt" }

[tools.shell]
command = ["sh", "-c", "{script}", "sh", "{from}", "{to}"]
inputs.from = { optional = true }
outputs.to = {}
config.script = { type = "string" }
"""


class DaskCluster:
    """A Dask scheduler with workers, and runs of `tidemill` on it."""

    def __init__(self, binary: Path, folder: Path, net: Network, scheduler: int) -> None:
        self.binary, self.folder, self.net, self.scheduler_host = binary, folder, net, scheduler
        self.data, self.out, self.report = folder / "data", folder / "out", folder / "report"
        self.tools, self.workflow = folder / "tools.toml", folder / "flow.js"
        self.data.mkdir(exist_ok=True)
        (self.data / "in.txt").write_text("tide\n")
        self.tools.write_text(TOOLS)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Memory of each node, and the time limit of a run.
        self.memory, self.seconds_max = "64MiB", SECONDS_MAX

    @property
    def address(self) -> str:
        """The address of the scheduler, as `--on` takes it."""
        return f"dask://{self.net.address(self.scheduler_host)}:{PORT}"

    def runtime(self, host: int) -> Path:
        """The runtime directory of a host."""
        path = self.folder / f"rt{host}"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def environment(self, host: int, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of processes of a host."""
        mine = {"XDG_RUNTIME_DIR": str(self.runtime(host)), "TIDEMILL": str(self.binary), "TIDEMILL_PYTHON": sys.executable}
        return {**os.environ, **mine, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20", **(extra or {})}

    def spawn(self, name: str, host: int, *words: str, extra: dict[str, str] | None = None) -> None:
        """Starts a process on a host that lives until it is ended."""
        log = (self.folder / f"{name}.log").open("ab")
        command = self.net.inside(host, *words)
        self.processes[name] = subprocess.Popen(command, env=self.environment(host, extra), cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def start_scheduler(self) -> None:
        """Starts the scheduler, and waits until it listens."""
        address = self.net.address(self.scheduler_host)
        words = ["--host", address, "--port", str(PORT), "--no-dashboard"]
        self.spawn("scheduler", self.scheduler_host, sys.executable, "-m", "distributed.cli.dask_scheduler", *words)

    def start_worker(self, name: str, host: int, threads: int = 1, *flags: str, extra: dict[str, str] | None = None, hidden: Sequence[Path] = ()) -> None:
        """Starts a worker on a host, which sees empty directories in place of the hidden ones."""
        scheduler = f"tcp://{self.net.address(self.scheduler_host)}:{PORT}"
        words = [scheduler, "--host", self.net.address(host), "--nworkers", "1", "--nthreads", str(threads), "--no-dashboard", "--name", name, *flags]
        mounts = [f"mount -t tmpfs tmpfs {shlex.quote(str(directory))} && " for directory in hidden]
        # Mounts of other tests would stay alive as long as this namespace.
        alone = "umount -a -l -t fuse.tidemill 2> /dev/null; "
        hide = ["unshare", "-m", "sh", "-c", f'{alone}{"".join(mounts)}exec "$@"', "sh"] if hidden else []
        self.spawn(name, host, *hide, sys.executable, "-m", "distributed.cli.dask_worker", *words, extra=extra)

    def kill(self, name: str) -> None:
        """Kills a process with its children (a nanny has its worker as one), but no agents."""
        process = self.processes.pop(name)
        for pid in [*descendants(process.pid, set(self.agents())), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def arguments(self, *flags: str, on: bool = True) -> list[str]:
        """The command line of a run."""
        cluster = ["--on", self.address, "--memory", self.memory] if on else []
        fixed = [self.workflow, "--data", self.data, "--tools", self.tools, "--out", self.out, "--report", self.report]
        return [str(word) for word in (self.binary, "run", *fixed, *cluster, *flags)]

    def run(self, *flags: str, on: bool = True, extra: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the workflow to its end, from the scheduler's host."""
        shutil.rmtree(self.report, ignore_errors=True)
        command = self.net.inside(self.scheduler_host, *self.arguments(*flags, on=on))
        environment = self.environment(self.scheduler_host, extra)
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=self.seconds_max, check=False)

    def start(self, *flags: str) -> subprocess.Popen[str]:
        """Starts a run in the background that prints events."""
        command = self.net.inside(self.scheduler_host, *self.arguments("--json", *flags))
        stderr = (self.folder / "run.err").open("ab")
        return subprocess.Popen(command, env=self.environment(self.scheduler_host), cwd=self.folder, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def resume(self, *flags: str) -> subprocess.Popen[str]:
        """Resumes the run in the background, by nothing but its directory."""
        command = self.net.inside(self.scheduler_host, str(self.binary), "run", "--resume", str(self.report), "--json", *flags)
        stderr = (self.folder / "run.err").open("ab")
        return subprocess.Popen(command, env=self.environment(self.scheduler_host), cwd="/", stdout=subprocess.PIPE, stderr=stderr, text=True)

    def errors(self) -> str:
        """What runs in the background printed to standard error."""
        return (self.folder / "run.err").read_text()

    @property
    def run_json(self) -> dict:
        """The report of the last run."""
        return json.loads((self.report / "run.json").read_text())

    def script(self, text: str) -> None:
        """Writes the workflow."""
        self.workflow.write_text(text)

    def agents(self) -> list[int]:
        """The agents and nodes of this cluster's runs, with the processes that guard their tools."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                mine = str(self.folder).encode() in (entry / "environ").read_bytes()
                if mine and len(words) > 1 and words[1] in (b"agent", b"node") and b"tidemill" in words[0]:
                    found.append(int(entry.name))
        return found

    def node_of(self, host: int) -> int:
        """The node of a host."""
        wanted = f"XDG_RUNTIME_DIR={self.runtime(host)}".encode()
        mine = [pid for pid in self.agents() if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
        return next(pid for pid in mine if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == b"node")

    def agent_of(self, host: int) -> int:
        """The agent of a host: the parent of its node."""
        return int(Path(f"/proc/{self.node_of(host)}/stat").read_text().rpartition(")")[2].split()[1])

    def mounts(self) -> list[str]:
        """Mount points of agents."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if str(self.folder) in line.split()[4]]

    def leftovers(self) -> list[str]:
        """Everything that runs left on the hosts."""
        mounts = self.mounts()
        folders = [str(path) for path in self.folder.glob("rt*/tidemill/*") if path.is_dir() or path.suffix == ".log"]
        shared = [str(path) for path in Path("/dev/shm").glob(f"tidemill-*-{self.workflow.stem}-*") if self.is_mine(path)]
        return [*map(str, self.agents()), *mounts, *folders, *shared]

    def is_mine(self, path: Path) -> bool:
        """True if a directory on the RAM disk is one of this cluster's last run."""
        return self.report.exists() and (self.report / "run.json").exists() and self.run_json["id"] in path.name

    def assert_nothing_left(self) -> None:
        """Waits until nothing of any run is left."""
        try:
            wait_for(lambda: not self.leftovers(), "something was left")
        except RuntimeError:
            raise AssertionError(self.leftovers()) from None

    def pythons(self, *hosts: int) -> list[str]:
        """Processes of Python on hosts: those of Dask, and what keeps them."""
        found = []
        for host in hosts:
            listed = subprocess.run(["ip", "netns", "pids", self.net.name(host)], capture_output=True, text=True, check=True)
            for pid in listed.stdout.split():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found += [f"{host}: {words}"] if "python" in words else []
        return found

    def close(self) -> None:
        """Ends all processes."""
        for name in list(self.processes):
            self.kill(name)
        for pid in self.agents():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for mount in self.mounts():
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def descendants(pid: int, without: set[int]) -> list[int]:
    """The children of a process, and theirs, but for some with all theirs."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if child not in without:
                    found += [child, *descendants(child, without)]
    return found


def next_event(process: subprocess.Popen[str], kind: str, **wanted: object) -> dict:
    """Reads events of a run until one of a kind comes, with these fields."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == kind and all(event.get(name) == value for name, value in wanted.items()):
            return event
    raise AssertionError(f"the run ended with {process.wait()} before {kind} {wanted} came")


def next_warning(process: subprocess.Popen[str], text: str) -> str:
    """Reads events of a run until a warning with this text comes."""
    while text not in (warning := next_event(process, "warning")["text"]):
        pass
    return warning


@contextmanager
def dask_cluster(binary: Path, folder: Path, net: Network, workers: dict[int, int], scheduler: int = 0) -> Iterator[DaskCluster]:
    """A cluster with one worker on each of these hosts, of so many threads."""
    made = DaskCluster(binary, folder, net, scheduler)
    try:
        made.start_scheduler()
        for host, threads in workers.items():
            made.start_worker(f"w{host}", host, threads)
        yield made
    finally:
        made.close()
