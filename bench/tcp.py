"""Objects over TCP against a plain sender and receiver in C, on loopback.

    cargo build --release -p transport --example objects
    python3 bench/tcp.py --objects target/release/examples/objects

Both sides use the same sizes, clients, concurrent values and cached or uncached data (tools/tcp.c
has the details), and run in alternation. Each case prints a row of Markdown with medians: of GB/s,
of the ratios round by round, and of the CPU seconds of both processes per GiB.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
VERBS = ["put", "get"]
STREAMS = [1, 4]
UNDER_WAY = [1, 8]
# Least ratio wanted, by the length of a value.
TARGETS = {4 << 20: 0.85, 1 << 20: 0.75, 64 << 10: 0.45}

Speeds = dict[str, tuple[float, float]]


def tidemill_speeds(objects: Path, seconds: str, case: list[str]) -> Speeds:
    """GB/s and CPU seconds per GiB, by verb."""
    said = subprocess.run([str(objects), seconds, "tasks", *case], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in said.splitlines()[1:]]
    return {row[1]: (float(row[4]), float(row[8])) for row in rows}


def tcp_speeds(tcp: Path, seconds: str, case: list[str]) -> Speeds:
    """The same for the peer."""
    said = json.loads(subprocess.run([str(tcp), *case, seconds], check=True, capture_output=True, text=True).stdout)
    return {verb: (said[verb]["gb_s"], said[verb]["cpu_s_gib"]) for verb in VERBS}


def row(case: tuple[int, int, int], verb: str, rounds: list[tuple[Speeds, Speeds]]) -> str:
    """A row of the table."""
    length, streams, under_way = case
    (speed, cpu), (peer, peer_cpu) = ([median(side[verb][at] for side in sides) for at in (0, 1)] for sides in zip(*rounds, strict=True))
    ratios = sorted(mine[verb][0] / other[verb][0] for mine, other in rounds)
    ratio, target = median(ratios), TARGETS[length]
    met = "met" if ratio >= target else "**missed**"
    what = f"{length >> 10} KiB, {streams} stream{'s' if streams > 1 else ''}, {under_way} under way, {verb}"
    spread = f"{ratio:.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})"
    return f"| {what} | {speed:.2f} | {peer:.2f} | {spread} | {target} | {met} | {cpu:.2f} / {peer_cpu:.2f} |"


def main() -> None:
    """Runs all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", default="0.5")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tcp = Path(folder) / "tcp"
        subprocess.run(["cc", "-O2", "-o", str(tcp), str(HERE / "tools/tcp.c"), "-lpthread"], check=True)
        print("| what | GB/s | peer | ratio (min..max) | target | | CPU s/GiB, ours / peer |\n|---|---:|---:|---|---|---|---|")
        for case in itertools.product(TARGETS, STREAMS, UNDER_WAY):
            words = [str(number) for number in case]
            sides = [(tidemill_speeds(asked.objects, asked.seconds, words), tcp_speeds(tcp, asked.seconds, words)) for _ in range(asked.runs)]
            for verb in VERBS:
                print(row(case, verb, sides), flush=True)


if __name__ == "__main__":
    main()
