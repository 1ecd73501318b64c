#!/usr/bin/env python3
"""Checks of style: layers, dependencies, lengths of files and functions, names, links in documents.

Never writes. Run by `make check`; prints one line for each finding and exits with 1 if there is
any.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
# Dependencies allowed within a layer; they have one direction (docs/ARCHITECTURE.md).
SAME_LAYER = {
    ("vfs", "client"), ("client", "node"), ("run", "mount"), ("run", "pool"), ("pool", "transport"), ("bench", "pool"),
    ("posix", "pool"), ("posix", "transport"),
    ("store", "placement"), ("store", "base"), ("placement", "base"), ("flow", "base"),
}  # fmt: skip


# Names of `pub` types that several crates have, each with the reason.
SHARED_NAMES: dict[str, str] = {}
# Types, modules and functions that were renamed (docs/TERMS.md has the terms): pronouns, adverbs,
# participles and words of ours alone. None of them comes back.
OLD_TYPES = (
    "Across Asked Bare Bay Bays Begun Below Bell Berth Born Brisk Brought Claim Counted Crew Crowded Due Ears Elsewhere Early Endings "
    "Face Few Gave Garbled Gear Gift Given Going Gone Granted Ground Guess Guest Hand Heard Hearing Held Here Heritage House Inside Keeps "
    "Kept Known Landed Landing Lane Leftovers Lent Life Line Looked Loan Loans Made Manner Manners Marked Meant Meeting Meetings Near "
    "Noted Orders Own Passing Patient Placing Present Publish Reach Reached Remains Ringer Roll Room Runway Said Seat Seen Shelf Shelves "
    "Shortage Show Shown Side Site Spill Spot Stocked Story Stuck Taken Then There Through Todo Told Touched Tried Trouble Turn Twin "
    "Unplaced Unreached Unseated Up Verdict Wanted Watching Way Ways Welcome Which Who Whose Wholes Wish"
).split()
OLD_MODULES = (
    "answered apart bare bay begin below brief brisk carried carrier checked crew crowded door ears ended extra face fold giving greet "
    "ground guess guest hand held hidden janitor kept known landing lane last_resort life line loan loans lockers look manners marked "
    "marks meant meet moves near numbers odd own owners park passing placing place point removed roll said seldom shown sit site spot "
    "stand_in stitch sweep through told touched traffic twin unnamed ways weight who whole whole_calls"
).split()


def tracked(pattern: str) -> list[Path]:
    """Files of the repository that match, also those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def crates() -> dict[str, Path]:
    """Maps crate names to directories."""
    return {path.parent.name: path.parent for path in tracked("crates/*Cargo.toml") + tracked("python/Cargo.toml")}


def layer_of(folder: Path) -> int | None:
    """The layer in the crate's first doc line."""
    entry = folder / "src" / "lib.rs"
    entry = entry if entry.exists() else folder / "src" / "main.rs"
    match = re.match(r"//! Layer (\d): .", entry.read_text())
    return int(match[1]) if match else None


def layer_findings() -> list[str]:
    """Crates without a layer, and dependencies on the same or a higher layer."""
    found, layers = [], {name: layer_of(folder) for name, folder in crates().items()}
    for name, folder in crates().items():
        if layers[name] is None:
            found.append(f"{name}: the first doc line does not say `Layer N: ...`")
            continue
        wanted = tomllib.loads((folder / "Cargo.toml").read_text()).get("dependencies", {})
        found += [f"{name} depends on {other}, which is for tests" for other in wanted.keys() & TESTS_ONLY]
        for other in wanted.keys() & layers.keys():
            beside = (name, other) in SAME_LAYER
            if not beside and (layers[other] is None or layers[other] >= layers[name]):
                found.append(f"{name} (layer {layers[name]}) depends on {other} (layer {layers[other]}): arrows point down")
    return found


def length_findings() -> list[str]:
    """Files and functions that are too long, and files without a first doc comment.

    Tests are not counted.
    """
    found = []
    for path in tracked("crates/*.rs") + tracked("python/*.rs"):
        name = path.relative_to(ROOT)
        if "tests" in path.parts or path.name.endswith("_test.rs"):
            continue
        lines = re.split(r"\n#\[cfg\(test\)\]", path.read_text())[0].split("\n")
        if not lines[0].startswith("//!"):
            found.append(f"{name}: does not open with what it is")
        if len(lines) > FILE_LINES_MAX:
            found.append(f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}")
        found += [f"{name}:{at}: a function of {length} lines, at most {FUNCTION_LINES_MAX}" for at, length in long_functions(lines)]
    return found


def long_functions(lines: list[str]) -> list[tuple[int, int]]:
    """(line, length) of functions over the limit.

    A function ends at the closing brace of its own indentation; functions in the table of a macro
    have no such brace.
    """
    long, start, indent = [], None, ""
    for number, line in enumerate(lines, 1):
        match = re.match(r"(\s*)(pub(\([a-z]+\))? )?(const |async |unsafe )*fn \w+", line)
        if start is None and match and not line.rstrip().endswith((";", "}", "=>")):
            start, indent = number, match[1]
        elif start is not None and line in (f"{indent}}}", f"{indent}}},"):
            if number - start + 1 > FUNCTION_LINES_MAX:
                long.append((start, number - start + 1))
            start = None
    return long


def names_of_types(path: Path) -> list[tuple[bool, str]]:
    """(seen outside of the crate, name) of the types that a file declares, without its tests."""
    code = re.split(r"\n#\[cfg\(test\)\]", path.read_text())[0]
    items = re.findall(r"^(pub(?:\([a-z ]+\))? )?(?:unsafe )?(?:struct|enum|union|trait|type) (\w+)", code, re.M)
    return [(visibility == "pub ", name) for visibility, name in items]


def name_findings() -> list[str]:
    """Types that share a name, and names that were given up.

    A `pub` type has a name of its own in the workspace, any other one in its crate.
    """
    found: list[str] = []
    public: dict[str, dict[str, Path]] = {}
    for crate, folder in crates().items():
        own: dict[str, Path] = {}
        for path in sorted((folder / "src").rglob("*.rs")):
            if path.name.endswith("_test.rs"):
                continue
            where = path.relative_to(ROOT)
            if path.stem in OLD_MODULES:
                found.append(f"{where}: a name that was given up (OLD_MODULES)")
            for visible, name in names_of_types(path):
                if name in own:
                    found.append(f"{where}: {name} is declared in {own[name]} too")
                if name in OLD_TYPES:
                    found.append(f"{where}: {name} is a name that was given up (OLD_TYPES)")
                own[name] = where
                if visible:
                    public.setdefault(name, {})[crate] = where
    for name, places in public.items():
        if len(places) > 1 and name not in SHARED_NAMES:
            found.append(f"{' and '.join(map(str, places.values()))} have a type {name} each: take two names, or give the reason in SHARED_NAMES")
    return found + [f"SHARED_NAMES: only one crate has {name}" for name in SHARED_NAMES if len(public.get(name, {})) < 2]


def link_findings() -> list[str]:
    """Relative links in Markdown whose target does not exist."""
    found = []
    for path in tracked("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                found.append(f"{path.relative_to(ROOT)}: link to {target}, which is not there")
    return found


def file_findings() -> list[str]:
    """Names of Rust files in the documents that no file has: a rename left them behind.

    Dated design notes before the renames keep the names of their day.
    """
    names = {path.name for path in tracked("*.rs")}
    found = []
    for path in [*tracked("docs/*.md"), *tracked("docs/formats/*.md"), *tracked("README.md")]:
        for number, line in enumerate(path.read_text().split("\n"), 1):
            missing = [name for name in re.findall(r"`(?:[a-z_/0-9]*/)?([a-z_0-9]+\.rs)`", line) if name not in names]
            if path.parent.name != "design":
                found += [f"{path.relative_to(ROOT)}:{number}: names {name}, which is not there" for name in missing]
    return found


def main() -> int:
    """Prints the findings; returns the exit code."""
    found = layer_findings() + length_findings() + name_findings() + link_findings() + file_findings()
    for line in found:
        print(line)
    print(f"tidy: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
