//! Fuzzing: random scripts, random words, and damaged examples of the page for users. Each is
//! refused or runs, and nothing panics, overflows the stack or hangs.
//!
//! `FUZZ_SECONDS=600 cargo test -p swift --lib --release fuzz` (`make fuzz`) runs for that long,
//! from a seed of its own. A failure prints its seed, and `FUZZ_SEED=n` starts with that one.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use crate::docs_test::examples;
use crate::eval::fake_world::run_for;
use base::SplitMix64;
use std::env;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of scripts in a normal test run.
const SCRIPTS: u64 = 1_000;
/// Turns of the evaluator that a script gets: it may have no end.
const TURNS_MAX: usize = 12;
/// Digits in a row of a damaged example: a range of many billions would only fill the memory.
const DIGITS_MAX: usize = 4;
/// Time after which a script hangs.
const HANG: Duration = Duration::from_mins(1);

/// Statements: `~` stands for a new name, `$` for a number or a variable of one, `^` for an array
/// and `&` for a file.
const STATEMENTS: [&str; 44] = [
    "int ~ = $; ",
    "int ~[]; ^[$] = $; ",
    "^[$] = $; ",
    "^ += $; ",
    "b = $ + 1; ",
    "file ~ = g($); ",
    "file ~<\"x%i\" % $> = &; ",
    "file ~ = &; ",
    "if ($ == $) { b = 1; } else { b = $; } ",
    "foreach ~, ~ in ^ { A[$] = $; } ",
    "foreach ~ in [0:3] { trace($); B[$] = $; } ",
    "foreach ~ in ^ { trace(size(^)); } ",
    "for (int i = 0, int ~ = $; i < 3; i = i + 1) { trace($); B[i] = $; } ",
    "iterate n { trace($); } until (n > 1); ",
    "wait ($, ^) { trace(\"w\"); A[$] = 2; } ",
    "wait deep (^, &) { B[$] = 1; } ",
    "$ => trace($); ",
    "A[$] = $ => B[$] = $ => trace($); ",
    "trace($, $); ",
    "trace($ %/ $); ",
    "trace(sum(^)); ",
    "trace(^[$]); ",
    "A[$] = ^[$]; ",
    "string ~ = \"%i\" % $; ",
    "p ~; s.x = $; trace(s.x); ",
    "s.q[$] = $; trace(size(s.q)); ",
    "s.q += $; ",
    "s.r.y = $; trace(s.r.y); ",
    "s.r.z[$] = $; ",
    "p ~ = s; ",
    "trace(h($)); ",
    "b = h($); ",
    "float ~ = $ / 2; ",
    "switch ($) { case 1: trace(1); b = 1; default: trace($); } ",
    "{ int ~; } ",
    "int ~[] = [1, $, 3]; ",
    "file ~ = write(repr($)); ",
    "[~, ~] = w(&); ",
    "F[$] = &; F = w(&); ",
    "foreach ~ in F { u(~); } ",
    "sleep($) => trace($); ",
    "@location=locationOf(&) u(&); ",
    "@location=location($, SOFT, NODE) @prio=$ u(&); ",
    "C[$] += $; trace(size(C)); ",
];

/// A random script of statements that may or may not fit together.
fn random_script(random: &mut SplitMix64) -> String {
    let mut text = String::from(
        "import stats; import files; import sys; import location; app (file o) g(int i) { \"g\" i o }
        app (void o) u(file i) { \"u\" i } app (file o[]) w(file i) { \"w\" i o }
        (int o) h(int i) { if (i > 2) { o = i; } else { o = h(i + 1); } }
        type r { int y; int z[]; } type p { int x; int q[]; r r; }
        int a = 3; int b; int c; c = a - 1; int A[]; int B[]; bag<int> C[]; file F[]; file f = g(c); p s; ",
    );
    let mut below = |end: usize| usize::try_from(random.below(end as u64)).expect("small");
    let mut names = 0;
    for _ in 0..=below(6) {
        for letter in STATEMENTS[below(STATEMENTS.len())].chars() {
            match letter {
                '~' => {
                    names += 1;
                    text.push('v');
                    text.push_str(&names.to_string());
                }
                '$' => text.push_str(["a", "b", "c", "0", "1", "2", "3", "v1"][below(8)]),
                '^' => text.push_str(["A", "B"][below(2)]),
                '&' => text.push('f'),
                letter => text.push(letter),
            }
        }
    }
    text
}

const WORDS: [&str; 24] = [
    "int ", "x", "(", ")", "{", "}", "[", "]", ";", "=", "=>", "if", "foreach ", " in ", "app ", "\"s\"", "@", "#if ",
    "\n", "%", "<", ">", "/*", "\\",
];

/// Words that mean nothing together.
fn random_words(random: &mut SplitMix64) -> String {
    let count = random.below(30);
    (0..count).map(|_| WORDS[usize::try_from(random.below(24)).expect("small")]).collect()
}

/// An example of the page with a few parts cut, repeated, or taken from another one.
fn damaged_example(examples: &[(usize, String)], random: &mut SplitMix64) -> String {
    let mut below = |end: usize| usize::try_from(random.below(end.max(1) as u64)).expect("small");
    let mut text = examples[below(examples.len())].1.clone();
    for _ in 0..=below(4) {
        let part = |text: &str, start: usize, length: usize| {
            let start = text.floor_char_boundary(start);
            (start, text.floor_char_boundary(start + length))
        };
        let other = &examples[below(examples.len())].1;
        let (from, to) = part(other, below(other.len()), below(30));
        let (start, end) = part(&text, below(text.len()), below(12));
        text = match below(3) {
            0 => format!("{}{}", &text[..start], &text[end..]),
            1 => format!("{}{}{}", &text[..end], &text[start..end], &text[end..]),
            _ => format!("{}{}{}", &text[..start], &other[from..to], &text[end..]),
        };
    }
    text
}

fn has_large_number(text: &str) -> bool {
    let mut digits = 0;
    text.chars().any(|letter| {
        digits = if letter.is_ascii_hexdigit() || letter == '*' { digits + 1 } else { 0 };
        digits > DIGITS_MAX && text.contains(char::is_numeric)
    })
}

fn script(examples: &[(usize, String)], seed: u64) -> String {
    let mut random = SplitMix64::new(seed);
    match seed % 4 {
        0 | 1 => random_script(&mut random),
        2 => damaged_example(examples, &mut random),
        _ => random_words(&mut random),
    }
}

/// The seed of the script that runs, and the time at which it began.
static CURRENT: AtomicU64 = AtomicU64::new(0);
static BEGAN: Mutex<Option<Instant>> = Mutex::new(None);

/// Ends the process if a script hangs: a thread cannot be ended.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if BEGAN.lock().unwrap().is_some_and(|began| began.elapsed() > HANG) {
                let seed = CURRENT.load(Ordering::Relaxed);
                tell(&format!("the script of FUZZ_SEED={seed} hangs"));
                std::process::abort();
            }
        }
    });
}

/// Prints a message; the macros of the test runner would keep it from a process that aborts.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

#[test]
fn fuzz_no_script_makes_the_checker_or_the_evaluator_panic_or_hang() {
    let seconds: Option<u64> = env::var("FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let given: Option<u64> = env::var("FUZZ_SEED").ok().map(|text| text.parse().unwrap());
    let clock = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let first = given.unwrap_or_else(|| if seconds.is_some() { clock() << 16 } else { 0 });
    let (begun, examples) = (Instant::now(), examples());
    let (mut ran, mut right) = (0, 0_u64);
    watch();
    let goes_on = |ran: u64| match seconds {
        Some(seconds) => begun.elapsed() < Duration::from_secs(seconds),
        None => ran < SCRIPTS,
    };
    while goes_on(ran) {
        let seed = first.wrapping_add(ran);
        let text = script(&examples, seed);
        ran += 1;
        if has_large_number(&text) {
            continue;
        }
        CURRENT.store(seed, Ordering::Relaxed);
        *BEGAN.lock().unwrap() = Some(Instant::now());
        match catch_unwind(AssertUnwindSafe(|| run_for(&text, TURNS_MAX))) {
            Ok(is_right) => right += u64::from(is_right),
            Err(panic) => {
                tell(&format!("FUZZ_SEED={seed} fails:\n{text}"));
                resume_unwind(panic);
            }
        }
    }
    *BEGAN.lock().unwrap() = None;
    assert!(right > ran / 20, "only {right} of {ran} scripts were right");
}
