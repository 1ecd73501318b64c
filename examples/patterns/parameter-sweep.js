// Parameter sweep: one tool on one element, once for each value of a parameter.
//
//          +--> Wrap, width 15 --> Wrapped[0]
//   Poem --+--> Wrap, width 25 --> Wrapped[1]
//          +--> Wrap, width 35 --> Wrapped[2]

var n = 3;
var poem = Data.get("Poem");
var wrapped = Data.define("Wrapped", n);

for (var i = 0; i < n; i++)
    Wrap({text: poem, wrapped: wrapped[i], width: 15 + 10 * i});
