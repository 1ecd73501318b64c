"""Whatever a run on a cluster has is killed at random, the run itself too: the result stays right.

SOAK_KILLS is the number of kills, SOAK_SEED chooses them.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import hosts
import pytest
from dask_clusters import DaskCluster, dask_cluster, next_event

pytestmark = [pytest.mark.soak, pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))]

KILLS = int(os.environ.get("SOAK_KILLS", "50"))
CHAINS, LENGTH = 12, 6

# Chains whose tasks take a moment, joined in the end.
SCRIPT = f"""
var i = Data.get("in.txt"), n = {CHAINS}, m = {LENGTH};
var a = Data.define("A", [n, m]), c = Data.define("C"), last = Data.define("Last", n);
for (var k = 0; k < n; k++) {{
    for (var l = 0; l < m; l++) shell({{from: l ? a[k][l - 1] : i, to: a[k][l], script: 'sleep 0.2; cat "$1" > "$2"; echo ' + k + '.' + l + ' >> "$2"'}});
    copy({{from: a[k][m - 1], to: last[k]}});
}}
join({{from: last, to: c}});
"""
RESULT = "".join("tide\n" + "".join(f"{k}.{step}\n" for step in range(LENGTH)) for k in range(CHAINS))


def test_whatever_dies_the_result_is_right(binary: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED", str(random.randrange(1 << 30))))
    print(f"SOAK_SEED={seed}")
    choice = random.Random(seed)
    kills = 0
    while kills < KILLS:
        folder = tmp_path / f"round{kills}"
        folder.mkdir()
        with hosts.network(folder, 4) as net, dask_cluster(binary, folder, net, {1: 2, 2: 2, 3: 2}) as cluster:
            cluster.script(SCRIPT)
            run = cluster.start("--workers", "3", "--lease", "15", "--wait", "60")
            for _ in range(choice.randrange(1, 4)):
                for _ in range(choice.randrange(2, 20)):
                    next_event(run, "task_done")
                kind, kill = choice.choice(list(victims(cluster, choice).items()))
                print(f"kill {kills}: {kind}", flush=True)
                kill()
                kills += 1
                if kind == "run":
                    run.kill()
                    run.wait()
                    run = cluster.resume()
            assert run.stdout is not None
            run.stdout.read()
            assert run.wait(timeout=280) == 0, (seed, cluster.errors())
            assert (cluster.out / "C.txt").read_text() == RESULT, seed


def victims(cluster: DaskCluster, choice: random.Random) -> dict[str, Callable[[], None]]:
    """What may be killed, and how."""
    host = choice.randrange(1, 4)

    def kill_pid(pid_of: Callable[[int], int], of: int = host) -> None:
        # It may have been killed before.
        try:
            os.kill(pid_of(of), signal.SIGKILL)
        except (StopIteration, ProcessLookupError):
            return

    def restart_worker() -> None:
        cluster.kill(f"w{host}")
        cluster.start_worker(f"w{host}", host, 2)

    def restart_scheduler() -> None:
        cluster.kill("scheduler")
        for name in [name for name in cluster.processes if name.startswith("w")]:
            cluster.kill(name)
        cluster.start_scheduler()
        for number in range(1, 4):
            cluster.start_worker(f"w{number}", number, 2)

    return {
        "worker": restart_worker,
        "node": lambda: kill_pid(cluster.node_of),
        "agent": lambda: kill_pid(cluster.agent_of),
        "scheduler": restart_scheduler,
        "first node": lambda: kill_pid(cluster.node_of, 0),
        "agent of the first node": lambda: kill_pid(cluster.agent_of, 0),
        # The caller has its process.
        "run": lambda: None,
    }
