//! `--set`: replaces the values of top-level variables.

use super::{inputs, run_with};
use flow::ConfigValue;
use js4cloud::Inputs;

/// The lines that `source` prints with `overrides`, or the problem.
fn printed(source: &str, overrides: &[(&str, ConfigValue)]) -> Result<Vec<String>, String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let log: Box<dyn Fn(&str) + Send> = Box::new(move |line| sender.send(line.to_owned()).expect("is received"));
    let overrides = overrides.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let outcome = run_with(source, Inputs { overrides, log: Some(log), ..inputs() });
    outcome.map(|_| receiver.iter().collect()).map_err(|problem| problem.to_string())
}

fn five() -> ConfigValue {
    ConfigValue::Integer(5)
}

#[test]
fn the_first_value_is_replaced_and_only_that() {
    for (source, expected) in [
        ("var n = 20; print(n); n = 3; print(n); n += 1; print(n)", vec!["5", "3", "4"]),
        ("var n; print(n); n = 20; print(n); n = 7; print(n)", vec!["5", "5", "7"]),
        ("print(n); var m = 1, n = 2 * m; print(n, m)", vec!["5", "5 1"]),
        ("for (var i = 0, n = 2; i < n; i++); print(n, i)", vec!["5 5"]),
        ("if (true) { var n = 1; } print(n)", vec!["5"]),
        ("\"use strict\"; var n = 1; print(n, typeof n); n = 2; print(n)", vec!["5 number", "2"]),
        ("function f() { var n = 1; return n; } var n = 2; print(f(), n)", vec!["1 5"]),
        ("var n = 1; print(globalThis.n, Object.keys(globalThis).includes('n'))", vec!["5 true"]),
    ] {
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(printed(source, &[("n", five())]), Ok(expected), "{source}");
    }
}

#[test]
fn numbers_texts_and_truth_values_can_be_set() {
    let overrides = [
        ("a", ConfigValue::Number(0.5)),
        ("b", ConfigValue::String("x\"y".to_owned())),
        ("c", ConfigValue::Boolean(false)),
        ("d", ConfigValue::Integer(-3)),
    ];
    let source = "var a = 1, b = '', c = true, d; print(a, b, c, d, typeof c)";
    assert_eq!(printed(source, &overrides), Ok(vec!["0.5 x\"y false -3 boolean".to_owned()]));
}

#[test]
fn a_name_that_is_no_top_level_var_is_refused() {
    for (source, name, expected) in [
        (
            "var count = 1; print(count)",
            "cuont",
            "dir/w.js: the script declares no top-level `var cuont` that could be set\n  hint: did you mean `count`?",
        ),
        (
            "let n = 1;",
            "n",
            "dir/w.js: `n` is declared with `let`, `const` or `class`, and only a `var` can be set\n  hint: write `var n = ...` in the script",
        ),
        (
            "const n = 1;",
            "n",
            "dir/w.js: `n` is declared with `let`, `const` or `class`, and only a `var` can be set\n  hint: write `var n = ...` in the script",
        ),
        ("function f() { var n = 1; }", "n", "dir/w.js: the script declares no top-level `var n` that could be set"),
        ("n = 1", "n", "dir/w.js: the script declares no top-level `var n` that could be set"),
        ("function n() {}", "n", "dir/w.js: the script declares no top-level `var n` that could be set"),
        (
            "var m = 1;",
            "a b",
            "dir/w.js: the script declares no top-level `var a b` that could be set\n  hint: known: m",
        ),
    ] {
        assert_eq!(printed(source, &[(name, five())]), Err(expected.to_owned()), "{source}");
    }
}

#[test]
fn a_syntax_error_is_reported_as_such() {
    let expected =
        "dir/w.js:2:9: syntax error: unexpected token in expression: ';'\n    2 | var b = ;\n      |         ^";
    assert_eq!(printed("var n = 1;\nvar b = ;", &[("n", five())]), Err(expected.to_owned()));
}
