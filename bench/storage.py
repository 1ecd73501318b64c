#!/usr/bin/env python3
"""The mounted pool against its alternatives: tmpfs, ext4 in the page cache, an empty FUSE server.

Each row comes from one run: all places in alternation, round by round, after a first round that is
not counted. The ratio is the median of the ratios round by round; larger is better for us unless
the row says `time`. bench/tools/calls.c times calls; programs are timed from outside. One JSON
object a line. The script does not check targets. Needs root to mount a tmpfs.
Usage: bench/storage.py --binary target/release/tidemill
                        --nothing target/release/examples/nothing [--cases ...] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import memory
import places
import run as workflows
from places import HUGE, Place

HERE = Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CALLS_OF_NAMES = ("create", "stat", "open+read", "rename", "unlink")


class Bench:
    """Paths and parameters of the benchmark, and the output of rows."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.binary, self.nothing, self.data = args.binary.resolve(), args.nothing.resolve() if args.nothing else None, args.data.resolve()
        self.runs, self.scale, self.work = args.runs, args.scale, work
        self.calls = work / "calls"
        subprocess.run(["cc", "-O2", "-o", str(self.calls), str(HERE / "tools/calls.c")], check=True)

    def scaled(self, amount: int, unit: int = 1) -> int:
        """`amount` scaled by --scale and rounded down to whole units, at least one unit."""
        return max(unit, int(amount * self.scale) // unit * unit)

    def call(self, verb: str, path: Path, *numbers: int) -> dict[str, float]:
        """Seconds of each phase."""
        command = [str(self.calls), verb, str(path), *map(str, numbers)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def rounds(self, sides: list[Place], measure: Callable[[Place], dict[str, float]]) -> dict[str, dict[str, list[float]]]:
        """Seconds by phase and place.

        All places alternate, and the order rotates each round. The first round is not counted.
        """
        taken: dict[str, dict[str, list[float]]] = {}
        for number in range(self.runs + 1):
            turn = number % len(sides)
            for place in sides[turn:] + sides[:turn]:
                for phase, seconds in measure(place).items():
                    if number > 0:
                        taken.setdefault(phase, {}).setdefault(place.name, []).append(seconds)
        return taken

    def row(self, case: str, ours: list[float], theirs: list[float], *, time_ratio: bool = False, **more: object) -> None:
        """Prints a row with the peer's time divided by ours.

        With `time_ratio` it is our time divided by the peer's.
        """
        ratios = [mine / peer if time_ratio else peer / mine for mine, peer in zip(ours, theirs, strict=True)]
        told = {
            "case": case,
            **more,
            "ours_s": round(statistics.median(ours), 9),
            "peer_s": round(statistics.median(theirs), 9),
            "time" if time_ratio else "ratio": round(statistics.median(ratios), 3),
            "min": round(min(ratios), 3),
            "max": round(max(ratios), 3),
            "runs": len(ours),
        }
        print(json.dumps(told), flush=True)


def best_peer(taken: dict[str, list[float]], peers: list[str]) -> list[float]:
    """The best of the peers in each round."""
    return [min(pair) for pair in zip(*(taken[peer] for peer in peers), strict=True)]


def file_case(bench: Bench, place: Place, size: int, request: int, mapped: bool) -> dict[str, float]:  # noqa: FBT001 - a column of the table
    """Writes, overwrites, reads and maps a new file."""
    file = place.dir / "file"
    taken = {verb: bench.call(verb, file, size, request)[verb] for verb in ("write", "overwrite", "read", *(["mapread"] if mapped else []))}
    file.unlink()
    return taken


def sequential(bench: Bench, request: int, size: int, targets: dict[str, float], peers: list[str]) -> None:
    """One request size, against the better of the peers in each round."""
    with ExitStack() as stack:
        sides = [stack.enter_context(places.tidemill_mount(bench.binary, bench.work, "6GiB"))]
        if "tmpfs" in peers:
            sides.append(stack.enter_context(places.tmpfs(bench.work, "6g")))
        if "ext4" in peers:
            sides.append(stack.enter_context(places.disk(bench.work)))
        taken = bench.rounds(sides, lambda place: file_case(bench, place, size, request, "mapread" in targets))
    for verb, target in targets.items():
        state = "fresh" if verb == "write" else "warm"
        facts = {"request": request, "bytes": size, "state": state, "huge": HUGE["ours"], "target": target}
        for peer in peers:
            bench.row(f"sequential {verb}", taken[verb]["ours"], taken[verb][peer], against=peer, peer_huge=HUGE[peer], **facts)
        if len(peers) > 1:
            bench.row(f"sequential {verb}", taken[verb]["ours"], best_peer(taken[verb], peers), against="the better of both", **facts)


def case_large(bench: Bench) -> None:
    """Sequential, 1 MiB requests."""
    sequential(bench, MIB, bench.scaled(GIB, MIB), {"write": 2.0, "overwrite": 1.8, "read": 1.0, "mapread": 1.0}, ["tmpfs", "ext4"])


def case_middle(bench: Bench) -> None:
    """Sequential, 128 KiB requests."""
    sequential(bench, 128 * KIB, bench.scaled(GIB, MIB), {"write": 1.0, "overwrite": 1.0, "read": 1.0, "mapread": 1.0}, ["tmpfs"])


def case_small(bench: Bench) -> None:
    """Sequential, 4 KiB requests."""
    sequential(bench, 4 * KIB, bench.scaled(256 * MIB, MIB), {"write": 0.8, "overwrite": 0.8, "read": 0.8}, ["tmpfs"])


def case_random(bench: Bench) -> None:
    """4 KiB at random offsets of one file, by reads and by a mapping."""
    size, count = bench.scaled(512 * MIB, MIB), bench.scaled(200_000)
    with places.tidemill_mount(bench.binary, bench.work, "2GiB") as mine, places.tmpfs(bench.work, "2g") as peer:
        for place in (mine, peer):
            bench.call("write", place.dir / "file", size, MIB)
        verbs = {"random_read": 0.65, "random_map": 1.0}
        taken = bench.rounds([mine, peer], lambda place: {verb: bench.call(verb, place.dir / "file", size, count)[verb] for verb in verbs})
    for verb, target in verbs.items():
        facts = {"request": 4 * KIB, "count": count, "bytes": size, "state": "warm", "huge": HUGE["ours"], "peer_huge": HUGE["tmpfs"], "target": target}
        bench.row(verb.replace("_", " "), taken[verb]["ours"], taken[verb]["tmpfs"], against="tmpfs", **facts)


def case_ordinary(bench: Bench) -> None:
    """The path without passthrough, which every user has; 1 MiB requests."""
    size = bench.scaled(GIB, MIB)
    with places.tidemill_mount(bench.binary, bench.work, "4GiB", passthrough=False) as mine, places.tmpfs(bench.work, "4g") as peer:
        taken = bench.rounds([mine, peer], lambda place: file_case(bench, place, size, MIB, mapped=False))
    for verb, seconds in taken.items():
        facts = {"request": MIB, "bytes": size, "state": "fresh" if verb == "write" else "warm", "huge": HUGE["ordinary"], "peer_huge": HUGE["tmpfs"]}
        bench.row(f"without passthrough: {verb}", seconds["ordinary"], seconds["tmpfs"], against="tmpfs", target=0.5, **facts)


def names_in_fresh_folder(bench: Bench, place: Place, count: int) -> dict[str, float]:
    """All calls on names, in a new directory."""
    folder = place.dir / "names"
    folder.mkdir()
    taken = bench.call("names", folder, count)
    folder.rmdir()
    return taken


def case_names(bench: Bench) -> None:
    """Calls on the names of many files in one directory.

    A second row says how much more each call costs with ten times as many files.
    """
    if bench.nothing is None:
        print(json.dumps({"case": "names", "skipped": "no --nothing"}), flush=True)
        return
    cost: dict[int, dict[str, list[float]]] = {}
    few, many = bench.scaled(20_000), bench.scaled(200_000)
    for count in (few, many):
        with places.tidemill_mount(bench.binary, bench.work, "4GiB") as mine, places.empty_server(bench.nothing, bench.work) as peer:
            taken = bench.rounds([mine, peer], lambda place, count=count: names_in_fresh_folder(bench, place, count))
        cost[count] = {verb: [seconds / count for seconds in taken[verb]["ours"]] for verb in CALLS_OF_NAMES}
        for verb in CALLS_OF_NAMES:
            facts = {"count": count, "against": "a FUSE server that does nothing", "target": 0.5}
            bench.row(f"names: {verb}", taken[verb]["ours"], taken[verb]["nothing"], **facts)
    for verb in CALLS_OF_NAMES:
        facts = {"count": many, "against": f"our own cost of a call at {few}", "target": 1.2}
        bench.row(f"names: {verb}, cost of one", cost[many][verb], cost[few][verb], time_ratio=True, **facts)


def timed(command: list[str], cwd: Path) -> float:
    """Wall seconds of a program that must succeed."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return took


def make_sources(bench: Bench) -> tuple[Path, Path, Path]:
    """A repository, an archive of its files, and C files with a Makefile, on the disk."""
    repository, archive, sources = bench.work / "repository", bench.work / "files.tar", bench.work / "sources"
    repository.mkdir()
    for number in range(bench.scaled(5_000)):
        folder = repository / f"d{number % 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}").write_bytes(os.urandom(number * 37 % 8_000))
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=repository, check=True)
    subprocess.run(["tar", "cf", str(archive), "--exclude=.git", "-C", str(repository), "."], check=True)
    sources.mkdir()
    for number in range(bench.scaled(100)):
        (sources / f"f{number}.c").write_text(f'#include <stdio.h>\n#include <stdlib.h>\nint f{number}(int x) {{ return x ? printf("%d", x) : abs(x); }}\n')
    (sources / "Makefile").write_text("all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tcc -O1 -c $< -o $@\n")
    return repository, archive, sources


def case_programs(bench: Bench) -> None:
    """Programs with many small files: the times of git clone, tar x and make."""
    repository, archive, sources = make_sources(bench)

    def measure(place: Place) -> dict[str, float]:
        clone, files, build = place.dir / "clone", place.dir / "files", place.dir / "build"
        files.mkdir()
        shutil.copytree(sources, build)
        taken = {
            "git clone": timed(["git", "clone", "-q", "--no-hardlinks", str(repository), str(clone)], bench.work),
            "tar x": timed(["tar", "xf", str(archive), "-C", str(files)], bench.work),
            "make": timed(["make", "-s", "-j2"], build),
        }
        for folder in (clone, files, build):
            shutil.rmtree(folder)
        return taken

    with places.tidemill_mount(bench.binary, bench.work, "2GiB") as mine, places.tmpfs(bench.work, "2g") as peer:
        taken = bench.rounds([mine, peer], measure)
    for verb, seconds in taken.items():
        count = bench.scaled(100) if verb == "make" else bench.scaled(5_000)
        bench.row(verb, seconds["ours"], seconds["tmpfs"], time_ratio=True, files=count, against="tmpfs", target=2.0)


def case_workflows(bench: Bench) -> None:
    """Fan-out and Montage by `tidemill run`, against make -j2 on the disk; `ratio` is of times."""
    inner = bench.work / "workflows"
    inner.mkdir()
    other = workflows.Bench(bench.binary, inner, bench.data, bench.runs)
    if bench.scale >= 1:
        workflows.case_fanout(other)
        workflows.case_montage(other)
    else:
        print(json.dumps({"case": "workflows", "skipped": "they are not scaled"}), flush=True)


def case_memory(bench: Bench) -> None:
    """Memory of the node in addition to the bytes stored in it."""
    for count, size, target in ((1_000, MIB, "5 % of the bytes"), (100_000, KIB, "600 B a file")):
        files = bench.scaled(count)
        with places.tidemill_mount(bench.binary, bench.work, "4GiB") as place:
            before = memory.memory_of(place.server)
            content = os.urandom(size)
            for number in range(files):
                folder = place.dir / f"d{number // 1000}"
                if number % 1000 == 0:
                    folder.mkdir()
                (folder / f"f{number}").write_bytes(content)
            after = memory.memory_of(place.server)
        grown = {part: after[part] - before[part] for part in after}
        beside = sum(grown.values()) - files * size
        shares = {"share_of_bytes": round(beside / (files * size), 4), "bytes_a_file": round(beside / files, 1)}
        print(json.dumps({"case": "memory beside the data", "files": files, "bytes_each": size, **shares, "target": target, "grown": grown}), flush=True)


CASES = {
    "large": case_large,
    "middle": case_middle,
    "small": case_small,
    "random": case_random,
    "ordinary": case_ordinary,
    "names": case_names,
    "programs": case_programs,
    "workflows": case_workflows,
    "memory": case_memory,
}


def main() -> None:
    """Runs the named cases, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the tidemill binary, built with --release")
    parser.add_argument("--nothing", type=Path, help="the FUSE server that does nothing: crates/fuse-transport/examples/nothing.rs")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES), help="which cases (all)")
    parser.add_argument("--runs", type=int, default=5, help="counted rounds (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything is done; below 1 only to try the script (1.0)")
    parser.add_argument("--data", type=Path, default=workflows.ROOT.parent / "shared" / "data", help="the folder of real inputs")
    args = parser.parse_args()
    for case in args.cases:
        with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=os.environ.get("BENCH_DIR")) as work:
            CASES[case](Bench(args, Path(work)))


if __name__ == "__main__":
    main()
