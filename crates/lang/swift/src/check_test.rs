//! Problems and warnings that scripts are told, by line and column.

use super::*;
use crate::loader::{ScriptFolders, load};
use crate::preprocessor::ScriptFiles;

struct OneFile;

impl ScriptFiles for OneFile {
    fn read(&self, path: &str) -> Option<Result<String, String>> {
        (path == "lib/more.swift").then(|| Ok("int MORE = 5; (int o) add(int i) { o = i + MORE; }".to_owned()))
    }
}

/// The first lines of the problems and the warnings of a script.
fn told(text: &str) -> (Vec<String>, Vec<String>) {
    let mut sources = Sources::default();
    let folders = ScriptFolders { files: &OneFile, search: vec!["lib".to_owned()], defines: Vec::new() };
    let first = |problems: Vec<Problem>| -> Vec<String> {
        problems.iter().map(|problem| problem.to_string().lines().next().unwrap_or_default().to_owned()).collect()
    };
    match load("s.swift", text, &folders, &mut sources).and_then(|modules| check(&modules, &sources)) {
        Ok(CheckedScript { warnings, .. }) => (Vec::new(), first(warnings)),
        Err(problems) => (first(problems), Vec::new()),
    }
}

fn problems(text: &str) -> Vec<String> {
    told(text).0
}

#[test]
fn figure_3_of_paper_002_is_told_what_is_wrong_with_it() {
    let text = r#"
import files;

app (file f_output) dock (file f_in1, file f_in2)
{
  "./docking" f_in1 f_in2 f_output;
}

app (file f_output) match (file f_input)
{
  "java match" f_input f_output;
}

(file f_results) merge(file f_input[])
{
  foreach f in f_input {
    // Merge algorithm
  }
}

main
{
  file fin[];
  file f_match[];
  foreach fin1,i in fin{
    foreach fin2,j in fin{
      file f_tmp = dock(fin1,fin2);
      index = i+j + j;
      f_match[index] = match(f_tmp);
    }
  }
  file f_out<"results.out"> = merge(f_match);
}
"#;
    let (problems, _) = told(text);
    assert_eq!(problems, ["s.swift:14:7: the output `f_results` is never assigned"]);
    let mended = text.replace("// Merge algorithm\n  }", "// Merge algorithm\n  }\n  f_results = input(\"x\");");
    let (problems, warnings) = told(&mended);
    assert_eq!(problems, [] as [String; 0]);
    assert_eq!(
        warnings,
        [
            "s.swift:11:3: the program `java match` has a blank in its name; arguments are words of their own",
            "s.swift:24:8: nobody fills the array `fin`, so it is empty",
        ]
    );
}

#[test]
fn unknown_names_are_told() {
    assert_eq!(problems("trace(y);"), ["s.swift:1:7: there is no variable `y`"]);
    assert_eq!(problems("int x = f(1);"), ["s.swift:1:9: there is no function `f`"]);
    assert_eq!(problems("integer x = 1;"), ["s.swift:1:1: there is no type `integer`"]);
    assert_eq!(problems("import nothing;"), ["s.swift:1:1: there is no module `nothing`"]);
    assert_eq!(problems("trace(add(1));"), ["s.swift:1:7: there is no function `add`"]);
    assert_eq!(problems("import more; trace(add(MORE));"), [] as [&str; 0]);
}

#[test]
fn types_that_do_not_fit_are_told() {
    assert_eq!(problems("int x = \"a\";"), ["s.swift:1:9: `x` is of type int, and this is of type string"]);
    assert_eq!(problems("float x = 1; float y = x / 2;"), [] as [&str; 0]);
    assert_eq!(problems("int x = 1.5;"), ["s.swift:1:9: `x` is of type int, and this is of type float"]);
    assert_eq!(
        problems("string s = \"a\" - 1;"),
        ["s.swift:1:16: `-` does not take values of the types string and int"]
    );
    assert_eq!(problems("if (1) { }"), ["s.swift:1:5: a condition is of type boolean, and this is of type int"]);
    assert_eq!(
        problems("int A[] = [1, \"a\"];"),
        ["s.swift:1:15: a member of this array is of type int, and this is of type string"]
    );
    assert_eq!(
        problems("int A[]; A[\"k\"] = 1;"),
        ["s.swift:1:12: the index of this array is of type int, and this is of type string"]
    );
    assert_eq!(
        problems("int x = 1; trace(x[0]);"),
        ["s.swift:1:19: `[` is for a member of an array, and this is of type int"]
    );
    assert_eq!(problems("foreach i in 3 { }"), ["s.swift:1:14: `foreach` goes over an array, and this is of type int"]);
    assert_eq!(
        problems("type t file; t a = input(\"x\");"),
        ["s.swift:1:20: `a` is of type t, and this is of type file"]
    );
}

#[test]
fn arguments_that_do_not_fit_are_told() {
    let with = |call: &str| problems(&format!("(int o) f(int a, string b=\"x\") {{ o = a; }} trace({call});"));
    assert_eq!(with("f(1, b=\"y\")"), [] as [&str; 0]);
    assert_eq!(with("f()"), ["s.swift:1:49: `f` takes 2 arguments, and `a` is missing"]);
    assert_eq!(with("f(1, \"a\", 2)"), ["s.swift:1:59: `f` takes 2 arguments, and has 3"]);
    assert_eq!(with("f(\"a\")"), ["s.swift:1:51: the argument `a` of `f` is of type int, and this is of type string"]);
    assert_eq!(with("f(1, c=2)"), ["s.swift:1:56: `f` has no argument `c`"]);
    assert_eq!(
        problems("(int o) f(int i) { o = i; } (int o) f(string s) { o = 1; } trace(f(1), f(\"a\")); trace(f(true));"),
        ["s.swift:1:87: no function `f` takes arguments of the types (boolean)"]
    );
    assert_eq!(
        problems("(int a, int b) f() { a = 1; b = 2; } int x = f();"),
        ["s.swift:1:46: `f` has 2 outputs, and one is needed here"]
    );
}

#[test]
fn variables_are_assigned_once() {
    assert_eq!(problems("int x = 1;\nx = 2;"), ["s.swift:2:1: `x` is assigned twice: first in line 1"]);
    assert_eq!(problems("int x; if (true) { x = 1; } else { x = 2; } trace(x);"), [] as [&str; 0]);
    assert_eq!(
        problems("int x; if (true) { x = 1; }\nx = 2; trace(x);"),
        ["s.swift:2:1: `x` is assigned twice: first in line 1"]
    );
    assert_eq!(
        problems("int x; foreach i in [1:2] { x = i; }"),
        ["s.swift:1:29: `x` would be assigned in each iteration of the loop"]
    );
    assert_eq!(
        problems("int A[] = [1];\nA[1] = 2;"),
        ["s.swift:2:1: `A` is assigned as a whole in line 1, so it gets no members"]
    );
    assert_eq!(
        problems("(int o) f(int i) { i = 1; o = 2; }"),
        ["s.swift:1:20: `i` has its value from outside, and cannot be assigned"]
    );
    assert_eq!(
        problems("int x; (int o) f() { x = 1; o = 2; } x = 1; trace(x);"),
        [
            "s.swift:1:22: `x` is a variable of the script, which a function cannot assign",
            "s.swift:1:22: `x` is assigned twice: first in line 1"
        ]
    );
}

#[test]
fn variables_that_never_get_a_value_are_told() {
    assert_eq!(problems("int x;\ntrace(x);"), ["s.swift:2:7: `x` is read here, but never assigned"]);
    assert_eq!(problems("(int o) f(int i) { trace(i); }"), ["s.swift:1:6: the output `o` is never assigned"]);
    let (problems, warnings) = told("int A[]; trace(size(A));");
    assert_eq!(
        (problems, warnings),
        (vec![], vec!["s.swift:1:5: nobody fills the array `A`, so it is empty".to_owned()])
    );
}

#[test]
fn names_are_not_hidden_by_inner_ones() {
    assert_eq!(
        problems("int x = 1;\nif (true) { int x = 2; }"),
        ["s.swift:2:17: there is a variable `x` already, from line 1"]
    );
    assert_eq!(problems("{ int x = 1; } { int x = 2; }"), [] as [&str; 0]);
    assert_eq!(
        problems("(int o) f() { o = 1; } (int o) f() { o = 2; }"),
        ["s.swift:1:32: there is a function `f` of these types in line 1"]
    );
}

#[test]
fn a_named_argument_is_given_to_one_parameter_also_if_two_have_its_name() {
    assert_eq!(
        problems("(int o) add(int a, int a, int b=2) { o = a + b; } trace(add(a=1));"),
        [
            "s.swift:1:57: `add` takes 3 arguments, and `a` is missing",
            "s.swift:1:24: there is a variable `a` already, from line 1"
        ]
    );
}

#[test]
fn what_is_not_supported_says_so() {
    assert_eq!(problems("blob b;"), ["s.swift:1:1: the type `blob` is not supported"]);
    assert_eq!(
        problems("(int o) f(int i) \"pkg\" \"1.0\" [ \"code\" ]; trace(f(1));"),
        ["s.swift:1:48: `f` is written in Tcl, which is not supported"]
    );
    assert_eq!(
        problems("app (void v) f() { \"f\" } @par=2 f();"),
        ["s.swift:1:27: `@par` runs a function on several processes of MPI, which is not supported"]
    );
}

/// The whole first problem of a script.
fn first_problem(text: &str) -> String {
    let mut sources = Sources::default();
    let folders = ScriptFolders { files: &OneFile, search: Vec::new(), defines: Vec::new() };
    let modules = load("s.swift", text, &folders, &mut sources).expect("it can be parsed");
    check(&modules, &sources).expect_err("it is wrong").remove(0).to_string()
}

#[test]
fn hints_of_another_compiler_change_nothing() {
    let text = "
        @pure (int o) twice(int i) { o = i * 2; }
        @pure @minmax (int o) most(int i) { o = i; }
        @deprecated shout(string s) { trace(s); }
        @dispatch=WORKER (int o) foreign(int i) \"pkg\" \"1.0\" [ \"code\" ];
        @suppress=unused_output @dispatch=WORKER app (file implicit) make(int i) { \"make\" i }
        int A[];
        @unroll=4 @sync foreach i in [1:twice(most(3))] { A[i] = i; }
        @splitdegree=8 @leafdegree=2 foreach a in A { shout(\"a\"); }
        @unroll=2 for (int i = 0; i < 3; i = i + 1) { @dispatch=WORKER make(i); }";
    assert_eq!(told(text), (Vec::new(), Vec::new()));
}

#[test]
fn annotations_that_mean_nothing_here_are_told() {
    let text = first_problem("@unrol=4 foreach i in [1:2] { trace(i); }");
    assert!(text.starts_with("s.swift:1:2: there is no annotation `@unrol` of loops"), "{text}");
    assert!(text.contains("unroll"), "{text}");
    let text = first_problem("@pur (int o) f() { o = 1; }");
    assert!(text.contains("there is no annotation `@pur` of functions") && text.contains("pure"), "{text}");
    let text = first_problem("app (void v) f() { \"f\" } @pri=2 f();");
    assert!(text.contains("there is no annotation `@pri` of calls") && text.contains("prio"), "{text}");
    let message = "`@par` runs a function on several processes of MPI, which is not supported";
    assert_eq!(problems("@par (int o) f(int i) \"pkg\" \"1.0\" \"f\";"), [format!("s.swift:1:2: {message}")]);
    assert_eq!(
        problems("@prio=1 foreach i in [1:2] { trace(i); }"),
        ["s.swift:1:2: `@prio` is for the call of an app function, not for loops"]
    );
}

#[test]
fn declarations_of_arguments_and_operators_of_macros_are_refused() {
    let message = "`arguments` and `flags` are not supported; use argv and argp";
    assert_eq!(problems("arguments(string name, int n = 1);"), [format!("s.swift:1:1: {message}")]);
    assert_eq!(problems("flags(boolean loud);"), [format!("s.swift:1:1: {message}")]);
    let message = "`#` and `##` in the body of a macro are not supported";
    assert_eq!(problems("#define TEXT(x) #x"), [format!("s.swift:1:17: {message}")]);
    assert_eq!(problems("#define BOTH(a, b) a ## b"), [format!("s.swift:1:22: {message}")]);
}

#[test]
fn modules_and_functions_that_are_not_here_say_why() {
    assert_eq!(
        problems("import python;"),
        [
            "s.swift:1:1: the module `python` is not supported: it runs Python within Swift/T; call a program from an app function instead"
        ]
    );
    assert_eq!(
        problems("string s = blob2string(1);"),
        ["s.swift:1:12: `blob2string` is not supported: the module `blob` is for bytes in memory; use files instead"]
    );
    assert_eq!(
        problems("file f = input_url(\"http://a\");"),
        ["s.swift:1:10: `input_url` is not supported: inputs are files; fetch it with an app function"]
    );
}

#[test]
fn a_function_of_the_library_is_not_defined_again() {
    let text = "import unix; app (file o) cp(file i) { \"cp\" \"-v\" i o }";
    assert_eq!(
        problems(text),
        ["s.swift:1:27: there is a function `cp` of these types in line 6 of (library)/unix.swift"]
    );
}

#[test]
fn a_function_of_a_module_that_is_not_imported_is_found_there() {
    let hint = |text: &str| first_problem(text).lines().last().unwrap_or_default().to_owned();
    assert!(hint("string s = system1(\"date\");").ends_with("it is in a module: import sys;"));
    assert!(hint("file f = touch();").ends_with("it is in a module: import unix;"));
    assert!(hint("trace(sum([1]));").ends_with("it is in a module: import stats;"));
}
