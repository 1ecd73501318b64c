"""Programs and libraries that lie in a pool, started and opened by programs that see it by the preload library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from preloaded import PREFIX, Pool

# Opens libraries by their paths and says what each one's function returns, and by which path the loader tells of it; equal handles have equal numbers.
LIBRARIES = """
import ctypes, sys
class Info(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]
handles, info = [], Info()
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
    if library._handle not in handles:
        handles.append(library._handle)
    ctypes.CDLL(None).dladdr(library.which, ctypes.byref(info))
    print(library.which(), handles.index(library._handle), info.path.decode())
"""


@pytest.fixture(scope="module")
def pool(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node."""
    with preloaded.pool(binary, tmp_path_factory.mktemp("launch")) as pool:
        yield pool


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    """What the compiler makes of a source."""
    file = folder / f"{name}.c"
    file.write_text(source)
    subprocess.run(["cc", "-Wall", "-Werror", *flags, "-o", str(folder / name), str(file)], check=True)
    return folder / name


def said(pool: Pool, *words: str | Path, **more: str) -> str:
    """What a program prints, which must go well."""
    done = pool.run(*words, env=more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_library_of_the_pool_is_itself_and_the_same_again(pool: Pool, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        library = compiled(tmp_path, f"lib{number}.so", f"int which(void) {{ return {number}; }}\n", "-shared", "-fPIC")
        said(pool, "cp", library, PREFIX)
    # With such bits it is none that the loader could map.
    said(pool, "chmod", "u+s", f"{PREFIX}/lib3.so")
    said(pool, "ln", f"{PREFIX}/lib1.so", f"{PREFIX}/other.so")
    paths = [f"{PREFIX}/{name}.so" for name in ("lib1", "lib2", "lib3", "lib1", "lib2", "lib3", "other")]
    told = said(pool, sys.executable, "-c", LIBRARIES, *paths).splitlines()
    first = [f"{number} {number - 1} {PREFIX}/lib{number}.so" for number in (1, 2, 3)]
    assert told == [*first, *first, first[0]]
