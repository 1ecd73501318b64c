"""Every call that takes a name, with every kind of name: a table in which each cell is a case."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from calls import AT_FDCWD, EDGES, RENAME_EXCHANGE, RENAME_NOREPLACE, link_at, outcome, rename2, set_times, snapshot

LONGEST = "n" * 255
# A path of 4,095 bytes, the maximum; each part is within its own limit.
DEEP = "/".join(["d"] + ["." * 1] * 2047)

NAMES = {
    "file": "f", "folder": "d", "full folder": "full", "link": "l", "link to folder": "ld", "dangling link": "dangling", "loop": "loop", "fifo": "p",
    "missing": "nope", "below missing": "nope/x", "below file": "f/x", "below link to file": "l/x", "below loop": "loop/x", "below dangling": "dangling/x",
    "file/": "f/", "folder/": "d/", "link/": "l/", "link to folder/": "ld/", "dangling link/": "dangling/", "missing/": "nope/", "folder//": "d//",
    ".": ".", "..": "..", "folder/.": "d/.", "folder/..": "d/..", "full folder/..": "full/..", "empty": "", "in folder": "d/x", "in link to folder": "ld/x",
    "255 bytes": LONGEST, "256 bytes": LONGEST + "n", "255 bytes in folder": "d/" + LONGEST, "no text": os.fsdecode(b"\xff\xfe\x01"), "new line": "a\nb",
    "blank": " ", "4,095 bytes": DEEP, "4,096 bytes": DEEP + "d", "below 256 bytes": LONGEST + "n/x", "hard link": "h", "..x": "..x", "three dots": "...",
}  # fmt: skip


def opening(flags: int) -> Callable[[str], object]:
    """Opens and closes a file, also with O_PATH."""
    return lambda name: os.close(os.open(name, flags | os.O_NONBLOCK, 0o640))


def listing(name: str) -> object:
    """The names in a directory."""
    return sorted(os.fsencode(entry).hex()[:20] for entry in os.listdir(name))


CALLS: dict[str, Callable[[str], object]] = {
    "open to read": opening(os.O_RDONLY),
    "open to write": opening(os.O_WRONLY),
    "open to append": opening(os.O_WRONLY | os.O_APPEND),
    "create": opening(os.O_RDWR | os.O_CREAT),
    "create exclusively": opening(os.O_RDWR | os.O_CREAT | os.O_EXCL),
    "create to read": opening(os.O_RDONLY | os.O_CREAT),
    "create without following": opening(os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW),
    "create a folder by open": opening(os.O_RDONLY | os.O_CREAT | os.O_DIRECTORY),
    "truncate by open": opening(os.O_WRONLY | os.O_TRUNC),
    "truncate by open to read": opening(os.O_RDONLY | os.O_TRUNC),
    "open a folder": opening(os.O_RDONLY | os.O_DIRECTORY),
    "open without following": opening(os.O_RDONLY | os.O_NOFOLLOW),
    "open the path": opening(os.O_PATH),
    "open the path without following": opening(os.O_PATH | os.O_NOFOLLOW),
    "open the path of a folder": opening(os.O_PATH | os.O_DIRECTORY),
    "open without a name": opening(os.O_TMPFILE | os.O_RDWR),
    "open directly": opening(os.O_RDWR | os.O_DIRECT),
    "mkdir": lambda name: os.mkdir(name, 0o750),
    "rmdir": os.rmdir,
    "unlink": os.unlink,
    "rename it": lambda name: os.rename(name, "target"),
    "rename it over a file": lambda name: os.rename(name, "f"),
    "rename it over an empty folder": lambda name: os.rename(name, "d"),
    "rename it over a full folder": lambda name: os.rename(name, "full"),
    "rename it into a folder": lambda name: os.rename(name, "d/target"),
    "rename a file to it": lambda name: os.rename("f", name),
    "rename a folder to it": lambda name: os.rename("full", name),
    "rename a link to it": lambda name: os.rename("l", name),
    "rename a file to it, without replacing": lambda name: rename2("f", name, RENAME_NOREPLACE),
    "exchange it with a file": lambda name: rename2("f", name, RENAME_EXCHANGE),
    "exchange a folder with it": lambda name: rename2(name, "full", RENAME_EXCHANGE),
    "link it": lambda name: os.link(name, "target"),
    "link it, following": lambda name: link_at(AT_FDCWD, os.fsencode(name), "target", 0x400),
    "link a file to it": lambda name: os.link("f", name),
    "symlink at it": lambda name: os.symlink("somewhere", name),
    "symlink to it": lambda name: os.symlink(name, "target"),
    "readlink": os.readlink,
    "stat": lambda name: [os.stat(name).st_nlink, oct(os.stat(name).st_mode)],
    "lstat": lambda name: [os.lstat(name).st_nlink, oct(os.lstat(name).st_mode)],
    "chmod": lambda name: os.chmod(name, 0o700),
    "chown": lambda name: os.chown(name, 12, 13),
    "lchown": lambda name: os.lchown(name, 12, 13),
    "truncate": lambda name: os.truncate(name, 3),
    "utimens": lambda name: set_times(name, (1, 2), (3, 4)),
    "access": lambda name: [os.access(name, mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)],
    "statvfs": lambda name: os.statvfs(name).f_namemax,
    "get an attribute": lambda name: os.getxattr(name, "user.none").hex(),
    "set an attribute": lambda name: os.setxattr(name, "user.one", b"1"),
    "list attributes": os.listxattr,
    "mkfifo": lambda name: os.mkfifo(name, 0o640),
    "mknod of a device": lambda name: os.mknod(name, 0o20640, os.makedev(1, 3)),
    "mknod of a file": lambda name: os.mknod(name, 0o100640),
    "list": listing,
}


def make_tree(folder: Path) -> None:
    """Makes one file of each kind."""
    (folder / "d").mkdir()
    (folder / "full").mkdir()
    (folder / "full/x").write_bytes(b"x")
    (folder / "f").write_bytes(b"hello")
    os.link(folder / "f", folder / "h")
    for name, target in (("l", "f"), ("ld", "d"), ("dangling", "nope"), ("loop", "loop")):
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "p", 0o644)


class Table:
    """The tree that the cells work on; it is rebuilt only if a cell has changed it."""

    def __init__(self) -> None:
        self.tree: Path | None = None
        self.before: list[object] = []

    def cell(self, call: str, kind: str, place: Path) -> object:
        """The outcome of a call, with a snapshot of the tree if the call changed it."""
        if self.tree is None:
            self.tree = place.parent / "table/tree"
            self.tree.mkdir(parents=True)
            make_tree(self.tree)
            self.before = snapshot(self.tree.parent)
        os.chdir(self.tree)
        came = outcome(CALLS[call], NAMES[kind])
        after = snapshot(self.tree.parent)
        changed = [entry for entry in after if entry not in self.before]
        missing = len(self.before) - len(after)
        if changed or missing:
            os.chdir(place)
            shutil.rmtree(self.tree.parent)
            self.tree = None
        return [came, changed, missing]


TABLE = Table()
for call_name in CALLS:
    for kind_name in NAMES:
        EDGES[f"names.{call_name}: {kind_name}"] = lambda place, call=call_name, kind=kind_name: TABLE.cell(call, kind, place)
