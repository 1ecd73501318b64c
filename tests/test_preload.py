"""Programs that use a pool through the preload library: `tidemill exec` without a mount.

The scripts of `programs/` have the same output as on a tmpfs. What is not available fails with one
line and a suitable errno.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_pool import Home
from test_real_programs import SECONDS_MAX
from waiting import wait_for

PREFIX = "/tidemill"
# The loader opens the libraries that a program needs at its start before any preloaded library is
# there.
MOUNTS_ONLY = {"loader"}
# Starts `say` by one of the exec functions with variable arguments, more than there are registers.
# An `x` after the first letter of the word selects a program that does not exist.
LISTED = """
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#define WORDS "say", "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0
int main(int count, char **words)
{
    char *given[] = {"GIVEN=given", 0};
    const char *name = words[count - 1][1] ? "/tidemill/none" : "/tidemill/say";
    int returned = 0;
    switch (words[1][0]) {
    case 'l': returned = execl(name, WORDS); break;
    case 'p': returned = execlp(words[1][1] ? "none-such" : "say", WORDS); break;
    case 'e': returned = execle(name, WORDS, given); break;
    }
    printf("%d %d\\n", returned, errno);
    return 0;
}
"""
# A program that remembers a directory while other processes move it, remove it, and put a link in
# its place.
MOVED = """
import os, subprocess, sys
def others(*words):
    subprocess.run(words, check=True)
def made(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
def told(what, path):
    try:
        what(path)
        return "done"
    except OSError as error:
        return error.strerror
os.chdir(sys.argv[1])
os.mkdir("a")
for name in ("one", "two"):
    made("a/" + name)
print(told(made, "a/two"), os.stat("a/two").st_size, told(os.stat, "a/none"))
others("mv", "a", "b")
print(told(os.stat, "a/one"), told(made, "a/one"))
others("mkdir", "a")
made("a/three")
print(sorted(os.listdir("a")), sorted(os.listdir("b")), told(os.stat, "a/one"))
others("rm", "-r", "a")
others("ln", "-s", "b", "a")
made("a/four")
print(sorted(os.listdir("b")), os.stat("a/one").st_size)
others("rm", "a")
others("touch", "a")
print(told(made, "a/five"), told(os.stat, "a/one"))
"""

# A signal handler that stats a file of the pool again and again, while its program makes calls for
# which the library allocates memory.
HANDLED = """
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
static volatile sig_atomic_t came;
static void handler(int signal)
{
    struct stat found;
    char name[32];
    snprintf(name, sizeof name, "/tidemill/none%d", ++came);
    stat(name, &found);
    (void)signal;
}
int main(void)
{
    char *words[] = {"none", 0}, *variables[] = {"A=b", 0};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    while (came < 2000)
        execve("/none-such", words, variables);
    puts("went on");
    return 0;
}
"""
# Opens all descriptors that the process may have, then opens a file of the pool.
EXHAUSTED = """
import errno, os
held = os.open("/tidemill/f", os.O_CREAT | os.O_RDWR)
taken = []
while True:
    try:
        taken.append(os.dup(held))
    except OSError:
        break
for path in "/tidemill/f", "/tidemill/new":
    try:
        os.open(path, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        print(errno.errorcode[error.errno])
os.close(taken.pop())
print(os.stat(os.open("/tidemill/f", os.O_RDONLY)).st_size)
"""


@pytest.fixture
def pool(binary: Path, tmp_path: Path) -> Iterator[Home]:
    """A pool of one node."""
    home = Home(binary, tmp_path)
    home.ok("pool", "start", "--memory", "512MiB")
    yield home
    home.ok("pool", "stop")
    wait_for(lambda: not home.node_processes(), "a node was left")
    shutil.rmtree(home.runtime)


def run(home: Home, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program by `exec` to its end."""
    environment = home.environment | more
    command = [str(home.binary), "exec", "--", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def compiled(text: str, folder: Path) -> str:
    """Compiles a C program and returns its path."""
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    subprocess.run(["cc", "-Wall", "-Werror", "-o", str(program), str(source)], check=True)
    return str(program)


def shell(home: Home, script: str, **more: str) -> str:
    """The output of a script that must succeed."""
    done = run(home, "bash", "-euc", script, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_offsets_are_shared_over_fork_and_exec(pool: Home) -> None:
    said = shell(
        pool,
        f"cd {PREFIX}; printf 'one\\ntwo\\nthree\\n' > lines; exec < lines; read first; (read second; echo $second); head -c 6; echo $first"
        "; (echo a; echo b; sh -c 'echo c') > out; cat out",
    )
    assert said.split() == ["two", "three", "one", "a", "b", "c"]


def test_a_child_keeps_what_its_killed_parent_opened(pool: Home) -> None:
    said = shell(
        pool,
        f"cd {PREFIX}; echo kept > f; (exec 5< f; own=$BASHPID; (while kill -0 $own 2> {os.devnull}; do :; done; cat <&5 > g) & kill -9 $own) || true"
        "; rm f; until [ -s g ]; do :; done; cat g",
    )
    assert said == "kept\n"


def test_a_program_that_replaces_or_closes_all_descriptors_keeps_the_pool(pool: Home) -> None:
    replaced = "; ".join(f"exec {number}< {PREFIX}/f" for number in range(3, 30))
    assert shell(pool, f"echo one > {PREFIX}/f; {replaced}; cat {PREFIX}/f; (cat <&7; cat <&8)") == "one\n" * 3
    said = run(pool, sys.executable, "-c", f"import os; os.stat(at := '{PREFIX}/f'); os.closerange(3, 5000); print(open(at).read())")
    assert said.stdout == "one\n\n", said.stderr


def test_a_program_that_may_have_few_descriptors_keeps_the_pool_when_it_closes_all_and_opens_others(pool: Home) -> None:
    closing = f"import os; os.stat('{PREFIX}'); os.closerange(3, 5000); held = [open('/dev/null', 'w') for _ in range(50)]"
    closing += f"; open('{PREFIX}/f', 'w').write('one'); print(open('{PREFIX}/f').read())"
    said = run(pool, "bash", "-c", 'ulimit -n 100; exec "$@"', "bash", sys.executable, "-c", closing)
    assert (said.stdout, said.stderr) == ("one\n", "")


def test_a_program_of_the_pool_is_started_by_who_closes_all_descriptors_for_it(pool: Home) -> None:
    shell(pool, f"cp /bin/echo {PREFIX}/echo")
    said = run(pool, sys.executable, "-c", f"import subprocess; subprocess.run(['{PREFIX}/echo', 'said'], check=True, close_fds=True)")
    assert said.stdout == "said\n", said.stderr


def test_words_as_arguments_start_programs_of_the_pool(pool: Home, tmp_path: Path) -> None:
    program = compiled(LISTED, tmp_path)
    shell(pool, f'printf \'#!/bin/sh\\necho "$GIVEN" "$@"\\n\' > {PREFIX}/say; chmod +x {PREFIX}/say')
    words = " ".join(map(str, range(1, 10)))
    for way, given in (("l", "inherited"), ("p", "inherited"), ("e", "given")):
        done = run(pool, program, way, GIVEN="inherited", PATH=f"{PREFIX}:{os.environ['PATH']}")
        assert done.stdout == f"{given} {words}\n", done.stderr
        done = run(pool, program, way + "x")
        assert done.stdout == "-1 2\n", "it comes back with ENOENT"


def test_a_folder_that_others_move_is_not_mistaken_for_what_has_its_name_now(pool: Home, tmp_path: Path) -> None:
    done = run(pool, sys.executable, "-c", MOVED, PREFIX)
    assert done.returncode == 0, done.stderr
    assert done.stdout == subprocess.run([sys.executable, "-c", MOVED, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert done.stdout.splitlines()[0] == "File exists 0 No such file or directory"


def test_flags_that_a_call_does_not_know_are_refused_and_nothing_is_done(pool: Home) -> None:
    code = f"""
import ctypes, errno, os
c = ctypes.CDLL(None, use_errno=True)
calls = [
    lambda: c.unlinkat(-100, b"{PREFIX}/f", 0x10),
    lambda: c.fchmodat(-100, b"{PREFIX}/f", 0, 0x8000),
    lambda: c.linkat(-100, b"{PREFIX}/f", -100, b"{PREFIX}/g", 1),
]
for call in calls:
    print(call(), errno.errorcode[ctypes.get_errno()])
print(os.listdir("{PREFIX}"))
"""
    shell(pool, f"touch {PREFIX}/f")
    assert run(pool, sys.executable, "-c", code).stdout == "-1 EINVAL\n" * 3 + "['f']\n"


def test_a_ring_is_refused_and_that_is_said_once(pool: Home) -> None:
    code = """
import ctypes, errno
c = ctypes.CDLL(None, use_errno=True)
for _ in range(2):
    print(c.syscall(425, 8, ctypes.create_string_buffer(120)), errno.errorcode[ctypes.get_errno()])
print(c.io_uring_queue_init(8, ctypes.create_string_buffer(400), 0) == -errno.ENOSYS)
"""
    done = run(pool, sys.executable, "-c", code)
    assert done.stdout == "-1 ENOSYS\n" * 2 + "True\n"
    assert done.stderr == f"tidemill: {PREFIX}: io_uring is refused (ENOSYS): what a program opens by it would not be seen here\n"


def test_a_folder_of_the_host_is_listed_where_a_link_leads(pool: Home, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/f").touch()
    said = shell(pool, f"ln -s {tmp_path}/there {PREFIX}/l; ls {PREFIX}/l/; cd {PREFIX}; echo l/*; {sys.executable} -c 'import os; print(os.listdir(\"l\"))'")
    assert said == "f\nl/f\n['f']\n"


def test_names_are_moved_and_linked_where_links_of_the_pool_lead_to_the_host(pool: Home, tmp_path: Path) -> None:
    """They are the same on a mount, where the kernel follows the link."""
    (tmp_path / "there").mkdir()
    script = """
    ln -s "$1" /tidemill/out
    cd "$1"
    echo one > /tidemill/out/a
    mv /tidemill/out/a /tidemill/out/b
    ln /tidemill/out/b /tidemill/out/c
    mv b /tidemill/out/d
    ln d /tidemill/out/e
    mv -n /tidemill/out/e f
    ls
    echo two > /tidemill/g
    mv /tidemill/g /tidemill/out/g
    mv f /tidemill/f
    cat g /tidemill/f
    if ln g /tidemill/h 2> /dev/null; then exit 3; fi
    """
    done = run(pool, "bash", "-euc", script, "sh", str(tmp_path / "there"))
    assert (done.stdout.split(), done.stderr) == (["c", "d", "f", "two", "one"], "")


def test_a_relative_path_leads_into_the_pool_by_the_folders_above_it(pool: Home, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    prefix = {"TIDEMILL_PREFIX": f"{tmp_path}/home"}
    assert shell(pool, f"echo text > {tmp_path}/home/f; cd {tmp_path}/a/b; cat ../../home/f ../../x/../home/f", **prefix) == "text\ntext\n"
    done = run(pool, "bash", "-euc", f"cd {tmp_path}/a/b; cat ../home/f", **prefix)
    assert (done.returncode, done.stdout) == (1, ""), "that is another folder of this name"


def test_a_pool_whose_own_file_is_below_the_prefix_is_found(pool: Home) -> None:
    variables = {"LD_PRELOAD": str(pool.binary.parent / "libtidemill_preload.so"), "TIDEMILL_PREFIX": "/tmp"}
    variables["TIDEMILL_POOL"] = str(pool.runtime / "tidemill/pool")
    done = subprocess.run(["ls", "-d", "/tmp"], env=pool.environment | variables, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stdout) == (0, "/tmp\n"), done.stderr


def test_patterns_find_what_is_in_the_pool(pool: Home, tmp_path: Path) -> None:
    source, program = tmp_path / "patterns.c", tmp_path / "patterns"
    source.write_text(
        f'#include <glob.h>\n#include <stdio.h>\nint main(void) {{ glob_t g; return glob("{PREFIX}/*.x", 0, 0, &g) ? 9 : puts(g.gl_pathv[0]) < 0; }}\n'
    )
    subprocess.run(["cc", "-o", str(program), str(source)], check=True)
    shell(pool, f"touch {PREFIX}/a.x {PREFIX}/b.y")
    assert run(pool, str(program)).stdout == f"{PREFIX}/a.x\n"


def test_a_child_goes_on_while_other_threads_of_its_parent_take_memory(pool: Home) -> None:
    code = f"""
import os, threading
os.mkdir("{PREFIX}/d")
for number in range(50):
    open(f"{PREFIX}/d/{{number}}", "w").close()
done = False
def lists():
    while not done:
        os.listdir("{PREFIX}/d")
threads = [threading.Thread(target=lists) for _ in range(3)]
[thread.start() for thread in threads]
for _ in range(300):
    child = os.fork()
    if child == 0:
        os._exit(len(os.listdir("{PREFIX}/d")))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 50
done = True
"""
    done = run(pool, sys.executable, "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr


def test_a_handler_may_ask_for_files_while_its_program_asks_for_memory(pool: Home, tmp_path: Path) -> None:
    assert run(pool, compiled(HANDLED, tmp_path)).stdout == "went on\n"


def test_a_program_without_descriptors_to_spare_is_told_so(pool: Home) -> None:
    done = run(pool, sys.executable, "-c", EXHAUSTED)
    assert (done.stdout.split(), done.stderr) == (["EMFILE", "EMFILE", "0"], "")


def test_a_key_is_of_the_file(pool: Home) -> None:
    code = f"import ctypes; key = ctypes.CDLL(None).ftok; print([key(b'{PREFIX}/' + name, 7) for name in (b'a', b'a', b'b', b'none')])"
    shell(pool, f"touch {PREFIX}/a {PREFIX}/b")
    done = run(pool, sys.executable, "-c", code)
    one, again, other, none = json.loads(done.stdout)
    assert one == again != other
    assert one >> 24 == 7
    assert none == -1


def test_a_pool_that_is_not_there_is_refused_in_one_line(binary: Path, tmp_path: Path) -> None:
    home = Home(binary, tmp_path)
    said = home.fails("exec", "--", "true")
    assert "pool" in said
    assert "hint:" in said
    shutil.rmtree(home.runtime)


@pytest.mark.parametrize("prefix", ["relative", "/", "/a/../b"])
def test_a_prefix_that_stands_for_nothing_is_refused(pool: Home, prefix: str) -> None:
    assert "cannot be the prefix of a pool" in pool.fails("exec", "--prefix", prefix, "--", "true")


def test_a_prefix_may_have_dots_and_slashes_more_than_it_needs(pool: Home) -> None:
    done = subprocess.run(
        [str(pool.binary), "exec", "--prefix", "/a//b/./c/", "--", "ls", "-d", "/a/b/c"], env=pool.environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "/a/b/c\n", done.stderr


def test_a_prefix_that_hides_the_pools_own_file_is_refused(pool: Home) -> None:
    assert "whose file is" in pool.fails("exec", "--prefix", str(pool.runtime), "--", "true")


def test_a_flag_that_nobody_knows_is_refused_before_the_program_and_is_its_own_behind(pool: Home) -> None:
    done = subprocess.run([str(pool.binary), "exec", "--strcit", "ls"], env=pool.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--strcit" in done.stderr
    assert "--strict" in done.stderr, "what was meant"
    assert pool.ok("exec", "echo", "-x", "--strict", "--") == "-x --strict --\n"


def test_variables_that_are_set_to_nothing_count_as_not_set(pool: Home) -> None:
    assert shell(pool, f"ls -d {PREFIX}", TIDEMILL_POOL="", TIDEMILL_PREFIX="", TIDEMILL_PRELOAD="") == f"{PREFIX}\n"


def test_a_library_that_is_none_is_refused(pool: Home) -> None:
    done = run(pool, "true", TIDEMILL_PRELOAD="/etc/passwd")
    assert done.returncode == 2
    assert "which is not a library" in done.stderr


def test_what_the_library_does_not_reach_is_said(pool: Home, tmp_path: Path) -> None:
    source, static = tmp_path / "static.c", tmp_path / "static"
    source.write_text("int main(void) { return 7; }\n")
    subprocess.run(["cc", "-static", "-o", str(static), str(source)], check=True)
    done = run(pool, str(static))
    assert done.returncode == 7
    assert done.stderr == f"warning: {PREFIX} is not seen: `{static}` is statically linked\n"
    assert "statically linked" in pool.fails("exec", "--strict", "--", str(static))


def test_a_program_that_is_not_there_ends_as_shells_end(pool: Home) -> None:
    assert run(pool, "no-such-program").returncode == 127
    assert run(pool, os.devnull).returncode in (126, 127)
    assert run(pool, "sh", "-c", "exit 3").returncode == 3


def test_what_cannot_be_started_is_named(pool: Home, tmp_path: Path) -> None:
    done = run(pool, str(tmp_path))
    assert done.returncode == 126
    assert done.stderr == f"error: `{tmp_path}` is a directory\n"
    script = tmp_path / "script"
    script.write_text("#!/nope/bin -x\n")
    script.chmod(0o755)
    done = run(pool, str(script))
    assert done.returncode == 127
    assert done.stderr == f"error: `{script}` needs the interpreter /nope/bin, which does not exist\n"
    shell(pool, f"cp /bin/echo {PREFIX}/echo")
    script.write_text(f"#!{PREFIX}/echo by\n")
    assert run(pool, str(script), "1").stdout == f"by {script} 1\n"


def test_a_pool_that_ends_meanwhile_is_an_error_and_no_hang(pool: Home) -> None:
    done = run(pool, "bash", "-c", f"echo > {PREFIX}/a; {pool.binary} pool stop; cat {PREFIX}/a; echo $?", **pool.environment)
    assert done.stdout.strip().endswith("1")
    assert len([line for line in done.stderr.splitlines() if line.startswith("tidemill: ")]) == 1, done.stderr
    assert "No such device" in done.stderr
    pool.ok("pool", "start")
