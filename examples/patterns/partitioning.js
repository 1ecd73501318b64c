// Data partitioning: one tool cuts an element into n parts; the next tool processes the parts in
// parallel.
//
//                  +--> Sort --> SortedPart[0]
//   Poem --> Split +--> Sort --> SortedPart[1]
//                  +--> Sort --> SortedPart[2]

var n = 3;
var parts = Data.define("Part", n);
var sorted = Data.define("SortedPart", n);

Split({text: Data.get("Poem"), parts: parts, count: n});
for (var i = 0; i < n; i++)
    Sort({text: parts[i], sorted: sorted[i]});
