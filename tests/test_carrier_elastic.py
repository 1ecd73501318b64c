"""Clusters that grow and shrink as a run wants (`HostAdaptive` of python/carrier/carrier.py).

Workers at several addresses of the loopback interface stand for hosts. Jobs of Slurm are processes
of this machine, by stand-ins for its commands.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_carrier import CARRIER
from test_carrier_clusters import Starting
from waiting import WAIT_SECONDS_MAX

distributed = pytest.importorskip("distributed")
ProcessInterface = pytest.importorskip("distributed.deploy.spec").ProcessInterface
HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
# Objects of Dask, which has few types.
Value = Any
# The program of the carrier as a module: a run starts it as text.
PROGRAM = ModuleType("carrier_program")
sys.modules[PROGRAM.__name__] = PROGRAM
exec(CARRIER, PROGRAM.__dict__)  # noqa: S102 (as a run does)
# A job is a session of its own; its id is that of its first process. The script is read at once, as
# Dask removes it then.
SBATCH = '#!/bin/sh\ncp "$1" "$HOME/job.$$"\nsetsid sh "$HOME/job.$$" > /dev/null 2>&1 &\necho Submitted batch job $!\n'
SCANCEL = '#!/bin/sh\nkill -9 -- -"$1"\n'


class NoWorker(ProcessInterface):  # type: ignore[misc]
    """A worker on a host that is not reached."""

    async def start(self) -> None:
        """Fails as a connection does."""
        raise OSError("no route to nowhere")


def worker(scheduler: str, kwargs: dict[str, Value], host: str, **_: Value) -> Value:
    """Starts a worker, as Dask starts one by SSH."""
    if host == "nowhere":
        return NoWorker()
    return distributed.Worker(scheduler, host=host, nthreads=1, dashboard=False, **kwargs)


@asynccontextmanager
async def cluster_of(hosts: list[str], workers: int) -> AsyncIterator[tuple[Value, Value]]:
    """A cluster that begins with so many workers of these hosts, and what follows the run."""
    specs = {number: {"cls": worker, "options": {"kwargs": {}, "host": host}} for number, host in enumerate(hosts)}
    scheduler = {"cls": distributed.Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    made = distributed.SpecCluster(specs, scheduler, asynchronous=True, scheduler_sync_interval=0.05)
    PROGRAM.keep_spares(made, workers)
    async with made:
        adaptive = PROGRAM.HostAdaptive(made, interval=0)
        await until(adaptive, lambda: len(hosts_of(made)) == workers)
        yield made, adaptive


async def until(adaptive: Value, done: Callable[[], bool]) -> None:
    """Looks as often as Dask does whether the cluster is as it should be, until it is."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not done():
            await adaptive.adapt()
            await asyncio.sleep(0.01)


def hosts_of(made: Value) -> list[str]:
    """The hosts whose workers the scheduler has, as far as the cluster was told."""
    known = [PROGRAM.place_of(address) for address in made.scheduler.workers]
    told = [PROGRAM.place_of(address) for address in made.scheduler_info["workers"]]
    return sorted(known) if sorted(known) == sorted(told) else []


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a test on an event loop of its own."""
    asyncio.run(work)


def test_only_workers_of_released_hosts_are_closed_and_hosts_come_again() -> None:
    async def work() -> None:
        async with cluster_of(HOSTS, 1) as (made, adaptive):
            assert hosts_of(made) == HOSTS[:1]
            adaptive.follow(3, [])
            await until(adaptive, lambda: hosts_of(made) == HOSTS)
            adaptive.follow(2, [])
            await adaptive.adapt()
            assert len(made.plan) == 3, "none is closed that was not released"
            adaptive.follow(2, [HOSTS[1]])
            await until(adaptive, lambda: hosts_of(made) == [HOSTS[0], HOSTS[2]])
            adaptive.follow(3, [])
            await until(adaptive, lambda: hosts_of(made) == HOSTS)
            await adaptive.adapt()
            assert len(made.plan) == 3, "a host that came again was closed"

    run(work())


def test_a_worker_that_does_not_start_is_told_and_is_taken_back() -> None:
    async def work() -> None:
        async with cluster_of([HOSTS[0], "nowhere", HOSTS[1]], 1) as (made, adaptive):
            told: list[str] = []
            adaptive.on_failure = told.append
            adaptive.follow(2, [])
            await until(adaptive, lambda: bool(told))
            assert told == ["no route to nowhere"]
            adaptive.follow(1, [])
            await until(adaptive, lambda: len(made.plan) == 1)
            assert hosts_of(made) == HOSTS[:1]
            adaptive.follow(2, [])
            await until(adaptive, lambda: hosts_of(made) == HOSTS[:2])

    run(work())


@pytest.mark.skipif(importlib.util.find_spec("dask_jobqueue") is None, reason="no dask-jobqueue")
def test_jobs_of_slurm_come_and_go_as_the_run_wants(tmp_path: Path) -> None:
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    options = {"cores": 1, "memory": "1GiB", "interface": "lo", "python": sys.executable, "log_directory": str(tmp_path)}
    carrier = Starting(tmp_path, {"kind": "slurm", "workers": 1, "most": 2, "options": options}, **environment)
    assert carrier.hear()[0] == "opened"
    next_hosts(carrier, 1)
    carrier.say({"scale": {"workers": 2, "release": []}})
    next_hosts(carrier, 2)
    # Both are on one host here.
    carrier.say({"scale": {"workers": 0, "release": ["127.0.0.1"]}})
    next_hosts(carrier, 0)
    assert carrier.close() == 0


def next_hosts(carrier: Starting, workers: int) -> None:
    """Reads messages until the hosts have so many workers."""
    while True:
        kind, told = carrier.hear()
        assert kind == "hosts", told
        if sum(host["workers"] for host in told) == workers:
            return


def test_slurm_jobs_of_several_workers_are_refused(tmp_path: Path) -> None:
    options = {"cores": 2, "memory": "1GiB", "processes": 2}
    carrier = Starting(tmp_path, {"kind": "slurm", "workers": 1, "most": 2, "options": options})
    kind, failed = carrier.hear()
    assert kind == "failed"
    assert "jobs of one Dask worker each" in failed["message"]
    assert carrier.process.wait(WAIT_SECONDS_MAX) == 1
