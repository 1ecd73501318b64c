//! The page for users: its examples do what it says, and nothing is missing on it.

use crate::ast::{StatementKind, SwiftModule};
use crate::eval::fake_world::{no_files, run_marked};
use crate::library;
use crate::loader::{ScriptFolders, load};
use crate::parser::KEYWORDS;
use crate::source::Sources;

const PAGE: &str = include_str!("../../../../docs/SWIFT.md");
/// The arguments of the examples, as the page says.
const ARGUMENTS: [&str; 3] = ["-v", "--n=3", "data.txt"];

/// The examples, each with its line in the page.
pub fn examples() -> Vec<(usize, String)> {
    let mut examples: Vec<(usize, String)> = Vec::new();
    let mut is_example = false;
    for (number, line) in (1..).zip(PAGE.lines()) {
        match line {
            "```swift" => {
                is_example = true;
                examples.push((number, String::new()));
            }
            "```" => is_example = false,
            line if is_example => {
                let (_, text) = examples.last_mut().expect("one has begun");
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    examples
}

/// The lines that an example promises, sorted: those that do not wait for each other have no order.
fn promised(text: &str) -> Vec<String> {
    let marked = text.lines().filter_map(|line| line.strip_prefix("//"));
    let mut lines: Vec<String> = marked.filter(|line| line.starts_with(['>', '$', '!'])).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The lines of a run in the form of the page.
fn found(text: &str) -> Vec<String> {
    let mut lines = match run_marked(text, &ARGUMENTS, ("> ", "$ ")) {
        Ok(lines) => lines.iter().map(|line| without_numbers(&line.replace('\n', "\\n"))).collect(),
        Err(message) => {
            let first = message.lines().next().unwrap_or_default();
            let text = first
                .split_once(": ")
                .map_or(first, |(place, text)| if place.contains(".swift:") { text } else { first });
            vec![format!("! {text}")]
        }
    };
    lines.sort();
    lines
}

/// A line with `#` in place of `#3`, the number of a temporary file.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    for letter in line.chars() {
        if !(letter.is_ascii_digit() && text.ends_with('#')) {
            text.push(letter);
        }
    }
    text
}

#[test]
fn examples_do_what_the_page_says() {
    let mut wrong = Vec::new();
    for (number, text) in examples() {
        let (promised, found) = (promised(&text), found(&text));
        if promised != found {
            wrong.push(format!("docs/SWIFT.md:{number}: promised {promised:#?}, found {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The syntax trees of all modules of the library, the script without statements last.
fn modules() -> Vec<SwiftModule> {
    let imports: Vec<String> = library::module_names().map(|name| format!("import {name};\n")).collect();
    let (mut sources, files) = (Sources::default(), no_files());
    let folders = ScriptFolders { files: &files, search: Vec::new(), defines: Vec::new() };
    load("s.swift", &imports.concat(), &folders, &mut sources).unwrap_or_else(|problems| panic!("{}", problems[0]))
}

/// Returns whether a text has a name that is followed by something.
fn has(text: &str, name: &str, behind: &[char]) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name)
        .any(|(at, _)| text[at + name.len()..].starts_with(behind) && !text[..at].ends_with(is_word))
}

#[test]
fn functions_of_the_library_are_on_the_page() {
    let code: String = examples().into_iter().map(|(_, text)| text).collect();
    let mut missing = Vec::new();
    for statement in modules().iter().flat_map(|module| &module.statements) {
        let (name, is_on_page) = match &statement.kind {
            StatementKind::Function(function) => {
                let name = &function.name.text;
                let is_refused = function.library_name.as_ref().is_some_and(|text| text.starts_with("missing: "));
                (name, if is_refused { has(PAGE, name, &['`', '(']) } else { has(&code, name, &['(']) })
            }
            StatementKind::App(app) => (&app.name.text, has(&code, &app.name.text, &['('])),
            StatementKind::Struct { name, .. } => (&name.text, has(PAGE, &name.text, &['`', ' '])),
            StatementKind::Declaration(declaration) => {
                let name = &declaration.variables[0].name.text;
                (name, has(PAGE, name, &['`', ',', ')', ';']))
            }
            _ => continue,
        };
        if !is_on_page && !name.starts_with('_') && !missing.contains(name) {
            missing.push(name.clone());
        }
    }
    assert!(missing.is_empty(), "not on docs/SWIFT.md: {missing:?}");
}

#[test]
fn words_of_the_language_are_on_the_page() {
    let code: String = examples().into_iter().map(|(_, text)| text).collect();
    let missing: Vec<&str> = KEYWORDS
        .into_iter()
        .filter(|word| *word != "builtin" && !has(&code, word, &[' ', '(', ':', ')', ';']))
        .collect();
    assert!(missing.is_empty(), "no example of docs/SWIFT.md has {missing:?}");
}

#[test]
fn modules_that_are_refused_are_on_the_page() {
    let missing: Vec<&str> = library::refused_names().filter(|name| !PAGE.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not on docs/SWIFT.md: {missing:?}");
}
