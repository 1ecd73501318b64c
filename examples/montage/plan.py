"""Plans a mosaic: finds which images overlap and writes the workflow for them.

    plan.py DIR > workflow.js

Montage's mDAG does the same for other engines.
DIR holds the raw images (*.fits) and region.hdr, the header of the wanted mosaic. Montage's mImgtbl
and mOverlaps read the images. The script depends only on their names and overlaps, not on the order
in which a file system lists them.
"""

import argparse
import pathlib
import subprocess
import tempfile

SCRIPT = """\
// A mosaic of {images} images with {pairs} overlaps, in {tasks} tasks. Written by plan.py; the tools are in tools.toml.
//
// An image is two files: itself and its _area.fits. So the arrays of images have two rows: [0][i] is image i, [1][i] its area.

var images = [
{names}
];
// Which of them overlap, by their places in `images`.
var overlaps = [{overlaps}];

var header = Data.get("region.hdr");

// 1. Every image is projected onto the plane of the mosaic.
var projected = Data.define("Projected", [2, images.length]);
for (var i = 0; i < images.length; i++)
    mProjectPP({{image: Data.get(images[i]), header: header, projected: projected[0][i], area: projected[1][i]}});
var table = Data.define("ProjectedTable");
mImgtbl({{images: projected, table: table}});

// 2. Where two of them overlap they should agree: a plane is fitted to their difference.
var differences = Data.define("Difference", [2, overlaps.length]);
var fits = Data.define("Fit", overlaps.length);
for (var k = 0; k < overlaps.length; k++) {{
    var a = overlaps[k][0], b = overlaps[k][1];
    mDiff({{plus: projected[0][a], plusArea: projected[1][a], minus: projected[0][b], minusArea: projected[1][b],
           header: header, difference: differences[0][k], area: differences[1][k]}});
    mFitplane({{difference: differences[0][k], area: differences[1][k], fit: fits[k]}});
}}
var fitTable = Data.define("FitTable");
Gather({{images: table, fits: fits, table: fitTable}});

// 3. From the fits follows a correction for each image.
var corrections = Data.define("Corrections");
mBgModel({{images: table, fits: fitTable, corrections: corrections}});
var corrected = Data.define("Corrected", [2, images.length]);
for (var i = 0; i < images.length; i++)
    mBackground({{image: projected[0][i], imageArea: projected[1][i], images: table, corrections: corrections,
                 corrected: corrected[0][i], area: corrected[1][i]}});
var correctedTable = Data.define("CorrectedTable");
mImgtbl({{images: corrected, table: correctedTable}});

// 4. The corrected images become one, and a picture of it.
var mosaic = Data.define("Mosaic");
mAdd({{images: corrected, table: correctedTable, header: header, mosaic: mosaic, area: Data.define("MosaicArea")}});
mViewer({{image: mosaic, picture: Data.define("Picture")}});
"""


def montage(*command, cwd=None):
    """Runs a Montage program; they print their status and may exit with 0 after an error."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"plan.py: {command[0]} is not installed: run examples/packages.sh montage") from None
    if done.returncode != 0 or 'stat="OK"' not in done.stdout:
        raise SystemExit(f"plan.py: {' '.join(map(str, command))} failed: {done.stdout}{done.stderr}")


def find_images(folder):
    """The sorted names of the raw images."""
    names = sorted(path.name for path in folder.glob("*.fits"))
    if len(names) < 2 or not (folder / "region.hdr").is_file():
        raise SystemExit(f"plan.py: {folder} should hold two *.fits or more, and region.hdr")
    for name in names:
        if "__" in name or name.endswith("_area.fits") or not name.isascii() or set(name) & set(" '\\") or '"' in name:
            raise SystemExit(f"plan.py: {name}: rename it without '__', '_area', blanks, quotes")
    return names


def find_overlaps(folder):
    """Pairs of names of images that overlap; each pair and the list are sorted."""
    with tempfile.TemporaryDirectory() as scratch:
        images, pairs = f"{scratch}/images.tbl", f"{scratch}/pairs.tbl"
        montage("mImgtbl", ".", images, cwd=folder)
        montage("mOverlaps", images, pairs)
        rows = [line.split() for line in pathlib.Path(pairs).read_text().splitlines() if not line.startswith("|")]
    return sorted(tuple(sorted(row[2:4])) for row in rows)


def script(names, overlaps):
    """The workflow for these images."""
    place = {name: index for index, name in enumerate(names)}
    return SCRIPT.format(
        images=len(names),
        pairs=len(overlaps),
        # Two tasks for each image and two for each overlap; two tables, gather, model, add and
        # view.
        tasks=2 * len(names) + 2 * len(overlaps) + 6,
        names=",\n".join(f'    "{name}"' for name in names),
        overlaps=", ".join(f"[{place[a]}, {place[b]}]" for a, b in overlaps),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR")
    folder = parser.parse_args().folder
    print(script(find_images(folder), find_overlaps(folder)), end="")


if __name__ == "__main__":
    main()
