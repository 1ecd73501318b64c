"""hang.py aborts a mount whose server does not answer, and so unblocks waiting processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import hang
import pools
import pytest


@pytest.mark.usefixtures("root")
def test_who_hangs_in_a_mount_is_freed_and_other_mounts_are_spared(binary: Path, shared_dir: Path) -> None:
    with pools.shared_dir() as other, pools.pool(binary, other) as spared:
        pool = pools.Pool(binary, shared_dir)
        pool.process.send_signal(signal.SIGSTOP)
        with subprocess.Popen([sys.executable, "-c", "import os, sys; os.mkdir(sys.argv[1])", str(pool.dir / "x")], stderr=subprocess.PIPE) as stuck:
            with pytest.raises(subprocess.TimeoutExpired):
                stuck.wait(timeout=0.3)
            assert hang.abort_mounts(shared_dir) == [str(pool.dir)]
            assert stuck.wait(timeout=20) == 1
        pool.process.kill()
        pool.process.wait()
        (spared.dir / "works").touch()
