// Data aggregation: one tool takes a whole array and makes one element of it.
//
//   Pages/page-1.txt  --> Sort --> [SortedPage[0]] --+
//   Pages/page-2.txt  --> Sort --> [SortedPage[1]] --+--> Merge --> Fruits
//   Pages/page-10.txt --> Sort --> [SortedPage[2]] --+

var n = 3;
var pages = Data.get("Pages", n);
var sorted = Data.define("SortedPage", n);

for (var i = 0; i < n; i++)
    Sort({text: pages[i], sorted: sorted[i]});
Merge({parts: sorted, merged: Data.define("Fruits")});
