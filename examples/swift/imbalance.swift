// Imbalance: tasks of unequal length at places that the script chooses, more or less strictly.
//
// Each slot is given four tasks, by its rank. Those of the first slot are the longest, those of the
// last one the shortest. A task writes its number and the rank into works/NUMBER.txt.
//
// Arguments:
//   --how=rank      each task runs in its slot
//   --how=node      each task runs in any slot of the host of its slot
//   --how=soft      each task prefers that host, and runs elsewhere rather than wait
//   --how=balanced  the scheduler places all tasks (the default)
//   --ms=N          the length of the longest task in milliseconds (2000)

import location;
import string;

app (file o) work(int i, int rank, float seconds) { "sh" "-c" "sleep $2 && echo $0 $1 > $3" i rank seconds o }

string how = argv("how", "balanced");
float longest = itof(toint(argv("ms", "2000"))) / 1000;
int slots = turbine_workers();

foreach i in [0 : 4 * slots - 1] {
  int rank = i %% slots;
  float seconds = longest * (slots - rank) / slots;
  file o<"works/%02i.txt" % i>;
  if (how == "rank") {
    o = @location=location(rank, HARD, RANK) work(i, rank, seconds);
  } else if (how == "node") {
    o = @location=location(rank, HARD, NODE) work(i, rank, seconds);
  } else if (how == "soft") {
    o = @location=location(rank, SOFT, NODE) work(i, rank, seconds);
  } else {
    o = work(i, rank, seconds);
  }
}
