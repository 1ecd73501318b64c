// Tool sweep: different tools on the same element. A tool is a function, so it can be in a list.
//
//          +--> CountLines --> Total[0]
//   Poem --+--> CountWords --> Total[1]
//          +--> CountBytes --> Total[2]

var tools = [CountLines, CountWords, CountBytes];
var poem = Data.get("Poem");
var totals = Data.define("Total", tools.length);

for (var i = 0; i < tools.length; i++)
    tools[i]({text: poem, count: totals[i]});
