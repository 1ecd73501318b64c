#!/usr/bin/env python3
"""montage_make RAW DIR: prepares DIR for `make -j2` of the 24 tasks of examples/montage on a disk.

The commands are those of the example's tool file, with paths on the disk. The overlaps are computed
beforehand, as for the workflow script.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "montage"
sys.path.insert(0, str(EXAMPLE))
import plan  # noqa: E402  the planner of the example


def rules(raw: Path) -> str:
    """The text of the Makefile."""
    names = plan.find_images(raw)
    stems = [name.removesuffix(".fits") for name in names]
    header = raw / "region.hdr"
    lines = ["all: mosaic.png\n"]
    for name, stem in zip(names, stems, strict=True):
        lines.append(f"projected/{name} projected/{stem}_area.fits &: {raw / name}\n\t@mProjectPP $< projected/{name} {header}\n")
    projected = " ".join(f"projected/{name}" for name in names)
    lines.append(f"projected.tbl: {projected}\n\t@cd projected && mImgtbl . ../projected.tbl\n")
    fits = []
    for a, b in plan.find_overlaps(raw):
        pair = f"{Path(a).stem}__{Path(b).stem}"
        lines.append(f"difference/{pair}.fits: projected/{a} projected/{b}\n\t@mDiff projected/{a} projected/{b} $@ {header}\n")
        lines.append(f"fit/{pair}.txt: difference/{pair}.fits\n\t@mFitplane -s $@ $<\n")
        fits.append(f"fit/{pair}.txt")
    every = " ".join(fits)
    lines.append(f"fits.tbl: projected.tbl {every}\n\t@{sys.executable} {EXAMPLE / 'gather.py'} projected.tbl $@ {every}\n")
    lines.append("corrections.tbl: projected.tbl fits.tbl\n\t@mBgModel projected.tbl fits.tbl $@\n")
    for name in names:
        lines.append(
            f"corrected/{name}: projected/{name} corrections.tbl\n"
            f"\t@cd projected && mBackground -t {name} ../corrected/{name} ../projected.tbl ../corrections.tbl\n"
        )
    corrected = " ".join(f"corrected/{name}" for name in names)
    lines.append(f"corrected.tbl: {corrected}\n\t@cd corrected && mImgtbl . ../corrected.tbl\n")
    lines.append(f"mosaic.fits: corrected.tbl\n\t@mAdd -p corrected corrected.tbl {header} $@\n")
    lines.append("mosaic.png: mosaic.fits\n\t@mViewer -ct 0 -gray mosaic.fits -2s max gaussian-log -png $@\n")
    # The output of the programs is dropped: a user of make would not want it either.
    return "".join(line.replace("\n\t@", "\n\t@exec >/dev/null; ") for line in lines)


def main() -> None:
    """Creates the directory anew."""
    raw, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("projected", "difference", "fit", "corrected"):
        (folder / part).mkdir(parents=True)
    (folder / "Makefile").write_text(rules(raw))


if __name__ == "__main__":
    main()
