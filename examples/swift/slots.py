"""Prints how busy the slots of a run were, and where the inputs of its tasks lay.

slots.py REPORT

REPORT is the directory of a report, as `tidemill run --report` was given it.
"""

import collections
import json
import pathlib
import sys


def busy(tasks):
    """The number of tasks and the seconds that they took, by node and slot."""
    counts, seconds = collections.Counter(), collections.Counter()
    for task in tasks:
        if task.get("slot") is not None:
            place = task.get("node", 0), task["slot"]
            counts[place] += 1
            seconds[place] += task["end_s"] - task["start_s"]
    return [(*place, counts[place], seconds[place]) for place in sorted(counts)]


def main():
    run = json.loads((pathlib.Path(sys.argv[1]) / "run.json").read_text())
    print(f"{run['totals']['makespan_s']:.2f} s in all")
    for node, slot, count, seconds in busy(run["tasks"]):
        print(f"node {node}, slot {slot}: {count:3} tasks, {seconds:6.2f} s")
    for place, count in run["totals"].get("reads", {}).items():
        print(f"{place}: {count / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
