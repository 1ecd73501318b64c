"""MPI-IO of ranks on two hosts to one file gives the same result on a pool as on a tmpfs.

The hosts are network namespaces with their own host names, so MPICH's ranks communicate over the
network. Each has a node of the pool. Its ranks use a mount at a common path, or the preload
library.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hosts
import pytest
from hosts import Network
from pools import Mount
from preloaded import PREFIX
from test_pool import Home
from waiting import wait_for

pytestmark = pytest.mark.skipif(hosts.unsupported_reason() is not None, reason=str(hosts.unsupported_reason()))

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "examples/packages.sh"
RANKS = 4
# The first two hosts have nodes and ranks; the last one starts everything and has neither.
WORKERS = [0, 1]
USER = 2
WAYS = ["independent", "collective", "strided", "sieved", "ordered", "started"]
SECONDS_MAX = 120


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled MPI program."""
    subprocess.run([str(PACKAGES), "mpich", "libmpich-dev"], check=True)
    made = tmp_path_factory.mktemp("mpi") / "ranks"
    subprocess.run(["mpicc.mpich", "-O1", "-Wall", "-Werror", "-o", str(made), str(HERE / "mpi/ranks.c")], check=True)
    return made


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Network]:
    """Three hosts."""
    with hosts.network(tmp_path, len(WORKERS) + 1) as net:
        yield net


def launcher(net: Network, at: Path, common: Path | None = None) -> Path:
    """A script with which MPICH starts processes on other hosts: LAUNCHER ADDRESS COMMAND.

    With `common`, a host sees its own directory, `at`/NUMBER, at that path.
    """
    bind = "" if common is None else f"mount --bind {at}/$number {common}; "
    script = at / "launcher"
    script.write_text(
        "#!/bin/sh\n"
        "address=$1; shift; number=${address##*.}\n"
        f'exec ip netns exec {net.mark}h"$number" unshare --uts sh -ec "\n'
        f'    hostname host$number; {bind}exec $*"\n'
    )
    script.chmod(0o755)
    return script


def run(net: Network, script: Path, *program: str | Path) -> list[str]:
    """The sorted output of the ranks, half of them on each host.

    It is sorted because the lines of two hosts arrive in any order.
    """
    layout = ["-n", str(RANKS), "-ppn", str(RANKS // len(WORKERS)), "-hosts", net.names(*WORKERS)]
    launch = ["-launcher", "rsh", "-launcher-exec", str(script), "-iface", "eth0"]
    command = net.inside(USER, "mpiexec.mpich", *launch, *layout, *program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def checksums(folder: Path) -> dict[str, str]:
    """Checksums of the files."""
    return {way: hashlib.sha256((folder / way).read_bytes()).hexdigest() for way in WAYS}


@contextmanager
def pool(net: Network, home: Home) -> Iterator[Path]:
    """The pool file of a pool with a node on each worker host."""
    start = ["pool", "start", "--hosts", net.names(*WORKERS), "--ssh", str(net.ssh), "--memory", "64MiB"]
    subprocess.run(net.inside(USER, home.binary, *start), env=home.environment, cwd=home.folder, check=True, capture_output=True)
    try:
        yield home.runtime / "tidemill/pool"
    finally:
        subprocess.run(net.inside(USER, home.binary, "pool", "stop"), env=home.environment, cwd=home.folder, check=True, capture_output=True)
        wait_for(lambda: not home.node_processes(), "nodes were left")
        shutil.rmtree(home.runtime)


def test_ranks_on_two_hosts_share_a_file_of_their_mounts_and_of_the_preload_library_as_they_do_on_tmpfs(
    binary: Path, ranks: Path, net: Network, tmp_path: Path, tmpfs: Path
) -> None:
    home = Home(binary, tmp_path)
    common = tmp_path / "common"
    common.mkdir()
    (tmp_path / "same").mkdir()
    for number in ("1", "2"):
        (tmp_path / "same" / number).symlink_to(tmpfs)
    wanted = run(net, launcher(net, tmp_path / "same", common), ranks, common)
    expected = checksums(tmpfs)

    with pool(net, home) as file:
        mounts = [Mount(binary, tmp_path, [tmp_path / str(host + 1)], "--pool", str(file), network=net.name(host)) for host in WORKERS]
        try:
            assert run(net, launcher(net, tmp_path, common), ranks, common) == wanted
            assert [checksums(mount.dir) for mount in mounts] == [expected, expected]
            # The same with the preload library, in another directory of the pool; the mounts see
            # the result. The stripes are also accessed by asynchronous operations, which the C
            # library's own threads cannot do.
            (mounts[0].dir / "preload").mkdir()
            os.setxattr(mounts[0].dir / "preload", "user.tidemill.placement", b"striped")
            program = [binary, "exec", "--pool", file, "--", ranks, f"{PREFIX}/preload"]
            assert run(net, launcher(net, tmp_path / "same"), *program) == wanted
            assert [checksums(mount.dir / "preload") for mount in mounts] == [expected, expected]
        finally:
            for mount in mounts:
                mount.close()
    assert {line.split()[-1] for line in wanted if line.startswith("rank")} == {"host1", "host2"}
