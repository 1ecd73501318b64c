// Input sweep: one tool on each of many elements. The pages are in natural order: page-10 after
// page-2.
//
//   Pages/page-1.txt  --> CountWords --> WordsOn[0]
//   Pages/page-2.txt  --> CountWords --> WordsOn[1]
//   Pages/page-10.txt --> CountWords --> WordsOn[2]

var pages = Data.get(/^Pages\/.*\.txt$/);
var counts = Data.define("WordsOn", pages.length);

for (var i = 0; i < pages.length; i++)
    CountWords({text: pages[i], count: counts[i]});
