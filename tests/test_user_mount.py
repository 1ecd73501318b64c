"""An ordinary user with fusermount3: the same file system, without passthrough, private."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pools
import pytest
from test_posix_edges import differences, outcomes

USER = 1000
# Topics that need neither another user nor a privilege.
TOPICS = ("mappings", "sizes", "locks")

pytestmark = pytest.mark.usefixtures("root", "fuse_for_users")


def as_user(command: list[str], **how: object) -> subprocess.Popen[str]:
    """Starts a program as the user."""
    return subprocess.Popen(command, user=USER, group=USER, extra_groups=[], text=True, **how)


@pytest.fixture
def user_dir(shared_dir: Path, binary: Path) -> Path:
    """A directory of the user with the binary; skips the test if the user cannot mount."""
    helper = shutil.which("fusermount3")
    if helper is None or not Path(helper).stat().st_mode & stat.S_ISUID:
        pytest.skip("no fusermount3 that may mount for others")
    folder = shared_dir / "user"
    for name in (".", "pool", "runtime"):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, USER, USER)
    shutil.copy(binary, folder / "tidemill")
    (folder / "tidemill").chmod(0o755)
    return folder


def test_a_user_mounts_works_and_unmounts(user_dir: Path) -> None:
    environment = os.environ | {"XDG_RUNTIME_DIR": str(user_dir / "runtime"), "HOME": str(user_dir)}
    binary, pool = str(user_dir / "tidemill"), user_dir / "pool"
    with as_user([binary, "mount", "--memory", pools.MEMORY, str(pool)], env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        assert "mounted at" in said, said
        try:
            with pools.tmpfs(user_dir / "twin") as twin:
                os.chown(twin, USER, USER)
                for topic in TOPICS:
                    wrong = differences(outcomes(topic, twin, USER), outcomes(topic, pool, USER), "ordinary")
                    assert not wrong, "\n".join(wrong)
        finally:
            done = as_user([binary, "umount", str(pool)], env=environment, stderr=subprocess.PIPE)
            _, said = done.communicate(timeout=30)
        assert done.returncode == 0, said
        assert server.wait(timeout=30) == 0
    assert not os.path.ismount(pool)
