//! Scripts that ask for too much end, and say why.

use super::{inputs, run_with};
use js4cloud::{Inputs, Limits};
use std::time::Duration;

fn told(source: &str, limits: Limits) -> String {
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
    ] {
        let message = told(source, few());
        assert!(message.contains("the script takes more than 1000000 steps"), "{source}: {message}");
        assert!(message.ends_with("hint: does a loop never end?"), "{source}: {message}");
    }
    let message = told("var i;\nfor (;;) Math.abs(i);", few());
    assert!(message.starts_with("dir/w.js:2:"), "{message}");
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
        let message = told(source, limits);
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
        let message = told(source, Limits { steps: 100_000_000, memory_bytes: 256 << 20, ..few() });
        assert!(message.contains("nest too deep") || message.contains("too deep"), "{source}: {message}");
    }
}

#[test]
fn time_is_the_last_resort() {
    let limits = Limits { steps: u64::MAX, time: Duration::from_millis(200), ..few() };
    assert_eq!(told("for (;;);", limits), "dir/w.js: the script takes longer than 0.2 s");
}

#[test]
fn tasks_and_members_are_bounded() {
    let message = told("for (;;) Copy({in: Data.get('Train'), out: Data.define('A' + Math.random())})", few());
    assert!(message.starts_with("dir/w.js:1:10: more than 100 tasks"), "{message}");
    for source in ["Data.define('A', 1001)", "Data.define('A', [40, 40])", "Data.define('A', [1e9, 1e9, 1e9])"] {
        let message = told(source, few());
        assert!(message.contains("`A` has too many members: a workflow has at most 1000"), "{message}");
    }
    let many = "var A = Data.define('A', 100), B = A.slice().reverse(), i = 0;\
                var C = Data.define('C', 100); for (;;) Any({in: B, out: C[i++]})";
    assert!(told(many, few()).contains("calls pass too many members one by one"));
}

#[test]
fn a_script_reaches_nothing_outside() {
    for name in
        ["require", "process", "std", "os", "fetch", "setTimeout", "Deno", "XMLHttpRequest", "WeakRef", "Worker"]
    {
        let message = told(&format!("{name}.x"), few());
        assert!(message.contains(&format!("unknown name `{name}`")), "{message}");
    }
    for source in ["new Date()", "Date.now()", "performance.now()"] {
        assert!(told(source, few()).contains("it gives the same workflow each time"), "{source}");
    }
    assert!(run_with("import('fs').then(print, () => {})", inputs()).is_ok());
    assert!(told("import fs from 'fs'", few()).contains("syntax error"));
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
        "var e = new Error('x'); e.told = {line: 1e9, column: 'x', hint: {}}; throw e",
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
        assert!(told(source, few()).contains("syntax error"), "{source:?}");
    }
    assert!(told("var a = '\0';", few()).starts_with("dir/w.js:1:10: a zero byte: this is no text of a script"));
}
