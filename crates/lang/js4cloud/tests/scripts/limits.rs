//! Scripts that exceed a limit end with a message that names it.

use super::{inputs, run_with};
use js4cloud::{Inputs, Limits};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::time::Duration;

fn problem_text(source: &str, limits: Limits) -> String {
    run_with(source, Inputs { limits, ..inputs() }).expect_err(source).to_string()
}

fn few() -> Limits {
    Limits { steps: 1_000_000, memory_bytes: 16 << 20, tasks: 100, members: 1000, ..Limits::default() }
}

#[test]
fn runaway_loops_end_at_the_step_limit() {
    for source in [
        "for (;;) {}",
        "\nwhile (true) { try { Nope(); } catch (error) {} }",
        "function f() { try { g(); } finally { f(); } } function g() { for (;;); } f();",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "async function f() { for (;;) await 1; } f()",
        "[1, 2].sort(() => { for (;;); })",
        "var f = () => { try { f(); } finally { f(); } }; f()",
    ] {
        let message = problem_text(source, few());
        assert!(message.contains("the script takes more than 1000000 steps"), "{source}: {message}");
        assert!(message.ends_with("hint: does a loop never end?"), "{source}: {message}");
    }
    // The last step is either the loop's own, which has no position, or that of the call. One more
    // step before the loop exchanges the two cases.
    let messages =
        ["var i;", "var i = Math.abs(1);"].map(|first| problem_text(&format!("{first}\nfor (;;) Math.abs(i);"), few()));
    assert!(messages.iter().any(|message| message.starts_with("dir/w.js:2:")), "{messages:?}");
}

#[test]
fn memory_bombs_end_at_the_memory_limit() {
    for source in [
        "var all = []; for (;;) all.push(new Array(100).fill(1));",
        "function f() { var all = []; for (;;) all.push([1]); } f()",
        "var text = 'x'; for (;;) text += text;",
        "'x'.repeat(1000000000)",
        "new Array(100000000).fill(1)",
        "new Uint8Array(1e9)",
        "JSON.stringify(new Array(10000000).fill('long enough to matter'))",
    ] {
        let limits = Limits { steps: 100_000_000, ..few() };
        let message = problem_text(source, limits);
        let is_memory = message.contains("memory") || message.contains("string too long") || message.contains("length");
        assert!(is_memory, "{source}: {message}");
    }
}

#[test]
fn endless_recursion_ends_at_the_stack_limit() {
    for source in [
        "function f() { f(); } f();",
        "var a = []; a[0] = a; var s = '[' + '['.repeat(100000); eval(s)",
        "var o = {}; for (var i = 0; i < 200000; i++) o = {o}; JSON.stringify(o)",
        "var f = () => new Proxy({}, {get: () => f().x}); f().x",
    ] {
        let message = problem_text(source, Limits { steps: 100_000_000, memory_bytes: 256 << 20, ..few() });
        assert!(message.contains("nest too deep") || message.contains("too deep"), "{source}: {message}");
    }
}

#[test]
fn time_is_the_last_resort() {
    let limits = Limits { steps: u64::MAX, time: Duration::from_millis(200), ..few() };
    assert_eq!(problem_text("for (;;);", limits), "dir/w.js: the script takes longer than 0.2 s");
}

#[test]
fn tasks_and_members_are_bounded() {
    let message = problem_text("for (;;) Copy({in: Data.get('Train'), out: Data.define('A' + Math.random())})", few());
    assert!(message.starts_with("dir/w.js:1:10: more than 100 tasks"), "{message}");
    for source in ["Data.define('A', 1001)", "Data.define('A', [40, 40])", "Data.define('A', [1e9, 1e9, 1e9])"] {
        let message = problem_text(source, few());
        assert!(message.contains("`A` has too many members: a workflow has at most 1000"), "{message}");
    }
    let many = "var A = Data.define('A', 100), B = A.slice().reverse(), i = 0;\
                var C = Data.define('C', 100); for (;;) Any({in: B, out: C[i++]})";
    assert!(problem_text(many, few()).contains("calls pass too many members one by one"));
}

#[test]
fn a_script_reaches_nothing_outside() {
    for name in
        ["require", "process", "std", "os", "fetch", "setTimeout", "Deno", "XMLHttpRequest", "WeakRef", "Worker"]
    {
        let message = problem_text(&format!("{name}.x"), few());
        assert!(message.contains(&format!("unknown name `{name}`")), "{message}");
    }
    for source in ["new Date()", "Date.now()", "performance.now()"] {
        assert!(problem_text(source, few()).contains("it gives the same workflow each time"), "{source}");
    }
    assert!(run_with("import('fs').then(print, () => {})", inputs()).is_ok());
    assert!(problem_text("import fs from 'fs'", few()).contains("syntax error"));
}

#[test]
fn a_script_that_spoils_javascript_spoils_itself_only() {
    for source in [
        "Array.prototype.push = null; Copy({in: Data.get('Train'), out: Data.define('A')})",
        "Error.prepareStackTrace = () => ({}); Copy({in: Data.get('Train'), out: Data.define('A')})",
        "Error.stackTraceLimit = 0; Copy({in: Data.get('Train'), out: Data.define('A')})",
        "Object.prototype.message = 'x'; Copy({in: Data.get('Train'), out: Data.define('A')})",
        "String = Object = Array = undefined; Copy({in: Data.get('Train'), out: Data.define('A')})",
        "globalThis.Copy = undefined; Copy()",
        "Data.get('Train').constructor.prototype.x = 1",
        "var T = Data.get('Train').constructor; Copy({in: new T(4000000000), out: new T(-1)})",
        "var T = Data.get('Train').constructor; Copy({in: new T({}), out: new T('x')})",
        "Object.setPrototypeOf(Data.define('A', 2), null)",
        "var e = new Error('x'); e.hostDetails = {line: 1e9, column: 'x', hint: {}}; throw e",
        "var e = new Error('x'); Object.defineProperty(e, 'stack', {get() { throw 1 }}); throw e",
        "var e = new Error('x'); e.stack = '<script>:4294967295:4294967295'; throw e",
        "throw {toString() { throw 1 }}",
        "throw Symbol('x')",
        "Any({in: new Proxy([], {get: () => [1e9, 1e9]}), out: Data.define('A')})",
        "Any({in: new Proxy([], {get: (t, k) => typeof k === 'symbol' ? [0, 1e9] : 1}), out: Data.define('A')})",
    ] {
        // Either outcome is right; a panic is not.
        let _ = run_with(source, Inputs { limits: few(), ..inputs() });
    }
}

#[test]
fn odd_texts_are_scripts_or_refused() {
    for source in
        ["", "\u{feff}var a = 1;", "#!/usr/bin/env tidemill\nvar a = 1;", "// only a comment", "var é = '\u{1f600}'"]
    {
        assert!(run_with(source, inputs()).is_ok(), "{source:?}");
    }
    for source in ["\u{1b}[31m", "var \u{202e}a = ;"] {
        assert!(problem_text(source, few()).contains("syntax error"), "{source:?}");
    }
    assert!(problem_text("var a = '\0';", few()).starts_with("dir/w.js:1:10: a zero byte: a script is text"));
}

#[test]
fn deep_structures_do_not_break_the_process() {
    for source in [
        "new RegExp('('.repeat(200000))",
        "/(?:(?:a*)*)*b/.test('a'.repeat(30))",
        "JSON.parse('['.repeat(200000))",
        "var p = {}; for (var i = 0; i < 200000; i++) p = new Proxy(p, {}); p.x; p in p; delete p.y",
        "var t = ''; for (var i = 0; i < 2000; i++) t = 'x' + t + 'y'; t === t + 'z'; t.length; t[5]; print(t)",
        "var a = []; for (var i = 0; i < 200000; i++) a = [a]; String(a)",
        "var a = []; for (var i = 0; i < 200000; i++) a = [a]; a.flat(Infinity)",
        "var a = []; for (var i = 0; i < 200000; i++) a = [a]; Any({in: a, out: a})",
        "var f = () => 0; for (var i = 0; i < 200000; i++) f = f.bind(null); f()",
        "var o = null; for (var i = 0; i < 200000; i++) o = Object.create(o); o.x; 'x' in o",
        "var o = {}; o.toString = () => String(o); `${o}`",
        "Data.define('x'.repeat(100) + Data.define(['a']))",
        "Data.define('A', new Array(100000).fill(1))",
        "Data.get('../'.repeat(100000))",
        "eval('+'.repeat(200000) + '1')",
        "eval('a=>'.repeat(100000) + '1')",
        "eval('{'.repeat(100000))",
        "eval('`${'.repeat(100000))",
        "eval('1' + '+1'.repeat(200000))",
        "eval('if(1)'.repeat(100000) + ';')",
        "function* g() { yield* g(); } [...g()]",
        "var e = new Error('a'.repeat(10000000)); throw e",
        "throw new AggregateError([1, 2], 'all')",
        "new Function('C45({})')()",
        "[5, 4, 3].sort((a, b) => { throw a })",
        "Copy({get in() { return Data.get('Train') }, out: Data.define('A')})",
        "Copy(new Proxy({in: Data.get('Train'), out: Data.define('A')}, {}))",
        "Copy(new Proxy({}, {ownKeys() { return ['in'] }, getOwnPropertyDescriptor() { throw 1 }}))",
    ] {
        let limits = Limits { steps: 20_000_000, memory_bytes: 128 << 20, ..few() };
        // The script may be evaluated or refused with a short message, but the process must
        // survive.
        let outcome = run_with(source, Inputs { limits, ..inputs() });
        let message = outcome.map_or_else(|problem| problem.to_string(), |_| String::new());
        assert!(message.len() < 4_000, "{} bytes in the message about {source}", message.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_makes_it_panic(words in vec(select(WORDS), 0..24)) {
        let _ = run_with(&words.concat(), Inputs { limits: few(), ..inputs() });
    }
}

const WORDS: &[&str] = &[
    "var a",
    "=",
    "Data.get(",
    "Data.define(",
    "'A'",
    "'Train'",
    "[2, 3]",
    ")",
    "(",
    "a",
    "a[0]",
    "a[9]",
    ";",
    "\n",
    ",",
    "Copy({in: ",
    "Any({in: a, out: a})",
    "out: ",
    "})",
    "{",
    "}",
    "for (;;)",
    "if (a)",
    "while (a.length--)",
    "return",
    "/A/",
    "`${a}`",
    "...",
    "async ",
    "await ",
    "throw ",
    "new ",
    "function f() {",
    "f()",
    "=>",
    "é",
    "//",
    "/*",
    "\"",
];
