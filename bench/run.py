#!/usr/bin/env python3
"""The numbers of bench/RESULTS.md: ratios of Tidemill and its alternatives within one run.

Each case runs the two sides in alternation (A B A B ...), takes the median of each and of the
ratios pair by pair, and prints one JSON object a line. Whole processes are timed from outside,
start-up included. The script does not check targets; they are in RESULTS.md.
Usage: bench/run.py --binary target/release/tidemill [--cases true chain ...] [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MIB = 1 << 20


class Bench:
    """Paths of the benchmark, and the measurement of pairs of commands."""

    def __init__(self, binary: Path, work: Path, data: Path, runs: int) -> None:
        self.binary, self.work, self.data, self.runs = binary, work, data, runs
        self.tools = work / "tools"
        self.tools.mkdir()
        for source in sorted((HERE / "tools").glob("*.c")):
            command = ["cc", "-O2", "-o", str(self.tools / source.stem), str(source)]
            subprocess.run(command, check=True)
        self.counter = 0

    def folder(self) -> Path:
        """A new directory on the disk of --work."""
        self.counter += 1
        path = self.work / f"run{self.counter}"
        path.mkdir()
        return path

    def seconds(self, command: list[str], cwd: Path) -> float:
        """Wall seconds of one run of a command, which must succeed."""
        start = time.perf_counter()
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        took = time.perf_counter() - start
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)[:300]}\nended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return took

    def tidemill(self, flow: Path, cwd: Path, *flags: str) -> list[str]:
        """The command line of a quiet run."""
        return [str(self.binary), "run", str(flow), "--quiet", "--slots", "2", "--data", str(cwd), *flags]

    def pair(self, case: str, ours: Callable[[], float], peer: Callable[[], float], **extra: object) -> None:
        """Measures both sides in alternation after one warm-up of each, and prints the row."""
        ours(), peer()
        pairs = [(ours(), peer()) for _ in range(self.runs)]
        mine, theirs = zip(*pairs, strict=True)
        row = {
            "case": case,
            "ours_s": round(statistics.median(mine), 4),
            "peer_s": round(statistics.median(theirs), 4),
            "ratio": round(statistics.median(a / b for a, b in pairs), 3),
            "ratio_min": round(min(a / b for a, b in pairs), 3),
            "ratio_max": round(max(a / b for a, b in pairs), 3),
            "added_s": round(statistics.median(a - b for a, b in pairs), 4),
            "runs": self.runs,
            **extra,
        }
        print(json.dumps(row), flush=True)


def write_flow(path: Path, tools: list[dict], elements: dict[str, int], tasks: list[dict]) -> Path:
    """Writes a descriptor (docs/formats/flow.md).

    `elements` has the length of each data element, 0 for a single file.
    """
    listed = [{"name": name, **({"shape": [length]} if length else {})} for name, length in elements.items()]
    whole = {"tidemill_flow": 1, "name": path.stem, "tools": tools, "elements": listed, "tasks": tasks}
    path.write_text(json.dumps(whole))
    return path


def noop_tool() -> dict:
    """A tool that does nothing."""
    return {"name": "noop", "command": ["/bin/true"], "params": []}


def case_true(bench: Bench) -> None:
    """2,000 independent /bin/true against xargs -P2."""
    cwd = bench.folder()
    flow = write_flow(cwd / "true.json", [noop_tool()], {}, [{"tool": "noop"}] * 2000)
    peer = ["sh", "-c", "seq 2000 | xargs -P2 -n1 /bin/true"]
    bench.pair(
        "true2000_vs_xargs",
        lambda: bench.seconds(bench.tidemill(flow, cwd), cwd),
        lambda: bench.seconds(peer, cwd),
        against="xargs -P2",
    )


def case_chain(bench: Bench) -> None:
    """A chain of 500 no-op tasks, and the same with a file passed from each task to the next."""
    cwd = bench.folder()
    tasks = [{"tool": "noop"}] + [{"tool": "noop", "after": [i - 1]} for i in range(1, 500)]
    flow = write_flow(cwd / "chain.json", [noop_tool()], {}, tasks)
    bench.pair(
        "chain500_vs_fork_exec",
        lambda: bench.seconds(bench.tidemill(flow, cwd), cwd),
        lambda: bench.seconds([str(bench.tools / "spawn"), "500", "/bin/true"], cwd),
        against="fork, exec and wait of /bin/true",
    )
    files = {"F": 500}
    params = [{"name": "in", "kind": {"input": {"optional": True}}}, {"name": "out", "kind": {"output": {}}}]
    tool = {"name": "pass", "command": [str(bench.tools / "pass"), "{out}", "{in}"], "params": params}
    tasks = [{"tool": "pass", "files": {"out": "F[0]"}}]
    tasks += [{"tool": "pass", "files": {"in": f"F[{i - 1}]", "out": f"F[{i}]"}} for i in range(1, 500)]
    flow = write_flow(cwd / "files.json", [tool], files, tasks)
    (cwd / "f-1").touch()
    bench.pair(
        "chain500_files_vs_fork_exec",
        lambda: bench.seconds(bench.tidemill(flow, cwd, "--out", "out"), cwd),
        lambda: bench.seconds([str(bench.tools / "spawn"), "500", str(bench.tools / "pass"), "f%", "f^"], cwd),
        against="fork, exec and wait of the same tool on ext4",
    )


def case_fanout(bench: Bench) -> None:
    """1 -> 64 -> 1 tasks of small C tools with files of 32 MiB.

    The peer is make -j2 on the disk's page cache.
    """
    cwd, width, size = bench.folder(), 64, 32 * MIB
    fill, total = str(bench.tools / "fill"), str(bench.tools / "sum")
    root = {"name": "root", "command": [fill, "{out}", str(size)], "params": [{"name": "out", "kind": {"output": {}}}]}
    mid = {
        "name": "mid",
        "command": [fill, "{out}", str(size), "{in}"],
        "params": [{"name": "in", "kind": {"input": {}}}, {"name": "out", "kind": {"output": {}}}],
    }
    end = {
        "name": "end",
        "command": [total, "{out}", "{in}"],
        "params": [{"name": "in", "kind": {"input": {"array": "args"}}}, {"name": "out", "kind": {"output": {}}}],
    }
    tasks = [{"tool": "root", "files": {"out": "R"}}]
    tasks += [{"tool": "mid", "files": {"in": "R", "out": f"M[{i}]"}} for i in range(width)]
    tasks += [{"tool": "end", "files": {"in": "M", "out": "S"}}]
    flow = write_flow(cwd / "fanout.json", [root, mid, end], {"R": 0, "M": width, "S": 0}, tasks)
    mids = " ".join(f"m{i}" for i in range(width))
    rules = [f"sum: {mids}\n\t{total} $@ $^\n", f"root:\n\t{fill} $@ {size}\n"]
    rules += [f"m{i}: root\n\t{fill} $@ {size} $<\n" for i in range(width)]
    (cwd / "Makefile").write_text("".join(rules))

    def peer() -> float:
        os.sync()
        took = bench.seconds(["make", "-s", "-j2"], cwd)
        # Files are removed so that neither side finds the memory full of the other's files.
        for path in (cwd / "root", cwd / "sum", *(cwd / f"m{i}" for i in range(width))):
            path.unlink(missing_ok=True)
        return took

    bench.pair(
        "fanout_1_64_1_32MiB_vs_make",
        lambda: bench.seconds(bench.tidemill(flow, cwd, "--out", "out", "--memory", "4GiB"), cwd),
        peer,
        against="make -j2 on ext4 in the page cache",
    )


def case_montage(bench: Bench) -> None:
    """The Montage example against make -j2 of the same 24 tasks on disk."""
    raw = bench.data / "m17"
    if not raw.exists():
        print(json.dumps({"case": "montage_vs_make", "skipped": f"{raw} is not there"}), flush=True)
        return
    cwd = bench.folder()
    example = ROOT / "examples" / "montage"
    command = [str(bench.binary), "run", str(example / "workflow.js"), "--quiet", "--slots", "2", "--data", str(raw)]
    command += ["--tools", str(example / "tools.toml"), "--out", "out"]
    makefile = [sys.executable, str(HERE / "montage_make.py"), str(raw), str(cwd / "disk")]

    def peer() -> float:
        shutil.rmtree(cwd / "disk", ignore_errors=True)
        subprocess.run(makefile, check=True)
        os.sync()
        return bench.seconds(["make", "-s", "-j2"], cwd / "disk")

    bench.pair(
        "montage_vs_make",
        lambda: bench.seconds(command, cwd),
        peer,
        against="make -j2 of the same 24 tasks on ext4",
    )


def case_start(bench: Bench) -> None:
    """Run time of an empty script, and of one task that needs the mount.

    Both are compared with fork and exec of a no-op.
    """
    cwd = bench.folder()
    empty = cwd / "empty.js"
    empty.write_text("")
    noop = [str(bench.tools / "spawn"), "1", "/bin/true"]
    bench.pair(
        "empty_script_above_noop",
        lambda: bench.seconds(bench.tidemill(empty, cwd), cwd),
        lambda: bench.seconds(noop, cwd),
        target="added_s at most 0.05",
    )
    tool = {"name": "pass", "command": [str(bench.tools / "pass"), "{out}"], "params": [{"name": "out", "kind": {"output": {}}}]}
    flow = write_flow(cwd / "one.json", [tool], {"A": 0}, [{"tool": "pass", "files": {"out": "A"}}])
    bench.pair(
        "one_task_mounted_above_noop",
        lambda: bench.seconds(bench.tidemill(flow, cwd, "--out", "out"), cwd),
        lambda: bench.seconds(noop, cwd),
        target="added_s at most 0.10",
    )


def case_graph(bench: Bench) -> None:
    """Loads a graph of 100,000 tasks from a script and a descriptor.

    Measures the time and the peak memory per task.
    """
    cwd, count = bench.folder(), 100_000
    (cwd / "tools.toml").write_text(
        'version = 1\n[tools.T]\ncommand = ["/bin/cat", "{a}"]\nstdout = "{b}"\n[tools.T.inputs]\na = {}\n[tools.T.outputs]\nb = {}\n'
    )
    (cwd / "in.txt").write_text("x")
    script = cwd / "graph.js"
    script.write_text(
        f'var n = {count};\nvar a = Data.get("in");\nvar b = Data.define("B", n);\n'
        "for (var i = 0; i < n; i++) T({a: i % 100 == 0 ? a : b[i - 1], b: b[i]});\n"
    )
    flags = ["--data", str(cwd), "--tools", str(cwd / "tools.toml")]
    exported = cwd / "graph.json"
    with exported.open("w") as out:
        subprocess.run([str(bench.binary), "flow", "export", str(script), *flags], stdout=out, check=True)
    for name, command in {
        "graph100000_script": [str(bench.binary), "flow", "check", str(script), *flags],
        "graph100000_json": [str(bench.binary), "flow", "check", str(exported), "--data", str(cwd)],
    }.items():
        took, peak = zip(*(run_measured(command) for _ in range(bench.runs)), strict=True)
        _, base = run_measured([str(bench.binary), "--version"])
        row = {
            "case": name,
            "seconds": round(statistics.median(took), 3),
            "bytes_a_task": round((statistics.median(peak) - base) / count),
            "tasks": count,
            "target": "2 s, 1,024 B",
        }
        print(json.dumps(row), flush=True)


def run_measured(command: list[str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of a command."""
    start = time.perf_counter()
    child = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


CASES = {
    "start": case_start,
    "true": case_true,
    "chain": case_chain,
    "fanout": case_fanout,
    "montage": case_montage,
    "graph": case_graph,
}


def main() -> None:
    """Runs the named cases, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the tidemill binary, built with --release")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES), help="which cases (all)")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side (5)")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the folder of real inputs")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", dir=os.environ.get("BENCH_DIR")) as work:
        bench = Bench(args.binary.resolve(), Path(work), args.data.resolve(), args.runs)
        for case in args.cases:
            CASES[case](bench)


if __name__ == "__main__":
    main()
