"""The functions that the preload library intercepts, compared with those of the C library.

They are the functions that take a path or a descriptor. A newer C library may have functions that
nobody has decided about; then this test fails and names them.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

# Functions of the C library that concern files and are not intercepted: NAME, and the reason.
NOT_CAUGHT = Path(__file__).parent / "suites/preload-not-caught.txt"
# The latest version of the C library whose functions were reviewed.
LOOKED_THROUGH = (2, 36)
# Functions of liburing, whose operations need no calls of the C library: setup fails.
RINGS = {"io_uring_queue_init", "io_uring_queue_init_params", "io_uring_queue_init_mem", "io_uring_setup"}
# Functions of C libraries after that version.
LATER = {"pidfd_spawn", "pidfd_spawnp", "posix_spawn_file_actions_addchdir", "posix_spawn_file_actions_addfchdir"}

# Headers of the C library that declare functions on files.
HEADERS = """aio.h dirent.h execinfo.h fcntl.h fts.h ftw.h glob.h mntent.h nl_types.h poll.h pty.h spawn.h stdio.h stdlib.h termios.h unistd.h utime.h
utmp.h utmpx.h
sched.h sys/acct.h sys/epoll.h sys/eventfd.h sys/fanotify.h sys/file.h sys/inotify.h sys/ioctl.h sys/mman.h sys/mount.h sys/pidfd.h sys/quota.h sys/sendfile.h
sys/signalfd.h sys/socket.h sys/stat.h sys/statfs.h sys/statvfs.h sys/swap.h sys/time.h sys/timerfd.h sys/uio.h sys/vfs.h sys/xattr.h dlfcn.h""".split()
DECLARED = re.compile(r"extern\s[^;{}]*?\b(\w+)\s*\(([^;{}]*)\)\s*;")
# A descriptor, a path, or a type that holds one, by the parameter names of these headers.
FILE_FUNCTIONS = re.compile(
    r"\bint __(?:\w*fd\w*|fildes\w*)\b|aiocb|sockaddr"
    r"|char \*(?:const )?(?:__restrict )?__(?:\w*file\w*|\w*path\w*|dir\w*|template|old\w*|new\w*|from|to|special\w*|target)\b"
)


def exported(library: Path | str) -> dict[str, str]:
    """The functions that a library exports, and the version of each."""
    listed = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", str(library)], check=True, capture_output=True, text=True).stdout
    words = [line.split()[-2:] for line in listed.splitlines()]
    return {name.split("@")[0]: name.rpartition("@")[2] for kind, name in words if kind in "TWi"}


def version(said: str) -> tuple[int, ...]:
    """Parses `GLIBC_2.36`; returns an empty tuple for private symbols of the C library."""
    number = said.removeprefix("GLIBC_")
    return tuple(map(int, number.split("."))) if number[0].isdigit() else ()


@pytest.fixture(scope="module")
def libc_functions() -> dict[str, str]:
    """The functions of the C library."""
    linked = subprocess.run(["ldd", "/bin/sh"], check=True, capture_output=True, text=True).stdout
    return exported(next(line.split()[2] for line in linked.splitlines() if "libc.so" in line))


@pytest.fixture(scope="module")
def preload_functions(binary: Path) -> set[str]:
    """The functions of the preload library."""
    return set(exported(binary.parent / "libtidemill_preload.so"))


def exclusion_reasons() -> dict[str, str]:
    """The reason why each of these functions is not intercepted."""
    lines = [line for line in NOT_CAUGHT.read_text().splitlines() if line and not line.startswith("#")]
    return {name: why for names, why in (line.split("  ", 1) for line in lines) for name in names.split()}


def test_every_function_is_one_of_the_c_library_or_of_a_later_one_or_of_rings(preload_functions: set[str], libc_functions: dict[str, str]) -> None:
    strange = sorted(preload_functions - set(libc_functions) - LATER - RINGS)
    assert not strange, strange


def test_what_is_not_caught_is_not_caught_and_there(preload_functions: set[str], libc_functions: dict[str, str]) -> None:
    listed = set(exclusion_reasons())
    assert not listed & preload_functions, "caught by now"
    assert not listed - set(libc_functions), "not of this C library"


def test_nobody_forgot_a_function_with_another_spelling(preload_functions: set[str], libc_functions: dict[str, str]) -> None:
    spellings = {spelt for name in preload_functions for spelt in (name + "64", "__" + name, name.removesuffix("64"), "__" + name + "_chk", name + "at")}
    forgotten = sorted((spellings & {name for name in libc_functions if version(libc_functions[name])}) - preload_functions - set(exclusion_reasons()))
    assert not forgotten, f"neither caught nor listed: {forgotten}"


def file_functions() -> set[str]:
    """The functions that the headers of this machine declare with a descriptor or a path."""
    source = "#define _GNU_SOURCE\n" + "".join(f"#if __has_include(<{header}>)\n#include <{header}>\n#endif\n" for header in HEADERS)
    text = subprocess.run(["cc", "-E", "-P", "-"], input=source, check=True, capture_output=True, text=True).stdout
    for wrapped in (r"__attribute__", r"__asm__"):
        text = re.sub(wrapped + r"\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "", text)
    return {name for name, parameters in DECLARED.findall(" ".join(text.split())) if FILE_FUNCTIONS.search(parameters)}


def test_every_function_of_the_headers_that_takes_a_descriptor_or_a_path_is_caught_or_listed(
    preload_functions: set[str], libc_functions: dict[str, str]
) -> None:
    declared = file_functions() & set(libc_functions)
    assert {"openat", "aio_read", "rename", "getdents64", "posix_spawn", "bind"} <= declared, "the headers were not read"
    forgotten = sorted(declared - preload_functions - set(exclusion_reasons()))
    assert not forgotten, f"neither caught nor listed: {forgotten}"


def test_a_newer_c_library_brings_nothing_that_nobody_decided_on(preload_functions: set[str], libc_functions: dict[str, str]) -> None:
    new = sorted(
        name for name, said in libc_functions.items() if version(said) > LOOKED_THROUGH and name not in preload_functions and name not in exclusion_reasons()
    )
    assert not new, f"{new}: look whether they take a path or a descriptor; then catch or list them, and raise LOOKED_THROUGH"
