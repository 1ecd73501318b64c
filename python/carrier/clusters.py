"""Clusters that a run starts for itself, with Dask's own classes (docs/CLUSTER.md).

The first half of the carrier's program: `tidemill run --on` joins this file and carrier.py into one.
It works with the standard library alone until a cluster is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import os
import shlex
import signal
import sys
from typing import Any

# A process of a cluster gets this time to end by itself.
CLUSTER_END_SECONDS_MAX = 5.0
# A name of Dask's operator has at most 53 letters, and ours begins with nine.
KUBERNETES_NAME_MAX = 44
# What Python runs on a host in place of a process of Dask: the process, and its end with the
# connection, however that ends. An SSH server ends no processes, and some send no signals.
GUARDED = (
    "import os,subprocess,sys,threading;"
    "made=subprocess.Popen([sys.executable,*sys.argv[1:]],stdin=subprocess.DEVNULL);"
    "threading.Thread(target=lambda:os.read(0,1) or os.killpg(0,9),daemon=True).start();"
    "sys.exit(made.wait())"
)
VERSION_OF_DASK = "import distributed;print(distributed.__version__)"
# The threads of a worker in an allocation: its share of the processors that Slurm gives on its host.
THREADS_OF_SLURM = 'share=$((${SLURM_CPUS_ON_NODE:-1} / $0)); exec "$@" --nthreads $((share > 0 ? share : 1))'
# Objects of Dask, which has few types, and options of its classes.
Object = Any
Options = dict[str, Any]


class ClusterProblem(Exception):
    """A cluster that cannot be started, with what to do about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def package(name: str, wanted: str) -> Object:
    """Imports what a kind of cluster needs."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise ClusterProblem(f"{sys.executable} cannot start this cluster: {missing}", f"{sys.executable} -m pip install {wanted}") from None


async def start_cluster(order: Options, run: str, seconds: float) -> Object:
    """Starts a cluster of the kind that the run wants. It has `scheduler_address` and `close`."""
    options, jobs, most = dict(order["options"]), 0, order.get("most")
    if order["kind"] == "ssh":
        made = await ssh_cluster(order["hosts"], most or order["workers"], options, seconds)
        if most:
            keep_spares(made, order["workers"])
    elif order["kind"] == "kubernetes":
        made = kubernetes_cluster(run, order["workers"], options)
    elif "SLURM_JOB_ID" in os.environ:
        made = Allocation(order["workers"], options)
    else:
        made, jobs = slurm_cluster(options, most), order["workers"]
    try:
        return await asyncio.wait_for(started(made, jobs), seconds)
    except BaseException as error:
        await close_cluster(made)
        if isinstance(error, asyncio.TimeoutError):
            raise ClusterProblem(f"it did not start within {seconds:.0f} seconds", "give it more time with --wait") from None
        raise


async def started(made: Object, jobs: int) -> Object:
    """Waits for a cluster, and submits jobs for so many workers. Dask would not tell that this failed."""
    await made
    if jobs:
        made.scale(jobs)
        await correct_state(made)
    return made


async def correct_state(made: Object) -> None:
    """Waits until a cluster has started the workers that it should have, or submitted their jobs."""
    try:
        await made._correct_state()
    except RuntimeError as error:
        why = str(error).rpartition("stderr:\n")[2].strip()
        raise ClusterProblem(why, "options of Dask's class (docs/CLUSTER.md) and its configuration make the job script") from None


async def close_cluster(made: Object) -> None:
    """Closes a cluster. What it tells then is of no use to anybody."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(made.close(), 3 * CLUSTER_END_SECONDS_MAX)


async def ssh_cluster(hosts: list[str], workers: int | None, options: Options, seconds: float) -> Object:
    """A scheduler on the first host, and workers on all in turn."""
    ssh, distributed = package("asyncssh", "asyncssh"), package("distributed", "distributed")
    pythons = options.get("remote_python") or sys.executable
    pythons = pythons if isinstance(pythons, list) else [pythons] * len(hosts)
    connects = options.get("connect_options") or {}
    connects = connects if isinstance(connects, list) else [connects] * len(hosts)
    if not len(pythons) == len(connects) == len(hosts):
        raise ClusterProblem("lists of remote_python and connect_options need an entry for each host", "give one value for all hosts, or a list")
    checks = [check_host(ssh, *each, seconds) for each in zip(hosts, connects, pythons, strict=True)]
    if problems := list(filter(None, await asyncio.gather(*checks))):
        hint = "each host needs an SSH server, your key, and this Python with distributed (--on-option remote_python=PATH, connect_options.KEY=VALUE)"
        raise ClusterProblem("; ".join(problems), hint)
    # Dask's default is the address that the default route has, not the one that was named.
    with contextlib.suppress(ValueError):
        options["scheduler_options"] = {"host": str(ipaddress.ip_address(hosts[0])), **options.get("scheduler_options", {})}
    placed = [0, *(number % len(hosts) for number in range(workers or len(hosts)))]
    options["remote_python"] = [f"{pythons[host]} -c {shlex.quote(GUARDED)}" for host in placed]
    options["connect_options"] = [connects[host] for host in placed]
    return distributed.SSHCluster([hosts[host] for host in placed], asynchronous=True, **options)


def keep_spares(made: Object, workers: int) -> None:
    """Has a cluster begin with so many of its workers. It takes another one when it grows, in turn."""
    specs = made.worker_spec
    for name, spec in specs.items():
        # Dask gives them no names, so it could not tell which of them have come.
        spec["options"]["kwargs"] = {**spec["options"]["kwargs"], "name": name}
    made.worker_spec, turns = dict(list(specs.items())[:workers]), list(specs)

    def new_worker_spec() -> Options:
        name = next(name for name in turns if name not in made.worker_spec)
        # One that could not start is tried again after the others.
        turns.append(turns.pop(turns.index(name)))
        return {name: specs[name]}

    made.new_worker_spec = new_worker_spec


async def check_host(ssh: Object, host: str, connect: Options, python: str, seconds: float) -> str | None:
    """What is wrong with a host. Dask would not say which one it is, nor what Python said."""
    own = package("distributed", "distributed").__version__
    try:
        async with await asyncio.wait_for(ssh.connect(host, **connect), seconds) as connection:
            done = await asyncio.wait_for(connection.run(f"{python} -c {shlex.quote(VERSION_OF_DASK)}"), seconds)
    except asyncio.TimeoutError:  # noqa: UP041 (another one before Python 3.11)
        return f"{host}: no answer within {seconds:.0f} seconds"
    except Exception as error:  # noqa: BLE001 (whatever asyncssh raises)
        return f"{host}: {str(error) or repr(error)}"
    if done.exit_status != 0:
        return f"{host}: {python} cannot use Dask: {str(done.stderr).strip().rpartition(chr(10))[2]}"
    version = str(done.stdout).strip()
    return None if version == own else f"{host}: {python} has distributed {version}, and here it is {own}"


def slurm_cluster(options: Options, most: int | None) -> Object:
    """A scheduler in this process, for workers that are jobs of Slurm."""
    jobqueue, config = package("dask_jobqueue", "dask-jobqueue"), package("dask.config", "dask")
    if config.get("jobqueue.slurm.processes", None) is None:
        options.setdefault("processes", 1)
    if most and (options.get("processes") or config.get("jobqueue.slurm.processes")) != 1:
        raise ClusterProblem("a cluster that grows needs jobs of one Dask worker each", "leave out the option processes, or --elastic")
    try:
        return jobqueue.SLURMCluster(asynchronous=True, **options)
    except (TypeError, ValueError) as error:
        hint = "options of dask_jobqueue.SLURMCluster: --on-option cores=2 --on-option memory=4GiB, or jobqueue.slurm of Dask's configuration"
        raise ClusterProblem(str(error), hint) from None


def kubernetes_cluster(run: str, workers: int, options: Options) -> Object:
    """A cluster of Dask's operator for Kubernetes."""
    operator = package("dask_kubernetes.operator", "dask-kubernetes")
    # Kubernetes has limits for names. The end of a run's name is its own.
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in run.lower())
    name = f"tidemill-{name[-KUBERNETES_NAME_MAX:].strip('-')}"
    return operator.KubeCluster(**{"name": name, "quiet": True, **options}, n_workers=workers, asynchronous=True)


class Allocation:
    """A scheduler in this process, and workers on the hosts of the Slurm allocation around it.

    Its options are `scheduler_options`, `python`, and the lists `srun_extra_args` and
    `worker_extra_args`. All workers are one step of the job.
    """

    def __init__(self, workers: int | None, options: Options) -> None:
        self.nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or os.environ.get("SLURM_NNODES") or 1)
        self.workers = workers or self.nodes
        self.scheduler_options = options.pop("scheduler_options", {})
        self.python = options.pop("python", sys.executable)
        self.srun_words = options.pop("srun_extra_args", [])
        self.worker_words = options.pop("worker_extra_args", [])
        if options:
            known = "scheduler_options, python, srun_extra_args, worker_extra_args"
            raise ClusterProblem(f"inside of an allocation there is no option {', '.join(options)}", f"the options are {known}")
        self.scheduler: Object = None
        self.step: Object = None

    def __await__(self) -> Object:
        return self.start().__await__()

    async def start(self) -> Allocation:
        """Starts the scheduler, then the workers."""
        self.scheduler = await package("distributed", "distributed").Scheduler(**{"dashboard": False, **self.scheduler_options})
        try:
            # Its own session: Ctrl-C is for the run.
            self.step = await asyncio.create_subprocess_exec(*self.words(), stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise ClusterProblem(f"srun: {error}", "the commands of Slurm must be in PATH") from None
        return self

    def words(self) -> list[str]:
        """The command of the step."""
        nodes = min(self.nodes, self.workers)
        srun = ["srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", f"--nodes={nodes}", f"--ntasks={self.workers}", "--job-name=tidemill"]
        worker = [self.python, "-m", "distributed.cli.dask_worker", self.scheduler_address, "--nworkers", "1", "--no-dashboard"]
        shell = ["sh", "-c", THREADS_OF_SLURM, str(-(-self.workers // nodes))]
        return [str(word) for word in (*srun, *self.srun_words, *shell, *worker, *self.worker_words)]

    @property
    def scheduler_address(self) -> str:
        """The scheduler's address."""
        return str(self.scheduler.address)

    async def ended(self) -> None:
        """Waits for the end of the workers."""
        code = await self.step.wait()
        raise ClusterProblem(f"srun ended with exit code {code}", "what it printed says why; --on-option srun_extra_args='[\"...\"]' adds to its command")

    async def close(self) -> None:
        """Ends the workers, then the scheduler. Workers also end when their scheduler has."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.step is not None and self.step.returncode is None:
                self.step.send_signal(number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.step.wait(), CLUSTER_END_SECONDS_MAX)
        if self.scheduler is not None:
            await self.scheduler.close()
