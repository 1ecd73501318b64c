"""Gather: writes the output of all mFitplane tasks as one table, as Montage's mConcatFit does.

    gather.py IMAGES.tbl FITS.tbl A__B.txt ...

Each fit is named by its two images: A__B.txt is the fit of A.fits minus B.fits. mBgModel identifies
images by their number in IMAGES.tbl. mImgtbl numbers them in the order in which it finds them. That
order differs between file systems, so this tool looks up the numbers by name.
"""

import argparse
import pathlib
import re

FIELDS = ("a b c crpix1 crpix2 xmin xmax ymin ymax xcenter ycenter npixel rms boxx boxy boxwidth boxheight boxang").split()


def image_numbers(path):
    """The number of each image by name: the first and the last column of a table of images."""
    lines = path.read_text().splitlines()
    cells = [line.split() for line in lines if line and line[0] not in "|\\"]
    return {pathlib.PurePath(row[-1]).name: int(row[0]) for row in cells}


def head():
    """The line of titles."""
    return "|     plus|    minus|" + "".join(f"{field:>15}|" for field in FIELDS) + "\n"


def row(path, numbers):
    """The line of one fit."""
    names = [f"{stem}.fits" for stem in path.stem.split("__")]
    text = path.read_text()
    values = dict(re.findall(r"(\w+)=([^,\]\s]+)", text))
    if values.get("stat") != '"OK"':
        raise SystemExit(f"{path.name}: mFitplane did not succeed: {text.strip()}")
    try:
        plus, minus = (numbers[name] for name in names)
        return f"{plus:10d} {minus:9d}" + "".join(f" {values[field]:>15}" for field in FIELDS) + "\n"
    except (KeyError, ValueError) as error:
        raise SystemExit(f"{path.name}: {error} is neither an image of the table nor a field of the fit") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("images", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("fits", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    numbers = image_numbers(args.images)
    args.table.write_text(head() + "".join(row(path, numbers) for path in args.fits))


if __name__ == "__main__":
    main()
