// Twenty files of 12 MB each that are all needed at once: more than a node of 128 MiB can hold.
app (file o) simulate(int i) { "sh" "-c" "head -c 12000000 /dev/urandom > $0" o i }
app (file o) count(file all[]) { "sh" "-c" "cat $@ | wc -c" "sh" all @stdout=o }
app (file o) refine(file i, int n) { "sh" "-c" "sleep 1; cat $0" i n @stdout=o }

file parts[];
foreach i in [1:20] { parts[i] = simulate(i); }
file bytes<"bytes.txt"> = count(parts);
// From here on little memory is needed.
foreach n in [1:20] { file refined<"refined/" + n + ".txt"> = refine(bytes, n); }
