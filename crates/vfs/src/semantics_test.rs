//! The page of promises names the tests that prove them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Folders below `crates` are few levels deep.
const DEPTH_MAX: u32 = 6;

/// Every Rust and Python file below `folder`.
fn sources(folder: &Path, depth: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.extension().and_then(|extension| extension.to_str()) {
        _ if path.is_dir() && depth < DEPTH_MAX => sources(&path, depth + 1),
        Some("rs" | "py") => vec![path],
        _ => Vec::new(),
    };
    entries.flat_map(below).collect()
}

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/SEMANTICS.md")).unwrap();
    let files = ["crates", "tests"].iter().flat_map(|folder| sources(&root.join(folder), 0));
    let tests: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let quoted = page.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(|text| text.matches('_').count() >= 3 && !text.contains(['/', '.'])).collect();
    assert!(named.len() > 60, "the page names tests: {named:?}");
    for test in named {
        let there = tests.contains(&format!("fn {test}(")) || tests.contains(&format!("def {test}("));
        assert!(there, "docs/SEMANTICS.md names `{test}`, which is no test");
    }
}
