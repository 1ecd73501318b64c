#!/usr/bin/env python3
"""The preload library: bytes of local files, names, and the start of a program. Prints JSON rows.

    python3 bench/preload.py --binary target/release/tidemill [--rounds 5]
                             [--rows bytes names start] [--scale 1.0]

Rounds are as in bench/storage.py: all sides in alternation, a first round that is not counted, and
the median of the ratios round by round. Ratios of bytes say how much faster we are; ratios of names
say how much longer we take. Programs run under `tidemill exec` on one side, and on a mount and a
tmpfs on the others. The time of `exec` itself is not counted: it starts a shell that starts the
program and measures the time. Needs root to mount a tmpfs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import places
from storage import HERE, KIB, MIB, make_sources
from storage import Bench as Storage

PREFIX = Path("/tidemill")
PARTS = ("bytes", "names", "start")
STARTS = 500


@dataclass(frozen=True)
class Side:
    """A directory where programs run, and the words before their command lines."""

    name: str
    dir: Path
    before: tuple[str, ...] = ()


class Bench(Storage):
    """The storage benchmark for programs that may need words before their command lines."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        args.runs, args.nothing, args.data = args.rounds, None, work
        super().__init__(args, work)
        for tool in ("copy", "touch", "spawn"):
            subprocess.run(["cc", "-O2", "-o", str(work / tool), str(HERE / f"tools/{tool}.c")], check=True)

    @contextmanager
    def preload(self, memory: str) -> Iterator[Side]:
        """A pool of one node in a separate process, seen through the preload library."""
        environment = {"TIDEMILL_POOL": str(self.work / "pool")}
        os.environ |= environment
        subprocess.run([str(self.binary), "pool", "start", "--memory", memory], check=True, capture_output=True)
        try:
            yield Side("preload", PREFIX, (str(self.binary), "exec", "--"))
        finally:
            subprocess.run([str(self.binary), "pool", "stop"], check=True, capture_output=True)
            del os.environ["TIDEMILL_POOL"]

    def output_of(self, side: Side, *words: str | Path) -> str:
        """The output of a program run on this side."""
        done = subprocess.run([*side.before, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words} at {side.name}: {done.stderr[-2000:]}")
        return done.stdout

    def call_seconds(self, side: Side, verb: str, *numbers: int) -> dict[str, float]:
        """Seconds of the phases of bench/tools/calls.c on one file of this side."""
        return json.loads(self.output_of(side, self.calls, verb, side.dir / "file", *map(str, numbers)))

    def timed(self, side: Side, script: str) -> float:
        """Wall seconds of a script, without the start of its shell."""
        timing = f"at=$EPOCHREALTIME; ({script}) >/dev/null; echo $at $EPOCHREALTIME"
        began, ended = map(float, self.output_of(side, "bash", "-euc", timing).split()[-2:])
        return ended - began


def rows_of_bytes(bench: Bench) -> None:
    """Reads against a copy in memory, the other rows against tmpfs."""
    size, count = bench.scaled(512 * MIB, MIB), bench.scaled(200_000)

    def measure(side: Side) -> dict[str, float]:
        if side.name == "memcpy":
            requests = {"read 1 MiB": MIB, "read 128 KiB": 128 * KIB}
            return {row: json.loads(bench.output_of(side, bench.work / "copy", str(size), str(request)))["copy"] for row, request in requests.items()}
        return {
            "read 1 MiB": bench.call_seconds(side, "read", size, MIB)["read"],
            "read 128 KiB": bench.call_seconds(side, "read", size, 128 * KIB)["read"],
            "random 4 KiB": bench.call_seconds(side, "random_read", size, count)["random_read"],
            "write 1 MiB": bench.call_seconds(side, "overwrite", size, MIB)["overwrite"],
        }

    with bench.preload("2GiB") as ours, places.tmpfs(bench.work, "2g") as tmpfs:
        sides = [ours, Side("tmpfs", tmpfs.dir), Side("memcpy", bench.work)]
        for side in sides[:2]:
            bench.call_seconds(side, "write", size, MIB)
        taken = bench.rounds(sides, measure)
    for row, peer, target in (("read 1 MiB", "memcpy", 0.8), ("read 128 KiB", "memcpy", 0.5), ("random 4 KiB", "tmpfs", 1.5), ("write 1 MiB", "tmpfs", 1.0)):
        bench.row(row, taken[row]["preload"], taken[row][peer], against=peer, bytes=size, target=target)


def rows_of_names(bench: Bench) -> None:
    """`git clone`, `tar x` and `make`, by preload and by mount, against tmpfs."""
    sources = dict(zip(("repository", "archive", "sources"), map(shlex.quote, map(str, make_sources(bench))), strict=True))
    scripts = {
        "git clone": "git clone -q --no-hardlinks {repository} {at}/clone",
        "tar x": "mkdir {at}/files; tar xf {archive} -C {at}/files",
        "make": "cd {at}/build; make -s -j2",
    }

    def measure(side: Side) -> dict[str, float]:
        bench.output_of(side, "cp", "-r", bench.work / "sources", side.dir / "build")
        taken = {row: bench.timed(side, script.format(at=side.dir, **sources)) for row, script in scripts.items()}
        bench.output_of(side, "rm", "-r", *(side.dir / name for name in ("clone", "files", "build")))
        return taken

    with bench.preload("2GiB") as ours, places.tidemill_mount(bench.binary, bench.work, "2GiB") as mount, places.tmpfs(bench.work, "2g") as tmpfs:
        sides = [ours, Side("mount", mount.dir), Side("tmpfs", tmpfs.dir)]
        taken = bench.rounds(sides, measure)
    for row in scripts:
        for side, target in (("preload", 1.5), ("mount", 2.0)):
            bench.row(f"{row}, {side}", taken[row][side], taken[row]["tmpfs"], time_ratio=True, against="tmpfs", target=target)


def rows_of_starts(bench: Bench) -> None:
    """Time that the library adds to the start of a program, in microseconds each.

    One program does not touch the pool, the other does.
    """
    with bench.preload("1GiB") as ours:
        subprocess.run([*ours.before, "touch", str(PREFIX / "there")], check=True)
        programs = {"not touched": ("/bin/true", ""), "touched": (str(bench.work / "touch"), str(PREFIX / "there"))}
        plain = Side("plain", Path("/"))
        taken: dict[str, list[float]] = {row: [] for row in programs}
        count = bench.scaled(STARTS)
        for number in range(bench.runs + 1):
            for row, (program, path) in programs.items():
                # The same plain program starts both sides; only the started program has the
                # library.
                spawn = [str(bench.work / "spawn"), str(count)]
                with_it = ["/usr/bin/env", f"LD_PRELOAD={bench.binary.parent / 'libtidemill_preload.so'}"]
                bare = bench.timed(plain, shlex.join([*spawn, "/usr/bin/env", "NO=1", program]))
                more = bench.timed(plain, shlex.join([*spawn, *with_it, program, *([path] if path else [])]))
                if number > 0:
                    taken[row].append((more - bare) / count * 1e6)
    for row, target in (("not touched", 500), ("touched", 1500)):
        told = {
            "case": f"start, {row}",
            "added_us": round(statistics.median(taken[row]), 1),
            "min": round(min(taken[row]), 1),
            "max": round(max(taken[row]), 1),
        }
        print(json.dumps(told | {"against": "the same program without", "target_us": target, "runs": bench.runs}), flush=True)


def main() -> None:
    """Measures the selected rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the tidemill binary, built with --release; the library is beside it")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--rows", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything is done; below 1 only to try the script (1.0)")
    args = parser.parse_args()
    made = {"bytes": rows_of_bytes, "names": rows_of_names, "start": rows_of_starts}
    for part in args.rows:
        work = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
        try:
            made[part](Bench(args, work))
        finally:
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
