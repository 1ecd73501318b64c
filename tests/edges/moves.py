"""Rename, link and unlink: cases that are not in the table of names."""

from __future__ import annotations

import os
from pathlib import Path

from calls import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, edge, look, opened, outcome, rename2, snapshot


@edge
def every_kind_over_every_kind(place: Path) -> object:
    makers = {
        "file": lambda path: path.write_bytes(b"f"),
        "folder": Path.mkdir,
        "full": lambda path: (path.mkdir(), (path / "x").touch()),
        "link": lambda path: path.symlink_to("x"),
        "fifo": os.mkfifo,
        "nothing": lambda path: None,
    }
    seen = []
    for flags in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
        for old, make_old in makers.items():
            for new, make_new in makers.items():
                folder = place / f"{flags}-{old}-{new}"
                folder.mkdir()
                make_old(folder / "old")
                make_new(folder / "new")
                seen.append([flags, old, new, outcome(rename2, str(folder / "old"), str(folder / "new"), flags), snapshot(folder)])
    return seen


@edge
def flags_that_do_not_go_together(_: Path) -> object:
    Path("f").touch()
    Path("g").touch()
    return [outcome(rename2, "f", "g", flags) for flags in (RENAME_NOREPLACE | RENAME_EXCHANGE, 1 << 10, RENAME_EXCHANGE | RENAME_WHITEOUT)]


@edge
def a_rename_onto_itself_and_onto_its_link(_: Path) -> object:
    Path("f").write_bytes(b"x")
    os.link("f", "g")
    before = os.stat("f").st_ctime_ns
    said = [
        outcome(os.rename, "f", "f"),
        outcome(os.rename, "f", "g"),
        outcome(rename2, "f", "g", RENAME_EXCHANGE),
        outcome(rename2, "f", "f", RENAME_NOREPLACE),
    ]
    return [said, sorted(os.listdir()), os.stat("f").st_nlink, os.stat("f").st_ctime_ns >= before]


@edge
def a_folder_does_not_move_into_itself(_: Path) -> object:
    os.makedirs("d/e/f")
    tries = [("d", "d/x"), ("d", "d/e/x"), ("d", "d/e/f"), ("d/e", "d"), ("d/e/f", "d/e"), (".", "x"), ("d/.", "x"), ("d/..", "x")]
    exchanges = [("d", "d/e"), ("d/e/f", "d"), ("d/e", "d/e/f"), ("d", "d")]
    return [[outcome(os.rename, *pair) for pair in tries], [outcome(rename2, *pair, RENAME_EXCHANGE) for pair in exchanges], snapshot(Path())]


@edge
def a_moved_folder_has_another_parent(_: Path) -> object:
    os.makedirs("a/b/c")
    os.mkdir("z")
    before = os.stat("a").st_ino, os.stat("z").st_ino
    os.rename("a/b", "z/b")
    return [
        before[1] == os.stat("z/b/..").st_ino,
        os.stat("a").st_nlink,
        os.stat("z").st_nlink,
        snapshot(Path()),
        os.path.realpath("z/b/c/../..") == os.path.realpath("z"),
    ]


@edge
def exchanging_folders_changes_their_parents(_: Path) -> object:
    os.makedirs("a/one/deep")
    os.makedirs("b/two")
    Path("b/file").touch()
    rename2("a/one", "b/two", RENAME_EXCHANGE)
    rename2("b/two", "b/file", RENAME_EXCHANGE)
    return [snapshot(Path()), os.stat("b/file/..").st_ino == os.stat("b").st_ino, os.stat("a").st_nlink, os.stat("b").st_nlink]


@edge
def an_open_folder_is_moved(_: Path) -> object:
    os.makedirs("a/b")
    os.mkdir("z")
    with opened("a/b", os.O_RDONLY | os.O_DIRECTORY) as folder:
        os.rename("a/b", "z/c")
        os.close(os.open("new", os.O_CREAT | os.O_RDWR, dir_fd=folder))
        return [
            look("z/c/new"),
            os.listdir(folder),
            os.readlink(f"/proc/self/fd/{folder}").endswith("/z/c"),
            os.stat("..", dir_fd=folder).st_ino == os.stat("z").st_ino,
        ]


@edge
def names_of_255_bytes_move(_: Path) -> object:
    names = ["é" * 127 + "x", "y" * 255, "z" * 255]
    Path(names[0]).write_bytes(b"1")
    os.rename(names[0], names[1])
    os.link(names[1], names[2])
    rename2(names[1], names[2], RENAME_EXCHANGE)
    return [
        sorted(os.listdir()) == names[1:],
        outcome(os.rename, names[1], "w" * 256),
        outcome(os.link, names[1], "w" * 256),
        outcome(os.symlink, "x", "w" * 256),
        outcome(os.mkdir, "é" * 128),
    ]


@edge
def hard_links_are_one_file(_: Path) -> object:
    Path("f").write_bytes(b"one")
    os.mkdir("d")
    os.link("f", "d/g")
    os.link("d/g", "h")
    Path("h").write_bytes(b"x" * 50_000)
    os.chmod("d/g", 0o600)
    seen = [[look(name), os.path.getsize(name)] for name in ("f", "d/g", "h")]
    os.unlink("f")
    os.rename("h", "d/g")
    seen.append(sorted(os.listdir("d")))
    os.unlink("h")
    return [*seen, look("d/g"), len(Path("d/g").read_bytes()), outcome(os.link, "d", "e"), outcome(os.link, "d/g", "d/g")]


@edge
def links_of_links_fifos_and_devices(_: Path) -> object:
    os.symlink("nope", "l")
    os.mkfifo("p")
    os.mknod("n", 0o20600, os.makedev(1, 3))
    for name in ("l", "p", "n"):
        os.link(name, name + "2", follow_symlinks=False)
    return [snapshot(Path()), outcome(os.link, "l", "l3", follow_symlinks=True)]


@edge
def a_thousand_links(_: Path) -> object:
    Path("f").write_bytes(b"x")
    for number in range(1000):
        os.link("f", f"l{number}")
    count = os.stat("f").st_nlink
    for number in range(0, 1000, 2):
        os.unlink(f"l{number}")
    return [count, os.stat("l999").st_nlink, len(os.listdir())]


@edge
def a_link_while_the_file_is_open_and_unlinked(_: Path) -> object:
    with opened("f") as file:
        os.link("f", "g")
        os.unlink("f")
        os.write(file, b"still")
        return [Path("g").read_bytes().decode(), os.fstat(file).st_nlink, outcome(os.unlink, "g"), os.fstat(file).st_nlink]


@edge
def symbolic_links_of_all_lengths(_: Path) -> object:
    seen = []
    for length in (1, 59, 60, 61, 255, 4094, 4095, 4096):
        target = "t" * length
        seen.append(
            [
                outcome(os.symlink, target, f"l{length}"),
                outcome(lambda name=f"l{length}", target=target: os.readlink(name) == target),
                outcome(lambda name=f"l{length}": os.lstat(name).st_size),
            ]
        )
    return [
        *seen,
        outcome(os.symlink, "", "empty"),
        outcome(os.readlink, "empty"),
        outcome(os.symlink, b"\xff\n", b"bytes"),
        outcome(lambda: os.readlink(b"bytes").hex()),
    ]


@edge
def chains_of_links_have_a_limit(_: Path) -> object:
    Path("l0").write_bytes(b"end")
    for number in range(1, 45):
        os.symlink(f"l{number - 1}", f"l{number}")
    return [outcome(lambda name=f"l{number}": Path(name).read_bytes().decode()) for number in (1, 39, 40, 41, 44)]


@edge
def a_changed_link_leads_elsewhere(_: Path) -> object:
    Path("a").write_bytes(b"a")
    Path("b").write_bytes(b"b")
    os.symlink("a", "l")
    seen = [Path("l").read_bytes().decode()]
    os.symlink("b", "new")
    os.rename("new", "l")
    return [*seen, Path("l").read_bytes().decode(), os.readlink("l")]


@edge
def removing_folders(_: Path) -> object:
    os.makedirs("d/e")
    os.symlink("d", "l")
    return [
        outcome(call, name)
        for call, name in (
            (os.rmdir, "d"),
            (os.unlink, "d"),
            (os.rmdir, "l"),
            (os.rmdir, "d/e/."),
            (os.rmdir, "d/e/.."),
            (os.rmdir, "d/e"),
            (os.rmdir, "d/e"),
            (os.rmdir, "d"),
            (os.unlink, "l"),
        )
    ]


@edge
def a_deep_tree(_: Path) -> object:
    for _level in range(300):
        os.mkdir("deeper")
        os.chdir("deeper")
    Path("bottom").touch()
    depth = 0
    while os.path.exists("../deeper"):
        os.chdir("..")
        depth += 1
    return [depth, os.path.exists("deeper/" * 300 + "bottom"), outcome(os.stat, "deeper/" * 700)]


@edge
def a_name_made_again_is_another_file(_: Path) -> object:
    seen = []
    for turn in range(50):
        assert not os.path.exists("f")
        Path("f").write_bytes(b"%d" % turn)
        seen.append(Path("f").read_bytes() == b"%d" % turn)
        if turn % 2:
            os.unlink("f")
        else:
            os.rename("f", "g")
    return [all(seen), os.listdir()]


@edge
def a_file_becomes_a_folder_and_back(_: Path) -> object:
    seen = []
    for _turn in range(20):
        Path("x").write_bytes(b"1")
        seen.append(os.path.isfile("x"))
        os.unlink("x")
        os.mkdir("x")
        seen.append(os.path.isdir("x"))
        os.rmdir("x")
        os.symlink("y", "x")
        seen.append(os.path.islink("x"))
        os.unlink("x")
    return [all(seen), os.listdir()]


@edge
def a_large_folder(_: Path) -> object:
    """A directory with more than 4,096 entries is split into fragments."""
    os.mkdir("d")
    for number in range(6000):
        os.close(os.open(f"d/f{number}", os.O_CREAT | os.O_WRONLY))
    for number in range(0, 6000, 3):
        os.rename(f"d/f{number}", f"d/g{number}")
    for number in range(1, 6000, 3):
        os.unlink(f"d/f{number}")
    names = os.listdir("d")
    full = outcome(os.rmdir, "d")
    wanted = {f"g{number}" for number in range(0, 6000, 3)} | {f"f{number}" for number in range(2, 6000, 3)}
    os.mkdir("d/sub")
    links = os.stat("d").st_nlink
    os.rmdir("d/sub")
    for name in names:
        os.unlink(f"d/{name}")
    return [len(names), set(names) == wanted, full, links, os.listdir("d"), outcome(os.rmdir, "d"), os.listdir()]


@edge
def a_large_folder_is_moved_and_replaced(_: Path) -> object:
    os.mkdir("d")
    os.mkdir("e")
    for number in range(5000):
        os.close(os.open(f"d/f{number}", os.O_CREAT | os.O_WRONLY))
    os.rename("d", "e/moved")
    os.mkdir("empty")
    seen = [
        outcome(os.rename, "empty", "e/moved"),
        outcome(os.rename, "e/moved", "empty"),
        len(os.listdir("empty")),
        os.stat("empty/f4999").st_size,
        os.stat("empty/..").st_ino == os.stat(".").st_ino,
    ]
    for number in range(5000):
        os.unlink(f"empty/f{number}")
    os.mkdir("new")
    return [*seen, outcome(os.rename, "new", "empty"), os.listdir("empty"), sorted(os.listdir())]
