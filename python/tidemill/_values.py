"""Plain values that the methods of a pool return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

# Tuples that the native module returns: see `results.rs`.
RawStat: TypeAlias = tuple[str, int, str, tuple[int, int, int], int, tuple[int, int], int, int]
RawUsage: TypeAlias = tuple[int, int, int, int, str | None]
RawLocation: TypeAlias = tuple[bool, int | None, str | None, list[tuple[int, float]], list[tuple[int, int, int]]]

_NS = 1_000_000_000


def _datetime_of(nanoseconds: int) -> datetime:
    """Converts a time; datetime has a precision of microseconds."""
    return datetime.fromtimestamp(nanoseconds // _NS, UTC).replace(microsecond=nanoseconds % _NS // 1000)


@dataclass(frozen=True, slots=True)
class Stat:
    """The attributes of a path."""

    kind: str
    """``file``, ``folder``, ``link``, ``pipe``, ``socket``, ``device`` or ``other``."""
    size: int
    """Length in bytes; for a directory the number of entries."""
    version: str
    """Version of the bytes; each put and each change gives another."""
    modified_ns: int
    """Last change of the bytes, in nanoseconds since 1970 (UTC)."""
    changed_ns: int
    """Last change of the bytes or the attributes, in nanoseconds since 1970 (UTC)."""
    created_ns: int
    """Creation time, in nanoseconds since 1970 (UTC)."""
    mode: int
    """Permission bits, as for ``chmod``."""
    uid: int
    """The user id of the owner."""
    gid: int
    """The group id."""
    links: int
    """The number of hard links."""
    allocated: int
    """Approximate memory in the pool that it takes, in bytes."""

    @property
    def modified(self) -> datetime:
        """Last change of the bytes, in UTC."""
        return _datetime_of(self.modified_ns)

    @property
    def is_folder(self) -> bool:
        """True for a directory."""
        return self.kind == "folder"

    @classmethod
    def _from_raw(cls, raw: RawStat) -> Stat:
        kind, size, version, (modified, changed, created), mode, (uid, gid), links, allocated = raw
        return cls(kind, size, version, modified, changed, created, mode, uid, gid, links, allocated)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a directory."""

    name: str
    """The last part of its path, without a slash."""
    stat: Stat
    """Its attributes."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a pool, and how full it is."""

    id: int
    """The node's number, from 1."""
    host: str
    """The host as it was named when the pool was started."""
    capacity: int
    """Capacity in bytes; 0 if the node does not answer or only computes."""
    used: int
    """Bytes in use."""
    files: int
    """Number of files, directories and other inodes of the node."""
    slots: int
    """Number of one-processor tasks that it runs at once; 0 for a node that only stores."""
    silent: str | None
    """Why the node does not answer; None if it answers."""

    @classmethod
    def _from_raw(cls, raw: RawUsage, host: str, slots: int) -> Node:
        node, capacity, used, files, silent = raw
        return cls(node, host, capacity, used, files, slots, silent)


@dataclass(frozen=True, slots=True)
class Location:
    """Where the bytes of a path are, or would be if it were put now."""

    exists: bool
    """True if the path exists."""
    inode: int | None
    """The node of the path's name and attributes; None if directories above it are missing too."""
    policy: str | None
    """The policy that would place it; None if the path exists.

    One of ``striped``, ``single``, ``here``, ``at(3)`` (with any node's number) and ``balanced``.
    """
    nodes: dict[int, float]
    """For an existing path: bytes by node, largest first.

    Otherwise the share of its bytes by node, or the probability of each node.
    """
    ranges: list[tuple[int, int, int]]
    """Which bytes are where: (start, stop, node) in order; empty if the path does not exist."""

    @classmethod
    def _from_raw(cls, raw: RawLocation) -> Location:
        exists, inode, policy, nodes, ranges = raw
        return cls(exists, inode, policy, dict(nodes), ranges)
