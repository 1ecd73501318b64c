"""Measures runs on a Dask cluster: the carrier, traffic and makespan by policy, the classification.

    bench/cluster.py --binary target/release/tidemill carrier traffic makespan classification

As root, since hosts are network namespaces. The Python that runs this needs distributed. Prints one
JSON line for each measurement; ratios are of medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

import hosts  # noqa: E402 (beside the tests)
from dask_clusters import DaskCluster, dask_cluster  # noqa: E402

POLICIES = ("fifo", "algorithm1", "locality")
TASKS = 2000
RUN_SECONDS_MAX = 600
# Rate of a host's link for the makespan.
LINK = "480mbit"

TOOLS = """
version = 1

[tools.nothing]
command = ["true"]

[tools.image]
command = ["sh", "-c", "head -c $2 /dev/zero > $1", "sh", "{to}", "{bytes}"]
outputs.to = {}
config.bytes = { type = "integer" }

[tools.pass]
command = ["sh", "-c", "cat $1 > /dev/null; head -c $3 /dev/zero > $2", "sh", "{from}", "{to}", "{bytes}"]
inputs.from = {}
outputs.to = {}
config.bytes = { type = "integer" }

[tools.pair]
command = ["sh", "-c", "cat $1 $2 > /dev/null; head -c $4 /dev/zero > $3", "sh", "{a}", "{b}", "{to}", "{bytes}"]
inputs.a = {}
inputs.b = {}
outputs.to = {}
config.bytes = { type = "integer" }

[tools.join]
command = ["sh", "-c", "t=$1; shift; cat \\"$@\\" | wc -c > $t", "sh", "{to}", "{from}"]
inputs.from = { array = "args" }
outputs.to = {}
"""

# The shape of Montage: images are projected, neighbours compared, all comparisons make a model, by
# which each image is corrected, and all images are added.
MONTAGE = """
var n = 24, M = 1 << 20;
var raw = Data.define("Raw", n), proj = Data.define("Proj", n), fit = Data.define("Fit", n - 1);
var diff = Data.define("Diff", n - 1), model = Data.define("Model"), corr = Data.define("Corr", n), all = Data.define("All");
for (var i = 0; i < n; i++) { image({to: raw[i], bytes: 2 * M}); pass({from: raw[i], to: proj[i], bytes: 4 * M}); }
for (var i = 0; i + 1 < n; i++) { pair({a: proj[i], b: proj[i + 1], to: diff[i], bytes: 2 * M}); pass({from: diff[i], to: fit[i], bytes: 1000}); }
join({from: fit, to: model});
for (var i = 0; i < n; i++) { pair({a: proj[i], b: model, to: corr[i], bytes: 4 * M}); }
join({from: corr, to: all});
"""

# A fan-out of chains over files of 64 MiB, and a merge of what is left of them.
CHAINS = """
var n = 12, M = 1 << 20;
var a = Data.define("A", n), b = Data.define("B", n), c = Data.define("C", n), d = Data.define("D");
for (var i = 0; i < n; i++) {
    image({to: a[i], bytes: 64 * M}); pass({from: a[i], to: b[i], bytes: 64 * M}); pass({from: b[i], to: c[i], bytes: M});
}
join({from: c, to: d});
"""


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def tell(**values: object) -> None:
    """Prints one measurement."""
    print(json.dumps(values), flush=True)


def run(cluster: DaskCluster, *flags: str) -> float:
    """Runs the workflow; returns its makespan in seconds."""
    return checked(cluster, cluster.run(*flags))


def checked(cluster: DaskCluster, done: subprocess.CompletedProcess[str]) -> float:
    """The makespan of a run that has ended well."""
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return float(cluster.run_json["totals"]["makespan_s"])


def new_cluster(binary: Path, stack: ExitStack, workers: dict[int, int], count: int) -> DaskCluster:
    """A cluster of namespaces in a directory of its own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    net = stack.enter_context(hosts.network(folder, count))
    cluster = stack.enter_context(dask_cluster(binary, folder, net, workers))
    cluster.tools.write_text(TOOLS)
    cluster.memory, cluster.seconds_max = "1GiB", RUN_SECONDS_MAX
    return cluster


def sent_bytes(cluster: DaskCluster, worker_hosts: list[int]) -> int:
    """Bytes that the hosts of workers have received so far."""
    total = 0
    for host in worker_hosts:
        listed = subprocess.run(cluster.net.inside(host, "ip", "-s", "-j", "link", "show", "eth0"), capture_output=True, text=True, check=True)
        total += json.loads(listed.stdout)[0]["stats64"]["rx"]["bytes"]
    return total


def carrier(binary: Path, rounds: int) -> None:
    """Time above `xargs -P2` of tasks that do nothing, against plain `client.submit`."""
    with ExitStack() as stack:
        cluster = new_cluster(binary, stack, {1: 2}, 2)
        cluster.script("".join("nothing({});\n" for _ in range(TASKS)))
        submit = (
            "import sys, subprocess, time; from distributed import Client; c = Client(sys.argv[1]); c.wait_for_workers(1); begun = time.monotonic();"
            f"c.gather([c.submit(subprocess.call, ['/bin/true'], pure=False) for _ in range({TASKS})]); print(time.monotonic() - begun)"
        )
        address = cluster.address.replace("dask", "tcp")
        xargs, plain, ours = [], [], []
        for _ in range(rounds):
            lines = "\n".join(["x"] * TASKS)
            xargs.append(timed(lambda lines=lines: subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=lines, text=True, check=True)))
            inside = cluster.net.inside(0, sys.executable, "-c", submit, address)
            plain.append(float(subprocess.run(inside, capture_output=True, text=True, check=True).stdout))
            ours.append(run(cluster, "--workers", "1"))
        base = statistics.median(xargs)
        above = [statistics.median(times) - base for times in (plain, ours)]
        tell(what="carrier", xargs=xargs, submit=plain, tidemill=ours, ratio_above_xargs=above[1] / above[0])


def by_policy(binary: Path, rounds: int, script: str, what: str, link: str | None) -> None:
    """Bytes on the wire and makespan of a workflow on four hosts, by policy."""
    with ExitStack() as stack:
        workers = [1, 2, 3, 4]
        cluster = new_cluster(binary, stack, dict.fromkeys(workers, 1), 5)
        for host in [0, *workers] if link else []:
            words = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", link or "", "burst", "256kb", "latency", "50ms"]
            subprocess.run(cluster.net.inside(host, *words), check=True)
        cluster.script(script)
        moved: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        spans: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for _ in range(rounds):
            for policy in POLICIES:
                before = sent_bytes(cluster, workers)
                spans[policy].append(run(cluster, "--workers", "4", "--policy", policy))
                moved[policy].append(sent_bytes(cluster, workers) - before)
        median = {policy: statistics.median(moved[policy]) for policy in POLICIES}
        span = {policy: statistics.median(spans[policy]) for policy in POLICIES}
        ours = median["locality"]
        tell(
            what=what,
            bytes=moved,
            makespan=spans,
            of_fifo=ours / median["fifo"],
            of_algorithm1=ours / median["algorithm1"],
            faster=span["fifo"] / span["locality"],
        )


def classification(binary: Path, rounds: int) -> None:
    """The classification of the demo on two workers, against local processes."""
    example = ROOT / "examples/classification"
    python = ROOT / "examples/.venv/bin/python"
    with ExitStack() as stack:
        cluster = new_cluster(binary, stack, {1: 1, 2: 1}, 3)
        subprocess.run([python, example / "prepare.py", cluster.data], check=True, capture_output=True)
        cluster.workflow, cluster.tools = example / "workflow.js", example / "tools.toml"
        local, remote = [], []
        for _ in range(rounds):
            for times, flags, on in ((local, ("--slots", "2"), False), (remote, ("--workers", "2"), True)):
                shutil.rmtree(cluster.out, ignore_errors=True)
                done = cluster.run("--set", "n=20", "--set", "m=80", *flags, on=on)
                times.append(checked(cluster, done))
        tell(what="classification", local=local, dask=remote, ratio=statistics.median(remote) / statistics.median(local))


def main() -> None:
    """Measures what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("what", nargs="+", choices=["carrier", "traffic", "makespan", "classification"])
    given = parser.parse_args()
    binary, rounds = given.binary.resolve(), given.rounds
    measures: dict[str, Callable[[], None]] = {
        "carrier": lambda: carrier(binary, rounds),
        "traffic": lambda: by_policy(binary, rounds, MONTAGE, "traffic", None),
        "makespan": lambda: by_policy(binary, rounds, CHAINS, "makespan", LINK),
        "classification": lambda: classification(binary, rounds),
    }
    for what in given.what:
        measures[what]()


if __name__ == "__main__":
    main()
