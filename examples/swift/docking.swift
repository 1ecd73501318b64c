// Docking: every molecule meets every other one, and itself.
//
//   molecule i --+
//                +--> dock --> (poses) --> match --> (label [i * n + j]) --> merge --> results.txt
//   molecule j --+
//
// The files in parentheses have no path: they are in memory and deleted after their last use.
// Arguments: --programs=DIR is the directory of the programs, and otherwise the data directory.

import files;

app (file poses) dock(file program, file one, file other) { "python3" program one other poses }
app (file label) match(file program, file poses) { "python3" program poses label }
app (file counts) merge(file program, file labels[]) { "python3" program counts labels }

string programs = argv("programs", ".");
file dock_py = input(programs / "dock.py");
file match_py = input(programs / "match.py");
file merge_py = input(programs / "merge.py");

file molecules[] = glob("*.mol");
int n = size(molecules);
file labels[];
foreach one, i in molecules {
  foreach other, j in molecules {
    file poses = dock(dock_py, one, other);
    labels[i * n + j] = match(match_py, poses);
  }
}
file results<"results.txt"> = merge(merge_py, labels);
