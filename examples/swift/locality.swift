// Locality: 32 tasks write a file each, and 32 tasks read these files.
//
//   write --> (file) --> read --> sums/NUMBER.txt
//
// Arguments:
//   --mode=local     each file is read at the host of its writer
//   --mode=remote    each file is read at the next host
//   --mode=balanced  the scheduler places all tasks (the default)
//   --mb=N           the size of each file in MiB (1)

import assert;
import location;
import string;

app (file o) write_mb(int i, int mb) { "sh" "-c" "yes $0 | head -c $(($1 * 1048576)) > $2" i mb o }
app (file sum) read_all(file f) { "cksum" @stdin=f @stdout=sum }

string mode = argv("mode", "balanced");
int mb = toint(argv("mb", "1"));
int first_ranks[] = hostmapLeaders();
int hosts = size(first_ranks);

// The n-th host, any slot of it; counting goes on with the first one after the last.
(location at) host(int n) { at = location(first_ranks[n %% hosts], HARD, NODE); }

assert(mode != "remote" || hosts > 1, "--mode=remote needs two hosts");
foreach i in [0:31] {
  file sum<"sums/%02i.txt" % i>;
  if (mode == "balanced") {
    sum = read_all(write_mb(i, mb));
  } else {
    file f = @location=host(i) write_mb(i, mb);
    if (mode == "local") {
      sum = @location=locationOf(f, HARD) read_all(f);
    } else {
      sum = @location=host(i + 1) read_all(f);
    }
  }
}
