"""Makes molecules: DIR gets small text files m00.mol, m01.mol ..., the same for the same seed.

molecules.py DIR [--count N] [--atoms N] [--seed N]

A line `atom X Y Z CHARGE` stands for an atom: a point with whole numbers, and a charge of -1, 0 or 1.
"""

import argparse
import pathlib
import random


def molecule(rng, atoms):
    """The text of a molecule: a random walk of atoms, with random charges."""
    place, lines = [0, 0, 0], []
    for _ in range(atoms):
        lines.append("atom {} {} {} {}\n".format(*place, rng.choice([-1, 0, 1])))
        place[rng.randrange(3)] += rng.choice([-1, 1])
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--atoms", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(args.seed)
    for number in range(args.count):
        (args.folder / f"m{number:02}.mol").write_text(molecule(rng, args.atoms))


if __name__ == "__main__":
    main()
