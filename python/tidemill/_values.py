"""Plain values that a pool tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

# What the native part gives: see `done.rs`.
RawStat: TypeAlias = tuple[str, int, str, tuple[int, int, int], int, tuple[int, int], int, int]
RawUsage: TypeAlias = tuple[int, int, int, int, str | None]
RawLocation: TypeAlias = tuple[bool, int | None, str | None, list[tuple[int, float]], list[tuple[int, int, int]]]

_NS = 1_000_000_000


def _moment(nanoseconds: int) -> datetime:
    """A time as far as datetime tells them apart: microseconds."""
    return datetime.fromtimestamp(nanoseconds // _NS, UTC).replace(microsecond=nanoseconds % _NS // 1000)


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a path."""

    kind: str
    """``file``, ``folder``, ``link``, ``pipe``, ``socket``, ``device`` or ``other``."""
    size: int
    """Length, bytes; of a folder the number of entries."""
    version: str
    """Names the state of its bytes: another with each put and each change."""
    modified_ns: int
    """Last change of the bytes, nanoseconds after 1970 (UTC)."""
    changed_ns: int
    """Last change of anything, nanoseconds after 1970 (UTC)."""
    created_ns: int
    """When it was made, nanoseconds after 1970 (UTC)."""
    mode: int
    """Permission bits, as of ``chmod``."""
    uid: int
    """The user whose it is."""
    gid: int
    """The group whose it is."""
    links: int
    """How many names it has."""
    allocated: int
    """What it takes of the pool's memory, bytes, about."""

    @property
    def modified(self) -> datetime:
        """Last change of the bytes, in UTC."""
        return _moment(self.modified_ns)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.kind == "folder"

    @classmethod
    def _of(cls, raw: RawStat) -> Stat:
        kind, size, version, (modified, changed, created), mode, (uid, gid), links, allocated = raw
        return cls(kind, size, version, modified, changed, created, mode, uid, gid, links, allocated)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is in a folder."""

    name: str
    """Its last name, without a slash."""
    stat: Stat
    """What is known of it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a pool, and how full it is."""

    id: int
    """From 1."""
    host: str
    """As it was named at the start."""
    capacity: int
    """What it may hold, bytes; 0 where it does not answer, or only computes."""
    used: int
    """What it holds, bytes."""
    files: int
    """Files, folders and the like that it keeps."""
    slots: int
    """How many one-processor tasks it runs at once; 0 for one that only stores."""
    silent: str | None
    """Why it does not answer; None where it does."""

    @classmethod
    def _of(cls, raw: RawUsage, host: str, slots: int) -> Node:
        node, capacity, used, files, silent = raw
        return cls(node, host, capacity, used, files, slots, silent)


@dataclass(frozen=True, slots=True)
class Location:
    """Where the bytes of a path are, or would be if it were put now."""

    exists: bool
    """Whether it is there."""
    inode: int | None
    """The node that has its name and attributes; None where folders above it are missing too."""
    policy: str | None
    """By what it would be placed (``striped``, ``whole``, ``here``, ``at(3)``, ``balanced``); None where it is there."""
    nodes: dict[int, float]
    """Of what is there: bytes by node, the most first. Else: the share of its bytes by node, or how likely each is."""
    ranges: list[tuple[int, int, int]]
    """Where which bytes are: (start, stop, node), in their order; empty where it is not there."""

    @classmethod
    def _of(cls, raw: RawLocation) -> Location:
        exists, inode, policy, nodes, ranges = raw
        return cls(exists, inode, policy, dict(nodes), ranges)
