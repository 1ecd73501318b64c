"""Measures Swift scripts: a loop against CPython, memory of long loops, tasks against xargs, the check.

    bench/swift.py --binary target/release/tidemill [--rounds 5] loop memory tasks calls check

Prints one JSON line for each measurement. What is compared runs in turn; ratios are medians of the
ratios round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOP = "import stats; int A[]; foreach i in [0:999999] { A[i] = i*i %% 7; } trace(sum(A));\n"
PYTHON_LOOP = "A = [0] * 1000000\nfor i in range(1000000):\n    A[i] = i * i % 7\nprint('trace:', sum(A))\n"
LAST = "foreach i in [1:COUNT] { if (i == COUNT) { trace(i); } }\n"
TASKS = 'app (void v) t() { "/bin/true" }\nforeach i in [1:COUNT] { t(); }\n'
CHECKED_LINES = 2000


class Measurer:
    """Scripts and commands in a directory of their own, with time and peak memory."""

    def __init__(self, binary: Path, folder: Path, rounds: int) -> None:
        self.binary, self.folder, self.rounds = binary, folder, rounds

    def run(self, command: list[str]) -> tuple[float, int]:
        """Runs a command; its seconds and the KiB of memory that it held at most."""
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if status != 0:
            sys.exit(f"{command} ended with {status}")
        return seconds, usage.ru_maxrss

    def swift(self, text: str, *flags: str) -> tuple[float, int]:
        """Runs a script, or checks it."""
        (self.folder / "w.swift").write_text(text)
        words = flags or ("run", "--quiet", "--report", "report")
        return self.run([str(self.binary), *words, "w.swift"])

    def ratios(self, ours: str, peer: list[str]) -> dict[str, float]:
        """Times of a script and of a command in turn."""
        pairs = [(self.swift(ours)[0], self.run(peer)[0]) for _ in range(self.rounds)]
        quotients = [mine / other for mine, other in pairs]
        mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
        return {"seconds": mine, "peer": other, "ratio": statistics.median(quotients), "min": min(quotients), "max": max(quotients)}

    def loop(self) -> dict[str, float]:
        """A million iterations that fill an array, and its sum, against CPython."""
        empty = statistics.median(self.swift("trace(1);\n")[1] for _ in range(3))
        held = statistics.median(self.swift(LOOP)[1] for _ in range(3))
        of_array = (held - empty) * 1024 / 8e6
        return {**self.ratios(LOOP, [sys.executable, "-c", PYTHON_LOOP]), "memory_of_array": of_array}

    def memory(self) -> dict[str, float]:
        """Peak memory of a million iterations without an array, against 10,000."""
        few, many = (statistics.median(self.swift(LAST.replace("COUNT", count))[1] for _ in range(self.rounds)) for count in ("10000", "1000000"))
        return {"few_kib": few, "many_kib": many, "ratio": many / few}

    def tasks(self) -> dict[str, float]:
        """10,000 tasks of /bin/true against `xargs -P2`."""
        return self.ratios(TASKS.replace("COUNT", "10000"), ["sh", "-c", "seq 10000 | xargs -n1 -P2 /bin/true"])

    def calls(self) -> dict[str, float]:
        """Peak memory of 100,000 calls, against 10,000."""
        few, many = (self.swift(TASKS.replace("COUNT", count))[1] for count in ("10000", "100000"))
        return {"few_kib": few, "many_kib": many, "ratio": many / few}

    def check(self) -> dict[str, float]:
        """`flow check` of a script of 2,000 lines."""
        function = "(int o) f{n}(int i) {{\n  int x = i * {n} + 1;\n  if (x %% 2 == 0) {{ o = x; }} else {{ o = x + 1; }}\n}}\ntrace(f{n}({n}));\n"
        text = "".join(function.format(n=n) for n in range(CHECKED_LINES // 5))
        seconds = [self.swift(text, "flow", "check")[0] for _ in range(self.rounds)]
        return {"lines": text.count("\n"), "seconds": statistics.median(seconds), "min": min(seconds), "max": max(seconds)}


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("what", nargs="+", choices=("loop", "memory", "tasks", "calls", "check"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measurer = Measurer(given.binary.resolve(), Path(folder), given.rounds)
        for what in given.what:
            found = getattr(measurer, what)()
            print(json.dumps({"what": what, **{name: round(value, 4) for name, value in found.items()}}))


if __name__ == "__main__":
    main()
