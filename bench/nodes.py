#!/usr/bin/env python3
"""Mounted pools of several nodes: files on the local and on another node, and striped files.

    bench/nodes.py --binary target/release/tidemill [--cases ...]

`home` and `elsewhere`: a pool of four nodes. The mount reaches the first as a node of its own host,
and the others over loopback TCP as if they were on other hosts. `home` places files on the first
node, against the mount of an embedded pool. `elsewhere` places them on the second, against a plain
sender and receiver over loopback TCP (tools/tcp.c: 1 MiB, one stream, 8 concurrent requests).
`striped`: one large file on four nodes of this host, against one node.

Access is sequential in requests of 1 MiB. Both sides alternate; the first round is not counted.
Each case prints a row of Markdown: medians of GB/s, of the ratios round by round, and of the CPU
seconds per GiB of all processes that take part: the caller, the mount and the nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import places

HERE = Path(__file__).resolve().parent
MIB, GIB = 1 << 20, 1 << 30
VERBS = ["write", "overwrite", "read"]
TICKS = os.sysconf("SC_CLK_TCK")

# GB/s and CPU seconds per GiB, by verb.
Speeds = dict[str, tuple[float, float]]


@dataclass
class Side:
    """A directory to measure in, and the processes that serve it."""

    folder: Path
    servers: list[int] = field(default_factory=list)


class Bench:
    """Paths and parameters of the benchmark."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.binary, self.runs, self.bytes, self.work = args.binary.resolve(), args.runs, args.mib * MIB, work
        self.calls, self.tcp = (self.built(tool) for tool in ("calls", "tcp"))

    def built(self, tool: str) -> Path:
        """Compiles a program of tools/."""
        program = self.work / tool
        subprocess.run(["cc", "-O2", "-o", str(program), str(HERE / f"tools/{tool}.c"), "-lpthread"], check=True)
        return program

    def files(self, side: Side) -> Speeds:
        """Writes, overwrites and reads a file."""
        file, taken = side.folder / "file", {}
        for verb in VERBS:
            before = cpu(side.servers)
            command = [str(self.calls), verb, str(file), str(self.bytes), str(MIB)]
            seconds = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[verb]
            taken[verb] = (self.bytes / 1e9 / seconds, (cpu(side.servers) - before) / (self.bytes / GIB))
        file.unlink()
        return taken

    def tcp_speeds(self) -> Speeds:
        """The same bytes over loopback TCP: gets as reads, puts as writes."""
        command = [str(self.tcp), str(MIB), "1", "8", "1.0"]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        put, get = ((said[verb]["gb_s"], said[verb]["cpu_s_gib"]) for verb in ("put", "get"))
        return {"write": put, "overwrite": put, "read": get}

    def compare(self, case: str, target: float, ours: Callable[[], Speeds], peer: Callable[[], Speeds]) -> None:
        """Prints a row for each verb."""
        turns = [(ours, peer), (peer, ours)]
        rounds = []
        for number in range(self.runs + 1):
            first, second = turns[number % 2]
            speeds = (first(), second())
            rounds.append(speeds if first is ours else speeds[::-1])
        for verb in VERBS:
            sides = [[speeds[verb] for speeds in side] for side in zip(*rounds[1:], strict=True)]
            (speed, used), (peer_speed, peer_used) = ([median(column) for column in zip(*side, strict=True)] for side in sides)
            ratios = sorted(mine[0] / other[0] for mine, other in zip(*sides, strict=True))
            met = "met" if median(ratios) >= target else "**missed**"
            spread = f"{median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
            print(f"| {case}, {verb} | {speed:.2f} | {peer_speed:.2f} | {spread} | {target} | {met} | {used:.2f} / {peer_used:.2f} |", flush=True)

    def tidemill(self, *words: str | Path) -> list[str]:
        """A command line of tidemill."""
        return [str(self.binary), *map(str, words)]

    @contextmanager
    def pool(self, nodes: int, memory: str, *, far: bool = False) -> Iterator[Side]:
        """A mounted pool on this host.

        With `far`, all nodes but the first appear to be on other hosts.
        """
        mark = f"of{nodes}"
        file, mounted, folder = self.work / f"{mark}.pool", self.work / f"{mark}.mounted", self.work / mark
        subprocess.run(self.tidemill("pool", "start", "--pool", file, "--nodes", str(nodes), "--memory", memory), check=True, capture_output=True)
        try:
            told = json.loads(file.read_text())
            processes = [node["pid"] for node in told["nodes"]]
            for node in told["nodes"][1:] if far else []:
                node["net"] += 1
            mounted.touch(mode=0o600)
            mounted.write_text(json.dumps(told))
            mount = self.tidemill("mount", "--quiet", "--pool", mounted, folder)
            with places.served(mark, mount, folder, self.tidemill("umount", folder)) as place:
                yield Side(folder, [place.server, *processes])
        finally:
            subprocess.run(self.tidemill("pool", "stop", "--pool", file), check=True, capture_output=True)


def cpu(servers: list[int]) -> float:
    """CPU seconds so far of the servers and of all programs that were run."""
    called = os.times()
    used = called.children_user + called.children_system
    for server in servers:
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / TICKS
    return used


def with_placement(side: Side, policy: str) -> Side:
    """A directory whose inodes and bytes have this placement.

    It is the child of a directory with that policy, because the policy applies to what is made
    below.
    """
    folder = side.folder / "placed"
    folder.mkdir()
    os.setxattr(folder, "user.tidemill.placement", policy.encode())
    inner = folder / "inner"
    inner.mkdir()
    return Side(inner, side.servers)


def case_home(bench: Bench) -> None:
    """Files on the node of this host, against the embedded pool."""
    with bench.pool(4, "4GiB", far=True) as mounted, places.tidemill_mount(bench.binary, bench.work, "4GiB") as embedded:
        ours, peer = with_placement(mounted, "here"), Side(embedded.dir, [embedded.server])
        bench.compare("home", 0.95, lambda: bench.files(ours), lambda: bench.files(peer))


def case_elsewhere(bench: Bench) -> None:
    """Files on a node of another host, against TCP."""
    with bench.pool(4, "4GiB", far=True) as mounted:
        ours = with_placement(mounted, "at(2)")
        bench.compare("elsewhere", 0.4, lambda: bench.files(ours), bench.tcp_speeds)


def case_striped(bench: Bench) -> None:
    """Four nodes of this host against one."""
    with ExitStack() as stack:
        pools = [bench.pool(4, "1GiB"), bench.pool(1, "4GiB")]
        four, one = (with_placement(stack.enter_context(pool), "striped") for pool in pools)
        bench.compare("striped", 0.95, lambda: bench.files(four), lambda: bench.files(one))


CASES = {"home": case_home, "elsewhere": case_elsewhere, "striped": case_striped}


def main() -> None:
    """Runs the selected cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the tidemill binary, built with --release")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--mib", type=int, default=1024, help="of the file (1024)")
    asked = parser.parse_args()
    print("| what | GB/s | peer | ratio (min..max) | target | | CPU s/GiB, ours / peer |\n|---|---:|---:|---|---|---|---|", flush=True)
    for case in asked.cases:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as work:
            CASES[case](Bench(asked, Path(work)))


if __name__ == "__main__":
    main()
