// Pipeline: each tool reads what the one before it wrote.
//
//   Poem --> Words --> [Words] --> Sort --> [InOrder] --> Count --> WordCounts
//
// The elements in brackets are temporaries: they are in memory and deleted after their last use.

var words = Data.define("Words");
var inOrder = Data.define("InOrder");

Words({text: Data.get("Poem"), words: words});
Sort({text: words, sorted: inOrder});
Count({sorted: inOrder, counts: Data.define("WordCounts")});
