"""A real Slurm for tests: a controller and a slurmd on each of some hosts that are network namespaces.

Everything is in a directory of the test, and Slurm's commands find it by SLURM_CONF. The hosts have
one processor each, as Slurm sees them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from hosts import Network
from waiting import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd")
# slurmd needs no control groups with these plug-ins.
CONFIGURATION = """
ClusterName=tidemill
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def program(name: str) -> str | None:
    """The path of a daemon, which an ordinary PATH may not have."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def unsupported_reason() -> str | None:
    """Why there is no Slurm here, or None."""
    missing = [name for name in (*DAEMONS, "sbatch") if program(name) is None]
    return f"no {', '.join(missing)}: install slurm-wlm and munge" if missing else None


class Slurm:
    """The daemons: the controller on host 0, nodes n1, n2, ... on the hosts with these numbers."""

    def __init__(self, folder: Path, net: Network, nodes: list[int]) -> None:
        self.folder, self.net = folder, net
        self.nodes = {f"n{host}": host for host in nodes}
        self.processes: list[subprocess.Popen[bytes]] = []
        for name in ("munge", "state", *(f"spool.{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True, mode=0o755)
        key = folder / "munge" / "key"
        key.touch(0o400)
        key.write_bytes(os.urandom(1024))
        name = os.uname().nodename
        lines = [
            f"NodeName={node} NodeHostname={name} NodeAddr={net.address(host)} Port=16818 CPUs=1 RealMemory=4096 State=UNKNOWN"
            for node, host in self.nodes.items()
        ]
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(controller=name, address=net.address(0), folder=folder, nodes="\n".join(lines)))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need."""
        return {"SLURM_CONF": str(self.configuration)}

    def spawn(self, host: int, name: str, *words: str) -> None:
        """Starts a daemon in the foreground."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = self.net.inside(host, str(program(name)), *words)
            self.processes.append(subprocess.Popen(command, env={**os.environ, **self.environment}, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def up(self) -> None:
        """Starts the daemons, and waits until all nodes can have jobs."""
        munge = self.folder / "munge"
        files = [
            f"--{name}={munge / file}"
            for name, file in (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
        ]
        self.spawn(0, "munged", "--foreground", "--force", *files)
        wait_for((munge / "socket").exists, "munged did not start")
        self.spawn(0, "slurmctld", "-D", "-f", str(self.configuration))
        for node, host in self.nodes.items():
            self.spawn(host, "slurmd", "-D", "-N", node, "-f", str(self.configuration))
        wait_for(lambda: self.command("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(self.nodes), "the nodes of Slurm are not there")

    def command(self, *words: str) -> str:
        """What one of Slurm's commands prints, on host 0."""
        done = subprocess.run(self.net.inside(0, *words), env={**os.environ, **self.environment}, capture_output=True, text=True, check=False)
        return done.stdout

    def jobs(self) -> str:
        """The jobs that wait, run or end."""
        return self.command("squeue", "-h")

    def close(self) -> None:
        """Ends the daemons. Their jobs end with the network's hosts."""
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
