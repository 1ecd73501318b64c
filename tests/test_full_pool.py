"""A full pool and other limits on the mount: clear errors, no data loss, no stuck process."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pools
import pytest
from workbench import Workbench

MIB = 1 << 20
WAITS = "import sys; file = open(sys.argv[1], 'wb', buffering=0)\nwhile True: file.write(bytes(1 << 20))"

pytestmark = pytest.mark.usefixtures("root")


def fill(file: Path) -> int:
    """Writes until the pool is full; returns the number of bytes written."""
    with file.open("wb", buffering=0) as stream:
        written = 0
        try:
            while True:
                written += stream.write(bytes([written // MIB % 251]) * MIB)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - a loop until the error
    return written


def test_a_full_pool_keeps_what_it_took_and_is_usable_again(binary: Path, shared_dir: Path, io_flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SPACE_WAIT", "0")
    with pools.pool(binary, shared_dir, *io_flags, memory="64MiB") as pool:
        file = pool.dir / "file"
        written = fill(file)
        assert 48 * MIB <= written <= 64 * MIB, written
        assert file.stat().st_size == written
        data = file.read_bytes()
        assert all(data[at] == at // MIB % 251 for at in range(0, written, 4096))
        status = os.statvfs(pool.dir)
        assert status.f_bavail * status.f_frsize <= 16 * MIB
        file.write_bytes(b"less")
        assert fill(pool.dir / "other") >= 48 * MIB
        (pool.dir / "other").unlink()
        assert file.read_bytes() == b"less"
        assert fill(pool.dir / "again") >= 48 * MIB


def test_who_waits_for_space_goes_on_when_there_is_some(binary: Path, shared_dir: Path, io_flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pools.pool(binary, shared_dir, *io_flags, memory="64MiB") as pool:
        half = pool.dir / "half"
        half.write_bytes(bytes(40 * MIB))
        monkeypatch.setenv("TIDEMILL_SPACE_WAIT", "60")
        code = "import sys; file = open(sys.argv[1], 'wb', buffering=0)\nfor _ in range(40): file.write(bytes(1 << 20))\nfile.close()"
        with subprocess.Popen([sys.executable, "-c", code, str(pool.dir / "other")]) as writer:
            wait_until_blocked(writer)
            half.unlink()
            assert writer.wait(timeout=30) == 0
        assert (pool.dir / "other").stat().st_size == 40 * MIB


def wait_until_blocked(process: subprocess.Popen[bytes]) -> None:
    """Waits until a process is blocked on a reply of the file system."""
    place = Path(f"/proc/{process.pid}/wchan")
    seen = 0

    def is_blocked() -> bool:
        nonlocal seen
        assert process.poll() is None, f"it has ended with {process.returncode}"
        # Every request waits briefly; only one that stays is what the test waits for.
        seen = seen + 1 if "request_wait_answer" in place.read_text() else 0
        return seen > 20

    Workbench.wait_for(is_blocked)


def test_who_waits_for_space_dies_at_once_when_it_is_killed(binary: Path, shared_dir: Path, io_flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_SPACE_WAIT", "200")
    with pools.pool(binary, shared_dir, *io_flags, memory="64MiB") as pool:
        (pool.dir / "half").write_bytes(bytes(40 * MIB))
        with subprocess.Popen([sys.executable, "-c", WAITS, str(pool.dir / "file")]) as writer:
            wait_until_blocked(writer)
            writer.kill()
            assert writer.wait(timeout=20) == -signal.SIGKILL
        (pool.dir / "file").unlink()
        (pool.dir / "half").unlink()
        (pool.dir / "next").write_bytes(bytes(48 * MIB))


def test_who_waits_for_a_lock_dies_at_once_when_it_is_killed(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    code = "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.{}(file, fcntl.LOCK_EX)\nprint('has it', flush=True)\nsys.stdin.read()"
    with pools.pool(binary, shared_dir, *io_flags, points=2) as pool:
        for how in ("flock", "lockf"):
            commands = [[sys.executable, "-c", code.format(how), str(folder / how)] for folder in pool.dirs]
            with subprocess.Popen(commands[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "has it\n"
                with subprocess.Popen(commands[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiter:
                    wait_until_blocked(waiter)
                    waiter.kill()
                    assert waiter.wait(timeout=20) == -signal.SIGKILL
                holder.communicate("", timeout=20)
            done = subprocess.run(commands[1], input=b"", capture_output=True, check=True, timeout=20)
            assert done.stdout == b"has it\n"


def test_more_files_may_be_open_than_the_server_may_have(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    """The number of server descriptors for files is limited; other files are served by requests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        limited = shared_dir / "limited"
        limited.write_text(f'#!/bin/sh\nulimit -n 256\nexec "{binary}" "$@"\n')
        limited.chmod(0o755)
        with pools.pool(limited, shared_dir, *io_flags) as pool, ExitStack() as stack:
            files = [stack.enter_context((pool.dir / f"{number}").open("w+b", buffering=0)) for number in range(1000)]
            for number, file in enumerate(files):
                file.write(bytes([number % 251]) * 10_000)
            for number, file in enumerate(files):
                file.seek(0)
                assert file.read() == bytes([number % 251]) * 10_000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.soak
def test_a_million_names_in_one_folder(binary: Path, shared_dir: Path, io_flags: list[str]) -> None:
    with pools.pool(binary, shared_dir, *io_flags, memory="4GiB") as pool:
        folder = pool.dir / "folder"
        folder.mkdir()
        for number in range(1_000_000):
            os.close(os.open(folder / f"{number:x}", os.O_CREAT | os.O_WRONLY))
        with os.scandir(folder) as entries:
            assert len({entry.name for entry in entries}) == 1_000_000
        assert (folder / "f423f").is_file()
        for number in range(1_000_000):
            (folder / f"{number:x}").unlink()
        folder.rmdir()
