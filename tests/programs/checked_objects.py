"""Changes objects of a pool at random, and checks that all it has done is there.

`checked_objects.py PREFIX SEED STOP`: works until the file STOP exists, then checks all objects once
more. Prints the number of operations and the longest one in milliseconds.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import tidemill

OBJECTS = 60
LENGTHS = [0, 64, 3000, 70_000, 1_500_000]
# Views that are kept.
VIEWS = 10


class CheckedObjects:
    """Objects under a prefix, and what they must contain."""

    def __init__(self, client: tidemill.Pool, prefix: str, seed: int) -> None:
        self.client, self.prefix = client, prefix
        self.random = random.Random(seed)
        self.known: dict[str, bytes] = {}
        self.views: list[tuple[tidemill.View, bytes]] = []

    def any(self) -> str:
        """The key of some object that is there or not."""
        return f"{self.prefix}/o{self.random.randrange(OBJECTS)}"

    def step(self) -> None:
        """Does one operation."""
        self.random.choice([self.put, self.get, self.view, self.begin, self.range, self.remove, self.keys])()

    def put(self) -> None:
        """Puts an object, maybe over another one."""
        key, data = self.any(), self.random.randbytes(self.random.choice(LENGTHS))
        self.client.put(key, data)
        self.known[key] = data

    def get(self) -> None:
        """Gets an object, also one that is not there."""
        key = self.any()
        if key in self.known:
            assert bytes(self.client.get(key)) == self.known[key], key
            return
        try:
            self.client.get(key)
        except tidemill.NotFound:
            return
        raise AssertionError(f"{key} was removed")

    def view(self) -> None:
        """Keeps a view of an object, which shows what that was; reads the one that it has longest."""
        key = self.any()
        if key in self.known:
            self.views.append((self.client.get(key), self.known[key]))
        if len(self.views) > VIEWS:
            view, data = self.views.pop(0)
            assert bytes(view) == data

    def begin(self) -> None:
        """Puts an object that must not be there."""
        key, data = self.any(), self.random.randbytes(100)
        try:
            self.client.put(key, data, if_absent=True)
        except tidemill.Exists:
            assert key in self.known, key
        else:
            assert key not in self.known, key
            self.known[key] = data

    def range(self) -> None:
        """Gets a part of an object."""
        key = self.any()
        if data := self.known.get(key):
            start = self.random.randrange(len(data))
            assert bytes(self.client.get(key, start, start + 1000)) == data[start : start + 1000], key

    def remove(self) -> None:
        """Removes an object."""
        key = self.any()
        if key in self.known:
            self.client.delete(key)
            del self.known[key]

    def keys(self) -> None:
        """Lists all."""
        assert self.client.list(f"{self.prefix}/") == sorted(self.known)


def main() -> None:
    """Works until it is told to stop."""
    prefix, seed, stop = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    with tidemill.connect() as client:
        objects = CheckedObjects(client, prefix, seed)
        operations, longest = 0, 0.0
        while not stop.exists():
            begun = time.monotonic()
            objects.step()
            longest = max(longest, time.monotonic() - begun)
            operations += 1
        for key, data in objects.known.items():
            assert bytes(client.get(key)) == data, key
        objects.keys()
    print(operations, round(longest * 1000))


main()
