"""A directory with data, tools and a script, and the real binary to run them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = r"""
version = 1

[tools.copy]
command = ["cp", "{from}", "{to}"]
version = ["cp", "--version"]
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.shell]
command = ["sh", "-c", "{script}", "sh", "{to}"]
outputs.to = { extension = ".txt" }
config.script = { type = "string" }

[tools.frugal]
command = ["sh", "-c", "{script}", "sh", "{to}"]
memory = "64MiB"
outputs.to = { extension = ".txt" }
config.script = { type = "string" }

[tools.measure]
command = ["sh", "-c", "wc -c < $1", "sh", "{from}"]
stdout = "{to}"
inputs.from = {}
outputs.to = { extension = ".txt" }

[tools.slow]
command = ["sh", "-c", "sleep 60", "sh", "{to}"]
timeout = "300ms"
outputs.to = {}

[tools.flaky]
# Fails twice; a file that an earlier attempt left would be seen.
command = ["sh", "-c", "test ! -e trace && touch trace && test $TIDEMILL_ATTEMPT -ge 3 && echo attempt $TIDEMILL_ATTEMPT > $1", "sh", "{to}"]
retries = 3
outputs.to = { extension = ".txt" }

[tools.both]
command = ["sh", "-c", "cp $1 $2 && head -c 64000000 /dev/zero > $3", "sh", "{from}", "{to}", "{big}"]
inputs.from = {}
outputs.to = {}
outputs.big = {}

[tools.vandal]
command = ["sh", "-c", "echo vandal > $1 && echo done > $2", "sh", "{from}", "{to}"]
inputs.from = {}
outputs.to = {}

[tools.spread]
command = ["sh", "-c", "echo a > $1; echo c > $3", "sh", "{to}"]
outputs.to = { array = "args" }

[tools.join_args]
command = ["cat", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = { extension = ".txt" }

[tools.join_list]
command = ["sh", "-c", "xargs cat < $1", "sh", "{from}"]
stdout = "{to}"
inputs.from = { array = "list" }
outputs.to = { extension = ".txt" }

[tools.join_dir]
command = ["ls", "{from}"]
stdout = "{to}"
inputs.from = { array = "dir" }
outputs.to = { extension = ".txt" }

[tools.count_args]
command = ["sh", "-c", "echo $1 $(wc -l < ${{1#@}})", "sh", "{from}"]
stdout = "{to}"
inputs.from = { array = "args" }
outputs.to = { extension = ".txt" }
"""


@dataclass
class Run:
    """The result of a run."""

    code: int
    out: str
    err: str
    report: dict


class Workbench:
    """Everything that a test of `tidemill run` needs."""

    def __init__(self, binary: Path, root: Path, storage: str) -> None:
        self.binary, self.root, self.storage = binary, root, storage
        self.data, self.out, self.report = root / "data", root / "out", root / "report"
        self.tools, self.workflow, self.runtime = root / "tools.toml", root / "flow.js", root / "runtime"
        self.staging_dirs_before, self.groups_before = self.staging_dirs(), self.groups()
        self.data.mkdir()
        self.runtime.mkdir(mode=0o700)
        (self.data / "in.txt").write_text("tide\n")
        self.tools.write_text(TOOLS)
        self.events: dict[int, list[dict]] = {}

    def script(self, text: str) -> None:
        """Writes the script."""
        self.workflow.write_text(text)

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of the binary: a runtime directory and the storage mode under test."""
        mine = {"XDG_RUNTIME_DIR": str(self.runtime), "TIDEMILL_STORAGE": self.storage}
        return {**os.environ, **mine, **(extra or {})}

    def arguments(self, *flags: str, out: Path | None = None) -> list[str]:
        """The command line of a run."""
        fixed = ["--data", self.data, "--tools", self.tools, "--out", out or self.out, "--report", self.report]
        # A flag given by the test replaces the default one.
        given = {str(flag) for flag in flags}
        kept = [word for pair in zip(fixed[::2], fixed[1::2], strict=True) if pair[0] not in given for word in pair]
        return [str(word) for word in (self.binary, "run", self.workflow, *kept, *flags)]

    def command_line(self, *flags: str) -> str:
        """The command line of a run for a shell."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment().items() if name in ("XDG_RUNTIME_DIR", "TIDEMILL_STORAGE"))
        return f"{settings} {shlex.join(self.arguments(*flags))}"

    def run(self, *flags: str, env: dict[str, str] | None = None, out: Path | None = None) -> Run:
        """Runs the workflow to the end."""
        shutil.rmtree(self.report, ignore_errors=True)
        command = self.arguments(*flags, out=out)
        done = subprocess.run(command, cwd=self.root, env=self.environment(env), capture_output=True, text=True, timeout=120, check=False)
        file = self.report / "run.json"
        report = json.loads(file.read_text()) if file.exists() else {}
        return Run(done.returncode, done.stdout, done.stderr, report)

    def tidemill(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Runs any other command."""
        command = [str(self.binary), *(str(word) for word in words)]
        return subprocess.run(command, cwd=self.root, env=self.environment(), capture_output=True, text=True, timeout=120, check=False)

    def start(self, *flags: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts a run in the background; `wait_for_event` reads its standard output."""
        stdout = subprocess.PIPE if "--json" in flags else subprocess.DEVNULL
        return subprocess.Popen(self.arguments(*flags), cwd=self.root, env=self.environment(env), stdout=stdout, stderr=subprocess.DEVNULL, text=True)

    def next_event(self, process: subprocess.Popen[str]) -> dict:
        """The next event of a run with --json."""
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the run ended with {process.wait()} before the event came"
        return json.loads(line)

    def wait_for_event(self, process: subprocess.Popen[str], kind: str) -> dict:
        """Reads events until one of `kind` comes."""
        while True:
            event = self.next_event(process)
            if event["event"] == kind:
                return event

    def last_progress(self, process: subprocess.Popen[str]) -> dict:
        """The next progress event."""
        return self.wait_for_event(process, "progress")

    @staticmethod
    def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
        """Waits until the condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.01)

    @staticmethod
    def processes(command: str) -> list[int]:
        """Processes with exactly this command line."""
        wanted, found = command.split(), []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
            except OSError:
                continue
            if [word.decode(errors="replace") for word in words] == wanted:
                found.append(int(folder.name))
        return found

    def mounts(self) -> list[str]:
        """Mount points below this directory."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(self.root))]

    @staticmethod
    def can_mount() -> bool:
        """True if this user can use FUSE."""
        return os.access("/dev/fuse", os.R_OK | os.W_OK) and (os.geteuid() == 0 or shutil.which("fusermount3") is not None)

    @staticmethod
    def staging_dirs() -> set[str]:
        """Directories of staging runs of any user on the RAM disk."""
        return {str(path) for path in Path("/dev/shm").glob("tidemill-*-flow-*")}

    @staticmethod
    def group_parent() -> Path | None:
        """The control group of this process, if groups below it can limit memory."""
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        one = [Path("/sys/fs/cgroup/memory", path.lstrip("/")) for _, names, path in lines if "memory" in names.split(",")]
        two = [Path("/sys/fs/cgroup", path.lstrip("/")) for _, names, path in lines if not names]
        parent = (one or two or [Path("/none")])[0]
        control = parent / ("memory.limit_in_bytes" if one else "cgroup.subtree_control")
        passes_on = bool(one) or (control.exists() and "memory" in control.read_text().split())
        return parent if passes_on and control.exists() and os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK) else None

    @classmethod
    def groups(cls) -> set[str]:
        """Control groups of runs of any user."""
        parent = cls.group_parent()
        return {str(path) for path in parent.glob("tidemill-flow-*")} if parent else set()

    def leftovers(self) -> list[str]:
        """Everything that pools and runs left behind.

        These are directories in the runtime directory (its lock file may stay), directories on the
        RAM disk, and control groups. The last two have one place for all runs of the machine: those
        of other tests belong to a process that lives, or are removed soon.
        """
        end = time.monotonic() + 20
        while (shared := self.of_ended_runs()) and time.monotonic() < end:
            time.sleep(0.05)
        pools = [str(path) for path in self.runtime.rglob("*") if path.is_dir() and path.parent != self.runtime]
        return shared + pools

    def of_ended_runs(self) -> list[str]:
        """New directories and control groups of runs whose process has ended."""
        new = (self.staging_dirs() - self.staging_dirs_before) | (self.groups() - self.groups_before)
        return sorted(name for name in new if not Path("/proc", name.removesuffix("-door").rpartition("-")[2]).exists())
