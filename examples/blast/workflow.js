// Searches a database for every sequence of a query file, in n parts in parallel.

var queries = "corn";
var n = 8;

var data = Data.define("DbSequences");
var header = Data.define("DbHeader");
var lookup = Data.define("DbLookup");
makeblastdb({sequences: Data.get("nifh-db"), data: data, header: header, lookup: lookup});

var parts = Data.define("QueryPart", n);
SplitQueries({queries: Data.get(queries), parts: parts});

var hits = Data.define("PartHits", n);
for (var i = 0; i < n; i++)
    blastn({queries: parts[i], data: data, header: header, lookup: lookup, hits: hits[i]});

MergeHits({parts: hits, hits: Data.define("Hits")});
