// Single task: one tool reads one data element and writes another.
//
//   Poem --> Sort --> Sorted

Sort({text: Data.get("Poem"), sorted: Data.define("Sorted")});
