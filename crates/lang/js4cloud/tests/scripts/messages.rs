//! The exact error messages for wrong scripts.

use super::run;

#[rustfmt::skip]
const CASES: &[(&str, &str)] = &[
    (
        "Shufler({});",
        "dir/w.js:1:1: unknown tool `Shufler`\n\
         \x20   1 | Shufler({});\n\
         \x20     | ^\n\
         \x20 hint: did you mean `Shuffler`?",
    ),
    (
        "Nothing({});",
        "dir/w.js:1:1: unknown tool `Nothing`\n\
         \x20   1 | Nothing({});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.get('Train');\n\
         Copy({in: aa, out: a});",
        "dir/w.js:2:11: unknown name `aa`\n\
         \x20   2 | Copy({in: aa, out: a});\n\
         \x20     |           ^\n\
         \x20 hint: did you mean `a`?",
    ),
    (
        "var train = 1;\n\
         Data.define('A', trian);",
        "dir/w.js:2:18: unknown name `trian`\n\
         \x20   2 | Data.define('A', trian);\n\
         \x20     |                  ^\n\
         \x20 hint: did you mean `train`?",
    ),
    (
        "var a = 1;\n\
         var b = ;",
        "dir/w.js:2:9: syntax error: unexpected token in expression: ';'\n\
         \x20   2 | var b = ;\n\
         \x20     |         ^",
    ),
    (
        "var s = \"abc\n\
         var t;",
        "dir/w.js:1:9: syntax error: unexpected end of string\n\
         \x20   1 | var s = \"abc\n\
         \x20     |         ^",
    ),
    (
        "for (var i = 0; i < 3; i++ {\n\
         }",
        "dir/w.js:1:28: syntax error: Unexpected token '{'\n\
         \x20   1 | for (var i = 0; i < 3; i++ {\n\
         \x20     |                            ^",
    ),
    (
        "Copy({in: 1,);",
        "dir/w.js:1:13: syntax error: invalid property name\n\
         \x20   1 | Copy({in: 1,);\n\
         \x20     |             ^",
    ),
    (
        "var a = Data.get('Trian');",
        "dir/w.js:1:13: no file `Trian` or `Trian.*` among the 82 files of the data directory: Test.csv, Train.csv, Unlab/0.csv, Unlab/1.csv, Unlab/2.csv, ...\n\
         \x20   1 | var a = Data.get('Trian');\n\
         \x20     |             ^\n\
         \x20 hint: did you mean `Train`?",
    ),
    (
        "Data.get('Unlab', 79)",
        "dir/w.js:1:5: `Unlab` needs 79 files, and `Unlab/*` is 80 files: Unlab/0.csv, Unlab/1.csv, Unlab/2.csv, Unlab/3.csv, Unlab/4.csv, ...\n\
         \x20   1 | Data.get('Unlab', 79)\n\
         \x20     |     ^",
    ),
    (
        "Data.get('Nope', 3)",
        "dir/w.js:1:5: `Nope` needs 3 files `Nope/*`, `Nope.*` or `Nope_*`, and none is among the 82 files of the data directory: Test.csv, Train.csv, Unlab/0.csv, Unlab/1.csv, Unlab/2.csv, ...\n\
         \x20   1 | Data.get('Nope', 3)\n\
         \x20     |     ^",
    ),
    (
        "Data.get(/nope/)",
        "dir/w.js:1:5: /nope/ matches none of the 82 files of the data directory: Test.csv, Train.csv, Unlab/0.csv, Unlab/1.csv, Unlab/2.csv, ...\n\
         \x20   1 | Data.get(/nope/)\n\
         \x20     |     ^\n\
         \x20 hint: it is matched with paths relative to the data directory",
    ),
    (
        "Data.get(/Tr/, 2)",
        "dir/w.js:1:5: /Tr/ needs 2 files and matches 1\n\
         \x20   1 | Data.get(/Tr/, 2)\n\
         \x20     |     ^",
    ),
    (
        "Data.get()",
        "dir/w.js:1:5: Data.get needs the name of a data element, not undefined\n\
         \x20   1 | Data.get()\n\
         \x20     |     ^\n\
         \x20 hint: Data.get(\"Train\")",
    ),
    (
        "Data.get(5)",
        "dir/w.js:1:5: Data.get needs the name of a data element, not 5\n\
         \x20   1 | Data.get(5)\n\
         \x20     |     ^\n\
         \x20 hint: Data.get(\"Train\")",
    ),
    (
        "Data.get('Train', undefined)",
        "dir/w.js:1:19: the length of `Train` is a whole number from 1, not undefined\n\
         \x20   1 | Data.get('Train', undefined)\n\
         \x20     |                   ^",
    ),
    (
        "Data.get('Unlab', 80); Data.get('Unlab', 40)",
        "dir/w.js:1:28: `Unlab` was taken with another length before\n\
         \x20   1 | Data.get('Unlab', 80); Data.get('Unlab', 40)\n\
         \x20     |                            ^",
    ),
    (
        "Data.define('A', 0)",
        "dir/w.js:1:5: the length of `A` is a whole number from 1, not 0\n\
         \x20   1 | Data.define('A', 0)\n\
         \x20     |     ^",
    ),
    (
        "Data.define('A', 2.5)",
        "dir/w.js:1:5: the length of `A` is a whole number from 1, not 2.5\n\
         \x20   1 | Data.define('A', 2.5)\n\
         \x20     |     ^",
    ),
    (
        "Data.define('A', '3')",
        "dir/w.js:1:5: the length of `A` is a whole number from 1, not the text \"3\"\n\
         \x20   1 | Data.define('A', '3')\n\
         \x20     |     ^",
    ),
    (
        "Data.define('A', [])",
        "dir/w.js:1:5: the shape of `A` has no dimension\n\
         \x20   1 | Data.define('A', [])\n\
         \x20     |     ^\n\
         \x20 hint: Data.define(\"A\", [3, 4])",
    ),
    (
        "Data.define('A', [2, -1])",
        "dir/w.js:1:5: the length of `A` is a whole number from 1, not -1\n\
         \x20   1 | Data.define('A', [2, -1])\n\
         \x20     |     ^",
    ),
    (
        "Data.define('')",
        "dir/w.js:1:5: Data.define needs the name of a data element, not the text \"\"\n\
         \x20   1 | Data.define('')\n\
         \x20     |     ^\n\
         \x20 hint: Data.define(\"Train\")",
    ),
    (
        "Data.define('a/b')",
        "dir/w.js:1:5: a file is named after `a/b`, so it holds no `/`\n\
         \x20   1 | Data.define('a/b')\n\
         \x20     |     ^",
    ),
    (
        "Data.define('A', [1, 1, 1, 1, 1, 1, 1, 1, 1])",
        "dir/w.js:1:5: `A` has more than 8 dimensions\n\
         \x20   1 | Data.define('A', [1, 1, 1, 1, 1, 1, 1, 1, 1])\n\
         \x20     |     ^",
    ),
    (
        "Data.define('A');\n\
         Data.define('A', 3);",
        "dir/w.js:2:6: `A` was defined before\n\
         \x20   2 | Data.define('A', 3);\n\
         \x20     |      ^\n\
         \x20 hint: a data element has one meaning",
    ),
    (
        "Data.get('Train');\n\
         Data.define('Train');",
        "dir/w.js:2:6: `Train` was taken from the data directory before\n\
         \x20   2 | Data.define('Train');\n\
         \x20     |      ^\n\
         \x20 hint: a data element has one meaning",
    ),
    (
        "Data.define('A');\n\
         Data.get('A');",
        "dir/w.js:2:6: `A` is defined by this script, not an input\n\
         \x20   2 | Data.get('A');\n\
         \x20     |      ^\n\
         \x20 hint: pass on what Data.define returned",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: a[0], out: a[3]});",
        "dir/w.js:2:22: index 3 of `A` is out of bounds: it has indices 0 to 2\n\
         \x20   2 | Copy({in: a[0], out: a[3]});\n\
         \x20     |                      ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: a[0], out: a[-1]});",
        "dir/w.js:2:22: index -1 of `A` is out of bounds: it has indices 0 to 2\n\
         \x20   2 | Copy({in: a[0], out: a[-1]});\n\
         \x20     |                      ^",
    ),
    (
        "var a = Data.define('A', 1);\n\
         Copy({in: a[0], out: a[0.5]});",
        "dir/w.js:2:22: index 0.5 of `A` is out of bounds: it has only index 0\n\
         \x20   2 | Copy({in: a[0], out: a[0.5]});\n\
         \x20     |                      ^",
    ),
    (
        "var a = Data.define('A', [2, 3]);\n\
         \x20 Copy({in: a[0][0], out: a[1][3]});",
        "dir/w.js:2:27: index 3 of `A[1]` is out of bounds: it has indices 0 to 2\n\
         \x20   2 |   Copy({in: a[0][0], out: a[1][3]});\n\
         \x20     |                           ^",
    ),
    (
        "var a = Data.define('A', [2, 3]);\n\
         \x20 Copy({in: a[0][0], out: a[2][0]});",
        "dir/w.js:2:27: index 2 of `A` is out of bounds: it has indices 0 to 1\n\
         \x20   2 |   Copy({in: a[0][0], out: a[2][0]});\n\
         \x20     |                           ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         for (var i = 0; i <= 3; i++)\n\
         \x20 a[i];",
        "dir/w.js:3:5: index 3 of `A` is out of bounds: it has indices 0 to 2\n\
         \x20   3 |   a[i];\n\
         \x20     |     ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         a[0] = a[1];",
        "dir/w.js:2:8: `A` is an array of data: its members cannot be changed\n\
         \x20   2 | a[0] = a[1];\n\
         \x20     |        ^\n\
         \x20 hint: copy it first: A.slice()",
    ),
    (
        "var a = Data.define('A', 3);\n\
         a.push(a[1]);",
        "dir/w.js:2:8: `A` is an array of data: its members cannot be changed\n\
         \x20   2 | a.push(a[1]);\n\
         \x20     |        ^\n\
         \x20 hint: copy it first: A.slice()",
    ),
    (
        "var a = Data.define('A', 3);\n\
         \n\
         \x20 Copy({in: a[0], ot: a[1]});",
        "dir/w.js:3:3: tool `Copy` has no parameter `ot`\n\
         \x20   3 |   Copy({in: a[0], ot: a[1]});\n\
         \x20     |   ^\n\
         \x20 hint: known: in, mask, out",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({\n\
         \x20 in: a[0]\n\
         });",
        "dir/w.js:2:1: parameter `out` of `Copy` is missing\n\
         \x20   2 | Copy({\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: a[0], in: a[1], out: a[2]});",
        "dir/w.js:2:17: parameter `in` of `Copy` is given twice\n\
         \x20   2 | Copy({in: a[0], in: a[1], out: a[2]});\n\
         \x20     |                 ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: a, out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` takes one data element, and the call gives an array of 3 of `A`\n\
         \x20   2 | Copy({in: a, out: a[1]});\n\
         \x20     | ^\n\
         \x20 hint: pass a member, or give `in` an `array` in the tool file",
    ),
    (
        "var a = Data.define('A', [2, 2]);\n\
         Copy({in: a[0], out: a[1][1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` takes one data element, and the call gives an array of 2 of `A`\n\
         \x20   2 | Copy({in: a[0], out: a[1][1]});\n\
         \x20     | ^\n\
         \x20 hint: pass a member, or give `in` an `array` in the tool file",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: [a[0]], out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` takes one data element, and the call gives an array of 1\n\
         \x20   2 | Copy({in: [a[0]], out: a[1]});\n\
         \x20     | ^\n\
         \x20 hint: pass a member, or give `in` an `array` in the tool file",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: a.lenght, out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` is undefined\n\
         \x20   2 | Copy({in: a.lenght, out: a[1]});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: 'Train', out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` takes data, and the call gives \"Train\"\n\
         \x20   2 | Copy({in: 'Train', out: a[1]});\n\
         \x20     | ^\n\
         \x20 hint: pass Data.get(\"Train\") or what Data.define returned",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: 7, out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` takes data, and the call gives 7\n\
         \x20   2 | Copy({in: 7, out: a[1]});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: null, out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` is null\n\
         \x20   2 | Copy({in: null, out: a[1]});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Copy({in: {}, out: a[1]});",
        "dir/w.js:2:1: parameter `in` of `Copy` is a value of type object\n\
         \x20   2 | Copy({in: {}, out: a[1]});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Any({in: [a[0], undefined], out: a});",
        "dir/w.js:2:1: item 1 of parameter `in` of `Any` is undefined, not a data element\n\
         \x20   2 | Any({in: [a[0], undefined], out: a});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         Any({in: [], out: a});",
        "dir/w.js:2:1: parameter `in` of `Any` takes data, and the call gives an empty array\n\
         \x20   2 | Any({in: [], out: a});\n\
         \x20     | ^",
    ),
    (
        "var a = []; a[0] = a;\n\
         Any({in: a, out: a});",
        "dir/w.js:2:1: an array in parameter `in` of `Any` is nested more than 16 times\n\
         \x20   2 | Any({in: a, out: a});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         C45({dataset: a[0], model: a[1], depth: 1.5});",
        "dir/w.js:2:1: parameter `depth` of `C45` is an integer, and the call gives 1.5\n\
         \x20   2 | C45({dataset: a[0], model: a[1], depth: 1.5});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         C45({dataset: a[0], model: a[1], depth: '8'});",
        "dir/w.js:2:1: parameter `depth` of `C45` is an integer, and the call gives \"8\"\n\
         \x20   2 | C45({dataset: a[0], model: a[1], depth: '8'});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         C45({dataset: a[0], model: a[1], depth: a[2]});",
        "dir/w.js:2:1: parameter `depth` of `C45` is an integer, and the call gives the data element `A[2]`\n\
         \x20   2 | C45({dataset: a[0], model: a[1], depth: a[2]});\n\
         \x20     | ^",
    ),
    (
        "var a = Data.define('A', 3);\n\
         C45({dataset: a[0], model: a[1], verbose: 1});",
        "dir/w.js:2:1: parameter `verbose` of `C45` is a boolean, and the call gives 1\n\
         \x20   2 | C45({dataset: a[0], model: a[1], verbose: 1});\n\
         \x20     | ^",
    ),
    (
        "C45(1)",
        "dir/w.js:1:1: `C45` is called with one object of named parameters, not 1\n\
         \x20   1 | C45(1)\n\
         \x20     | ^\n\
         \x20 hint: C45({parameter: data})",
    ),
    (
        "C45()",
        "dir/w.js:1:1: `C45` is called with one object of named parameters\n\
         \x20   1 | C45()\n\
         \x20     | ^\n\
         \x20 hint: C45({parameter: data})",
    ),
    (
        "C45({}, {})",
        "dir/w.js:1:1: `C45` is called with one object of named parameters\n\
         \x20   1 | C45({}, {})\n\
         \x20     | ^\n\
         \x20 hint: C45({parameter: data})",
    ),
    (
        "C45([])",
        "dir/w.js:1:1: `C45` is called with one object of named parameters, not a value of type object\n\
         \x20   1 | C45([])\n\
         \x20     | ^\n\
         \x20 hint: C45({parameter: data})",
    ),
    (
        "C45(Data.get('Train'))",
        "dir/w.js:1:1: `C45` is called with one object of named parameters, not the data element `Train`\n\
         \x20   1 | C45(Data.get('Train'))\n\
         \x20     | ^\n\
         \x20 hint: C45({parameter: data})",
    ),
    (
        "function f(x) {\n\
         \x20 Copy(x);\n\
         }\n\
         f({in: undefined});",
        "dir/w.js:2:3: parameter `in` of `Copy` is undefined\n\
         \x20   2 |   Copy(x);\n\
         \x20     |   ^",
    ),
    (
        "throw new Error('no good');",
        "dir/w.js:1:11: the script threw: no good\n\
         \x20   1 | throw new Error('no good');\n\
         \x20     |           ^",
    ),
    (
        "function f() {\n\
         \x20 throw new RangeError('too far');\n\
         }\n\
         f();",
        "dir/w.js:2:13: RangeError: too far\n\
         \x20   2 |   throw new RangeError('too far');\n\
         \x20     |             ^",
    ),
    (
        "class Mine extends Error {}\n\
         throw new Mine('mine');",
        "dir/w.js:1:1: the script threw: mine\n\
         \x20   1 | class Mine extends Error {}\n\
         \x20     | ^",
    ),
    (
        "throw 'a text';",
        "dir/w.js: the script threw a text",
    ),
    (
        "null.x",
        "dir/w.js:1:1: TypeError: cannot read property 'x' of null\n\
         \x20   1 | null.x\n\
         \x20     | ^",
    ),
    (
        "undefined.x()",
        "dir/w.js:1:1: TypeError: cannot read property 'x' of undefined\n\
         \x20   1 | undefined.x()\n\
         \x20     | ^",
    ),
    (
        "const c = 1; c = 2;",
        "dir/w.js:1:14: TypeError: 'c' is read-only\n\
         \x20   1 | const c = 1; c = 2;\n\
         \x20     |              ^",
    ),
    (
        "new Date()",
        "dir/w.js:1:5: a script has no `Date`: it gives the same workflow each time\n\
         \x20   1 | new Date()\n\
         \x20     |     ^",
    ),
    (
        "async function f() {\n\
         \x20 await 1;\n\
         \x20 Nope();\n\
         }\n\
         f()",
        "dir/w.js:3:3: unknown tool `Nope`\n\
         \x20   3 |   Nope();\n\
         \x20     |   ^",
    ),
    (
        "Data.get(\"Unlab\"\n\
         ,\n\
         \n\
         \x20 79)",
        "dir/w.js:1:5: `Unlab` needs 79 files, and `Unlab/*` is 80 files: Unlab/0.csv, Unlab/1.csv, Unlab/2.csv, Unlab/3.csv, Unlab/4.csv, ...\n\
         \x20   1 | Data.get(\"Unlab\"\n\
         \x20     |     ^",
    ),
    (
        "eval('Data.get(1)')",
        "dir/w.js:1:1: Data.get needs the name of a data element, not 1\n\
         \x20   1 | eval('Data.get(1)')\n\
         \x20     | ^\n\
         \x20 hint: Data.get(\"Train\")",
    ),
];

#[test]
fn messages_about_wrong_scripts_say_what_where_and_what_to_do() {
    for (source, expected) in CASES {
        let problem = run(source).map(|workflow| super::calls(&workflow)).expect_err(source);
        assert_eq!(problem.to_string(), *expected, "{source}");
    }
}
