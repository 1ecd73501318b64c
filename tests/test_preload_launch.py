"""Programs and libraries in a pool, started and loaded by programs with the preload library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from preloaded import PREFIX, Pool

# Loads libraries by path; prints the result of each one's function and the path that the loader
# reports. Equal handles have equal numbers.
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
    """Compiles a C source and returns the path of the result."""
    file = folder / f"{name}.c"
    file.write_text(source)
    subprocess.run(["cc", "-Wall", "-Werror", *flags, "-o", str(folder / name), str(file)], check=True)
    return folder / name


def output_of(pool: Pool, *words: str | Path, **more: str) -> str:
    """The output of a program that must succeed."""
    done = pool.run(*words, env=more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_library_of_the_pool_is_itself_and_the_same_again(pool: Pool, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        library = compiled(tmp_path, f"lib{number}.so", f"int which(void) {{ return {number}; }}\n", "-shared", "-fPIC")
        output_of(pool, "cp", library, PREFIX)
    # The loader cannot map a file with set-id bits.
    output_of(pool, "chmod", "u+s", f"{PREFIX}/lib3.so")
    output_of(pool, "ln", f"{PREFIX}/lib1.so", f"{PREFIX}/other.so")
    paths = [f"{PREFIX}/{name}.so" for name in ("lib1", "lib2", "lib3", "lib1", "lib2", "lib3", "other")]
    told = output_of(pool, sys.executable, "-c", LIBRARIES, *paths).splitlines()
    first = [f"{number} {number - 1} {PREFIX}/lib{number}.so" for number in (1, 2, 3)]
    assert told == [*first, *first, first[0]]


def program(pool: Pool, name: str, text: str) -> str:
    """Makes an executable file in the pool."""
    output_of(pool, "bash", "-c", f'printf %s "$0" > {PREFIX}/{name}; chmod +x {PREFIX}/{name}', text)
    return f"{PREFIX}/{name}"


def test_a_script_that_names_no_interpreter_is_run_by_the_shell(pool: Pool, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.write_text('echo "host $1"\n')
    here.chmod(0o755)
    there = program(pool, "plain", 'echo "pool $1"\n')
    c = compiled(tmp_path, "byname", '#include <unistd.h>\nint main(int n, char **w) { return execvp(w[n - 1], (char *[]){"x", "given", 0}); }\n')
    assert output_of(pool, c, str(here)) == "host given\n"
    assert output_of(pool, c, there) == "pool given\n"
    assert output_of(pool, c, "plain", PATH=f"{PREFIX}:/usr/bin:/bin") == "pool given\n"


def test_a_search_goes_on_where_a_folder_is_of_a_pool_that_is_not_there(pool: Pool) -> None:
    told = pool.run("env", "TIDEMILL_POOL=/nowhere", "env", "echo", "found", env={"PATH": f"{PREFIX}/bin:/usr/bin:/bin"})
    assert told.stdout == "found\n", told.stderr


def test_a_program_is_run_from_its_descriptor(pool: Pool) -> None:
    output_of(pool, "cp", "/bin/echo", PREFIX)
    run = "import os, sys; os.execve(os.open(sys.argv[1], os.O_RDONLY), ['x', 'said'], os.environ)"
    assert output_of(pool, sys.executable, "-c", run, f"{PREFIX}/echo") == "said\n"
    script = program(pool, "script", '#!/bin/sh\necho "$@"\n')
    run = run.replace("os.open(sys.argv[1], os.O_RDONLY)", "(file := os.open(sys.argv[1], os.O_RDONLY), os.set_inheritable(file, True))[0]")
    assert output_of(pool, sys.executable, "-c", run, script) == "said\n"


def test_scripts_are_told_their_names_as_they_were_said(pool: Pool, tmp_path: Path) -> None:
    script = program(pool, "named", '#!/bin/sh\necho "$0"\n')
    output_of(pool, "ln", "-s", script, f"{PREFIX}/link")
    assert output_of(pool, "bash", "-c", f"{PREFIX}/link; cd {PREFIX}; ./link; PATH=. link") == f"{PREFIX}/link\n./link\n./link\n"
    program(pool, "self", "#!./self\n")
    loop = "import os\nos.chdir('" + PREFIX + "')\ntry: os.execv('./self', ['self'])\nexcept OSError as error: print(error.strerror)"
    assert output_of(pool, sys.executable, "-c", loop) == "Too many levels of symbolic links\n"
    output_of(pool, "cp", "/bin/echo", PREFIX)
    outside = tmp_path / "outside"
    outside.write_text(f"#!{PREFIX}/echo by\n")
    outside.chmod(0o755)
    for way in (f"os.execv('{outside}', ['x', '1'])", f"os.waitpid(os.posix_spawn('{outside}', ['x', '1'], os.environ), 0)"):
        assert output_of(pool, sys.executable, "-c", f"import os; {way}") == f"by {outside} 1\n", "the system does not find what interprets it"
    assert output_of(pool, "env", "outside", "1", PATH=f"{tmp_path}:/usr/bin:/bin") == f"by {tmp_path}/outside 1\n"


SPAWN = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
extern char **environ;
int main(int count, char **words)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    pid_t child;
    int failed = 0;
    for (int at = 3; at < 40 && words[1][0] == 'd'; at++)
        failed |= posix_spawn_file_actions_adddup2(&actions, 0, at);
    if (words[1][0] == 'p')
        failed = posix_spawn_file_actions_addchdir_np(&actions, words[2]);
    if (words[1][0] == 'f')
        failed = posix_spawn_file_actions_addfchdir_np(&actions, open(words[2], O_RDONLY | O_DIRECTORY));
    if (words[1][1])
        failed |= posix_spawn_file_actions_addopen(&actions, 1, "said", O_WRONLY | O_CREAT, 0600);
    if (!failed)
        failed = posix_spawn(&child, words[3], &actions, 0, words + 3, environ);
    if (failed)
        return printf("%s\\n", strerror(failed)), 1;
    return waitpid(child, 0, 0) != child;
}
"""


def test_a_spawned_program_begins_where_and_with_what_is_said(pool: Pool, tmp_path: Path) -> None:
    spawn = compiled(tmp_path, "spawn", SPAWN)
    output_of(pool, "mkdir", "-p", f"{PREFIX}/in/folder")
    output_of(pool, "cp", "/bin/pwd", "/bin/echo", f"{PREFIX}/in/folder")
    assert output_of(pool, spawn, "d", "-", f"{PREFIX}/in/folder/echo", "said") == "said\n", "its memory has no number that is replaced"
    for way in "pf":
        assert output_of(pool, spawn, way, f"{PREFIX}/in/folder", "/bin/pwd") == f"{PREFIX}/in/folder\n"
        assert output_of(pool, spawn, way, f"{PREFIX}/in/folder", "./pwd") == f"{PREFIX}/in/folder\n"
        assert output_of(pool, spawn, way + "o", f"{PREFIX}/in/folder", "./echo", way) == ""
        assert output_of(pool, "cat", f"{PREFIX}/in/folder/said") == f"{way}\n"
        assert output_of(pool, "bash", "-c", f'cd {PREFIX}/in; "$@"', "-", spawn, way, str(tmp_path), "/bin/pwd") == f"{tmp_path}\n"
    assert "No such file" in pool.run(spawn, "p", f"{PREFIX}/none", "/bin/pwd").stdout


def test_programs_of_the_pool_are_called_as_their_files(pool: Pool) -> None:
    output_of(pool, "cp", "/bin/cat", f"{PREFIX}/showing")
    assert output_of(pool, f"{PREFIX}/showing", "/proc/self/comm") == "showing\n"
    assert output_of(pool, sys.executable, "-c", f"import os; os.waitpid(os.posix_spawn('{PREFIX}/showing', ['x', '/proc/self/comm'], {{}}), 0)") == "showing\n"


def test_a_program_with_variables_of_its_own_making_sees_the_pool(pool: Pool) -> None:
    output_of(pool, "mkdir", "-p", f"{PREFIX}/bare")
    assert output_of(pool, "env", "-i", "/bin/ls", "-d", f"{PREFIX}/bare") == f"{PREFIX}/bare\n"
    run = f"import subprocess; subprocess.run(['/bin/ls', '-d', '{PREFIX}/bare'], env={{}}, check=True)"
    assert output_of(pool, sys.executable, "-c", run) == f"{PREFIX}/bare\n"
    assert output_of(pool, "bash", "-c", f"cd {PREFIX}/bare; env -i /bin/pwd") == f"{PREFIX}/bare\n"


def test_a_program_begins_in_a_folder_that_was_renamed_meanwhile(pool: Pool) -> None:
    moved = f"mkdir -p {PREFIX}/old/deep; cd {PREFIX}/old/deep; echo kept > f; mv {PREFIX}/old {PREFIX}/new"
    script = f"{moved}; cat f; mkdir -p {PREFIX}/old/deep; /bin/cat f; ls ..; env cat f"
    assert output_of(pool, "bash", "-ec", script) == "kept\nkept\ndeep\nkept\n"
    gone = pool.run("bash", "-c", f"mkdir {PREFIX}/gone; cd {PREFIX}/gone; rmdir {PREFIX}/gone; ls x; cat ../gone/x")
    assert gone.stderr.count("No such file or directory") == 2, gone.stderr
