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
COMMENT_COLUMNS_MAX = 100


# Crates that only tests may use.
TESTS_ONLY = {"sim"}
# Names of `pub` types that several crates have, each with the reason.
SHARED_NAMES = {
    "Pool": "a pool of a process: of nodes in it (sim), and what Python calls it",
    "Upload": "Python's class holds client's",
}
# Types, modules and functions that were renamed (docs/TERMS.md has the terms): pronouns, adverbs,
# participles and words of ours alone. None of them comes back.
OLD_TYPES = (
    "Across After Asked At Bare Bay Bays Because Begun Bell Below Berth Born Brisk Brought Carried Claim Coming Counted Crew Crowded "
    "Due Dying Early Ears Elsewhere Ended Endings Face Few Garbled Gave Gear Gift Given Going Gone Granted Ground Guess Guest Hand "
    "Hashed Heard Hearing Held Here Heritage Holding House Inside Keeps Kept Known Landed Landing Lane Leftovers Lent Life Line "
    "Listed Listening Loaded Loan Loans Looked Looks Lossy Made Manner Manners Marked Marks Meaning Meant Meeting Meetings Near Needs "
    "NoWay Noted Now Orders OtherEnd Own OwnSession Parking Passing PathIn Patience Patient Paused Pick Placed Places Placing Present "
    "Publish Quiet Reach Reached Remains Ringer Roll Room Runway Said Seat Seen Shared Shelf Shelves Shortage Show Shown Site Speaks "
    "Spill Spot Spread Standing Stepped Stocked Stored Story Stuck Taken Then There Through Todo Told Touched Tried Trouble Troubles "
    "Turn Twin Unplaced Unreached Unseated Up Verdict Via Wanted Watched Watching Way Ways Whereabouts Which Who Whole Wholes Whose "
    "Window Wish"
).split()
OLD_MODULES = (
    "answered apart astray bare bay begin below bounds bridge brief brisk carried carrier checked choice crew crowded dealt door "
    "drive ears ended extra face failing faults fold folders gate giving go grants greet ground guess guest hand heed held hidden "
    "janitor keeper kept kernel_twin known landing lane last_resort life line linear_model listed loan loans lockers look make_way "
    "manners many marked marks meant meet moves near numbers odd own owners park passing place placing placings point removed "
    "resolved roll runaway said seldom shown sit site special split_stat spot spread stand_in stitch sweep through told touched "
    "traffic trouble turn twin unnamed waited watch ways weight when_lost who whole whole_calls window"
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
    match = re.match(r"//! Layer (\d+): .", entry.read_text())
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
            if layers[other] is None or layers[other] >= layers[name]:
                found.append(f"{name} (layer {layers[name]}) depends on {other} (layer {layers[other]}): arrows point down")
    return found


def length_findings() -> list[str]:
    """Files and functions that are too long, comments that are too wide, and files without a first doc comment.

    Lines of tests are not counted.
    """
    found = []
    for path in tracked("crates/*.rs") + tracked("python/*.rs"):
        name = path.relative_to(ROOT)
        long = [at for at, line in enumerate(path.read_text().splitlines(), 1) if is_long_comment(line)]
        found += [f"{name}:{at}: a comment of more than {COMMENT_COLUMNS_MAX} columns" for at in long]
        if "tests" in path.parts or path.name.endswith("_test.rs"):
            continue
        lines = re.split(r"\n#\[cfg\(test\)\]", path.read_text())[0].split("\n")
        if not lines[0].startswith("//!"):
            found.append(f"{name}: does not open with what it is")
        if len(lines) > FILE_LINES_MAX:
            found.append(f"{name}: {len(lines)} lines, at most {FILE_LINES_MAX}")
        found += [f"{name}:{at}: a function of {length} lines, at most {FUNCTION_LINES_MAX}" for at, length in long_functions(lines)]
    return found


def is_long_comment(line: str) -> bool:
    """Returns whether a line is a comment that is too wide."""
    return len(line) > COMMENT_COLUMNS_MAX and line.lstrip().startswith("//")


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
    items = re.findall(r"^(pub(?:\([a-z ]+\))? )?(?:unsafe )?(?:struct|enum|union|trait|type) (\w+)", code, re.MULTILINE)
    return [(visibility == "pub ", name) for visibility, name in items]


def declared() -> list[tuple[str, Path, bool, str]]:
    """(crate, file, seen outside of the crate, name) of every type, tests left out."""
    found = []
    for crate, folder in crates().items():
        files = [path for path in sorted((folder / "src").rglob("*.rs")) if not path.name.endswith("_test.rs")]
        found += [(crate, path, visible, name) for path in files for visible, name in names_of_types(path)]
    return found


def name_findings() -> list[str]:
    """Types that share a name, and names that were given up.

    A `pub` type has a name of its own in the workspace, any other one in its crate.
    """
    found: list[str] = []
    places: dict[str, list[tuple[str, Path, bool]]] = {}
    for crate, path, visible, name in declared():
        if name in OLD_TYPES:
            found.append(f"{path.relative_to(ROOT)}: {name} is a name that was given up (OLD_TYPES)")
        places.setdefault(name, []).append((crate, path.relative_to(ROOT), visible))
    for name, there in places.items():
        own_crate = [path for crate, path, _ in there if sum(crate == other for other, _, _ in there) > 1]
        public = [path for _, path, visible in there if visible]
        for doubled in (own_crate, public if name not in SHARED_NAMES else []):
            if len(doubled) > 1:
                found.append(f"{' and '.join(map(str, doubled))} have a type {name} each: take two names, or give the reason in SHARED_NAMES")
    modules = [path.relative_to(ROOT) for folder in crates().values() for path in (folder / "src").rglob("*.rs")]
    return found + [f"{path}: a name that was given up (OLD_MODULES)" for path in modules if path.stem in OLD_MODULES]


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
