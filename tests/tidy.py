#!/usr/bin/env python3
"""Checks of style: layers, dependencies, lengths of files and functions, links in documents.

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
    found = layer_findings() + length_findings() + link_findings() + file_findings()
    for line in found:
        print(line)
    print(f"tidy: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
