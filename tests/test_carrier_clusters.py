"""Clusters that the carrier starts (python/carrier/clusters.py), with stand-ins for what starts them.

Kubernetes is only tested here: the stand-in for Dask's operator shows how its class is called, and
starts a scheduler and workers of this machine. SSH and Slurm have tests on real ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_carrier import CARRIER
from waiting import WAIT_SECONDS_MAX

pytest.importorskip("distributed")
OPERATOR = """
import asyncio, json, os
from distributed import LocalCluster

def note(name, what):
    with open(os.environ["NOTES"], "a") as notes:
        print(json.dumps([name, what]), file=notes)

class KubeCluster:
    def __init__(self, **options):
        note("made", options)
        self.options, self.local = options, None

    def __await__(self):
        return self.start().__await__()

    async def start(self):
        if os.environ.get("SLOW"):
            print("waits", flush=True)
            await asyncio.Event().wait()
        options = {"threads_per_worker": 1, "processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": None}
        self.local = await LocalCluster(n_workers=self.options["n_workers"], asynchronous=True, **options)
        return self

    @property
    def scheduler_address(self):
        return self.local.scheduler_address

    async def close(self):
        if self.local is not None:
            await self.local.close()
        note("closed", None)
"""


class Starting:
    """A carrier that is told to start a cluster."""

    def __init__(self, folder: Path, cluster: dict[str, Any], **environment: str) -> None:
        self.notes_file = folder / "notes"
        package = folder / "modules" / "dask_kubernetes"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "operator.py").write_text(OPERATOR)
        environment = {"PYTHONPATH": str(folder / "modules"), "NOTES": str(self.notes_file), **environment}
        command, pipe = [sys.executable, "-c", CARRIER], subprocess.PIPE
        self.process = subprocess.Popen(command, env=os.environ | environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        body = {"cluster": {"hosts": [], "workers": 2, "options": {}, **cluster}, "run": "Flow_x-1", "binary": "/nowhere/tidemill", "wait": 30}
        self.say({"open": body})

    def say(self, message: dict[str, Any]) -> None:
        """Sends a message."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> tuple[str, Any]:
        """The next message."""
        assert self.process.stdout
        return next(iter(json.loads(self.process.stdout.readline()).items()))

    def close(self) -> int:
        """Ends the standard input, as the end of a run does, however it ends."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(WAIT_SECONDS_MAX)

    def notes(self) -> list[Any]:
        """What the stand-in has seen."""
        return [json.loads(line) for line in self.notes_file.read_text().splitlines()]


def test_kubernetes_starts_the_operators_class_and_closes_it(tmp_path: Path) -> None:
    carrier = Starting(tmp_path, {"kind": "kubernetes", "options": {"image": "site/tidemill:1", "env": {"A": "b"}}})
    kind, opened = carrier.hear()
    assert (kind, opened["address"]) == ("opened", "127.0.0.1")
    told = []
    while not told or told[0]["workers"] < 2:
        kind, told = carrier.hear()
        assert kind == "hosts"
    assert carrier.close() == 0
    made = {"name": "tidemill-flow-x-1", "image": "site/tidemill:1", "env": {"A": "b"}, "quiet": True, "n_workers": 2, "asynchronous": True}
    assert carrier.notes() == [["made", made], ["closed", None]]


def test_a_cluster_that_does_not_start_is_closed_when_the_run_ends(tmp_path: Path) -> None:
    carrier = Starting(tmp_path, {"kind": "kubernetes"}, SLOW="1")
    assert carrier.process.stderr
    # Standard output of others goes to standard error; messages alone are on standard output.
    assert any(line == "waits\n" for line in carrier.process.stderr)
    assert carrier.close() == 0
    assert [name for name, _ in carrier.notes()] == ["made", "closed"]


@pytest.mark.parametrize(
    ("cluster", "environment", "message", "hint"),
    [
        ({"kind": "kubernetes"}, {"PYTHONPATH": ""}, "No module named 'dask_kubernetes'", "-m pip install dask-kubernetes"),
        ({"kind": "ssh", "hosts": ["127.0.0.1"], "options": {"remote_python": ["a", "b"]}}, {}, "an entry for each host", "one value for all"),
        ({"kind": "slurm", "options": {"cores": 2}}, {"SLURM_JOB_ID": "1"}, "inside of an allocation there is no option cores", "srun_extra_args"),
        ({"kind": "slurm"}, {"SLURM_JOB_ID": "1", "PATH": "/nowhere"}, "srun", "in PATH"),
    ],
    ids=["no-package", "lists", "options-of-jobs", "no-srun"],
)
def test_what_cannot_start_fails_with_a_hint(tmp_path: Path, cluster: dict[str, Any], environment: dict[str, str], message: str, hint: str) -> None:
    carrier = Starting(tmp_path, cluster, **environment)
    kind, failed = carrier.hear()
    assert kind == "failed"
    assert message in failed["message"]
    assert hint in failed["hint"]
    assert carrier.process.wait(WAIT_SECONDS_MAX) == 1
