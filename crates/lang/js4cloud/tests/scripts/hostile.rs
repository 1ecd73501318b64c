//! Scripts that tamper with JavaScript's own objects, or call back while their values are read, do
//! not break the host.

use super::{calls, inputs, run, run_with};
use js4cloud::Inputs;
use std::sync::{Arc, Mutex};

/// An ordinary workflow, which runs after the tampering.
const USUAL: &str = r#"
    var all = Data.get("Unlab", 80), some = Data.get(/Unlab\/1\d\.csv/), out = Data.define("O", [2, 2]);
    Filter({dataset: all[3], fDataset: out[0][0]});
    Any({in: [all[1], [all[2]]], out: out[1]});
    Any({in: some, out: [out[0][1]]});
"#;

/// The tasks of `USUAL` without tampering.
const EXPECTED: [&str; 3] = [
    "Filter(dataset=Unlab[3],fDataset=O[0][0])",
    "Any(in=[Unlab[1] Unlab[2]],out=[O[1][0] O[1][1]])",
    r"Any(in=[/Unlab\/1\d\.csv/[0] /Unlab\/1\d\.csv/[1] /Unlab\/1\d\.csv/[2] /Unlab\/1\d\.csv/[3] /Unlab\/1\d\.csv/[4] /Unlab\/1\d\.csv/[5] /Unlab\/1\d\.csv/[6] /Unlab\/1\d\.csv/[7] /Unlab\/1\d\.csv/[8] /Unlab\/1\d\.csv/[9]],out=[O[0][1]])",
];

#[test]
fn replaced_prototypes_do_not_reach_the_host() {
    for tampering in [
        "Array.prototype.push = function () { throw 1; };",
        "Array.prototype.push = () => Data.define('X' + Math.random());",
        "Object.defineProperty(Array.prototype, 'push', { get() { throw 1; } });",
        "for (const key of Object.getOwnPropertyNames(Array.prototype)) { try { Array.prototype[key] = null; } catch (e) {} }",
        "Array.prototype[Symbol.iterator] = null; Object.getPrototypeOf([][Symbol.iterator]?.() ?? {}).next = null;",
        "RegExp.prototype.exec = RegExp.prototype.test = () => { throw 1; }; RegExp.prototype[Symbol.replace] = null;",
        "String.prototype.slice = String.prototype.replace = () => { throw 1; }; Function.prototype.call = Function.prototype.bind = null;",
        "Object.prototype.get = 3; Object.prototype.hint = {}; Object.prototype.value = 1;",
        "Object.keys = Object.freeze = Object.defineProperty = Reflect.ownKeys = () => { throw 1; };",
        "globalThis.Array = globalThis.Object = globalThis.Error = globalThis.String = globalThis.RegExp = globalThis.Proxy = null;",
        "Error.prepareStackTrace = () => { throw 1; };",
        "Error.prepareStackTrace = () => ({ toString() { Data.define('Y' + Math.random()); return {}; } });",
    ] {
        match run(&format!("{tampering}{USUAL}")) {
            Ok(workflow) => assert_eq!(calls(&workflow), EXPECTED, "{tampering}"),
            Err(problem) => panic!("{tampering}: {problem}"),
        }
    }
}

#[test]
fn what_a_script_passes_may_call_back_while_it_is_read() {
    for script in [
        "const p = new Proxy([], { get(_, k) { Data.define('D' + String(k)); return k === 'length' ? 1 : undefined; } }); Any({in: p, out: p});",
        "Any({get in() { Data.define('D'); return Data.get('Unlab', 80); }, out: Data.define('O', 3)});",
        "Filter(new Proxy({}, { ownKeys() { Filter(); } }));",
        "Data.define('A', { __proto__: Array.prototype, length: 1 });",
        "Data.define('A', new Proxy([1, 2], { get() { return Data.define('B'); } }));",
        "Data.get({ toString() { return Data.define('B'); } });",
        "throw { get message() { Data.define('B'); return 1; }, toString() { return Data.define('C'); } };",
        "const e = new Error('x'); Object.defineProperty(e, 'message', { get() { Data.define('B'); throw 1; } }); throw e;",
        "const e = new Error('x'); Object.defineProperty(e, 'hostDetails', { get() { Data.define('B'); return { get hint() { throw 2; } }; } }); throw e;",
        "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { Promise.reject(e); return '<script>:9:9'; } }); Promise.reject(e); throw e;",
        "const e = new Error('x'); Object.defineProperty(e, 'name', { get() { Promise.reject(new Error('y')); return 'ReferenceError'; } }); Promise.reject(e);",
        "throw new ReferenceError(' is not defined');",
        "throw new Proxy(new Error('x'), { get() { throw 1; } });",
        "print({ toString() { Data.define('B'); return 'x'; } }); print(Symbol('s')); print(Object.create(null));",
        "print('\\ud800'); Data.define('\\ud800'); Data.get(/\\ud800/);",
        "Any({in: [[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]], out: 1});",
        "const a = []; a[0] = a; Any({in: a, out: a});",
        "Filter({['__proto__']: 1, constructor: 2, dataset: Data});",
        "Filter.call(null); Filter.apply({}, [1, 2]); new Filter({});",
        "Object.getPrototypeOf(Data.get('Train')).toString.call({});",
        "Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Data.get('Train')), 'name').get.call({});",
        "for (let i = 0; i < 9; i++) Object.defineProperty(Array.prototype, i, { set() { Data.define('B'); }, get() { return 7; } }); Filter({dataset: Data.get('Unlab', 80)[1]});",
        "Data.pairs(/(.*)/); ",
        "Data.pairs(/(.*)(x)?/);",
        "Data.pairs(/(?<a>U)(n)/dgiy);",
        "Data.get('Unlab', 80)[Symbol.iterator]().next.call({});",
        "globalThis.x = Data.get('Unlab', 80); x.length = 3;",
    ] {
        // The script may be refused or not, but the process must survive.
        if let Err(problem) = run(script) {
            assert!(!problem.to_string().contains("broke its engine"), "{script}: {problem}");
        }
    }
}

#[test]
fn what_a_script_prints_is_escaped_and_bounded() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let log = move |line: &str| kept.lock().expect("one thread").push(line.to_owned());
    let script = r#"
        print("\x1b[2Jgone\r", "\u202Etxt.exe");
        print("one\ntwo");
        print("x".repeat(3000));
        for (let i = 0; i < 20000; i++) print(i);
    "#;
    run_with(script, Inputs { log: Some(Box::new(log)), ..inputs() }).expect("it is a script");
    let lines = lines.lock().expect("one thread");
    assert_eq!(lines[0], "\\u{1b}[2Jgone\\r \\u{202e}txt.exe");
    assert_eq!(lines[1..3], ["one", "two"]);
    assert!(lines[3].ends_with("x... (2000 more characters)"), "{}", lines[3]);
    assert_eq!((lines.len(), lines[4].as_str()), (10_001, "0"));
    assert_eq!(lines[10_000], "... 10004 more lines that the script printed are left out");
}
