"""The package: its installation from the repository, its types, and its documentation."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tidemill
from example_runs import ROOT

PACKAGE = ROOT / "python/tidemill"


def run(*command: str | Path, **environment: str) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_types_are_right_and_the_stubs_are_those_of_the_native_part(tmp_path: Path) -> None:
    config = ROOT / "tests/python/mypy.ini"
    run(sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path, PACKAGE, MYPYPATH=str(ROOT / "python"))
    stubtest = [sys.executable, "-m", "mypy.stubtest"]
    run(*stubtest, "--mypy-config-file", config, "--allowlist", ROOT / "tests/python/stubtest.txt", "tidemill", MYPYPATH=str(ROOT / "python"))


def test_what_a_user_writes_is_typed() -> None:
    use = ROOT / "tests/python/typed_use.py"
    run(sys.executable, "-m", "mypy", "--config-file", ROOT / "tests/python/mypy.ini", use, MYPYPATH=str(ROOT / "python"))


@pytest.mark.timeout(900)  # it compiles what `make wheel` did not
def test_it_installs_from_the_repository(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path, ROOT, PATH=path)
    program = "import tidemill; pool = tidemill.start('64MiB'); pool.put('a', b'b'); print(bytes(pool.get('a')), tidemill.__file__)"
    printed = run(sys.executable, "-c", program, PYTHONPATH=str(tmp_path))
    assert printed.startswith(f"b'b' {tmp_path}")


def test_dir_shows_public_names_alone() -> None:
    assert dir(tidemill) == sorted(tidemill.__all__)


def public() -> list[tuple[str, object]]:
    """All public names of the package, and the public members of its classes."""
    found: list[tuple[str, object]] = []
    for name in tidemill.__all__:
        thing = getattr(tidemill, name)
        found.append((name, thing))
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            members = [(member, value) for member, value in vars(thing).items() if not member.startswith("_")]
            found += [(f"{name}.{member}", value) for member, value in members if callable(value) or isinstance(value, property)]
    return found


@pytest.mark.parametrize(("name", "thing"), public(), ids=[name for name, _ in public()])
def test_whatever_is_public_says_what_it_does(name: str, thing: object) -> None:
    doc = inspect.getdoc(thing)
    assert doc, name
    assert doc.rstrip()[-1] in ".`=", f"{name}: {doc!r}"
