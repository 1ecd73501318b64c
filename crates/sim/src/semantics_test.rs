//! Checks that the tests named in docs/SEMANTICS.md exist.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Depth limit of directories below `crates`.
const DEPTH_MAX: u32 = 6;

/// All Rust and Python files below `directory`.
fn sources(directory: &Path, depth: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
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
    let (promises, table) = page.split_once("## How each promise is proved").expect("the table of tests");
    let promises = promises.split_whitespace().collect::<Vec<_>>().join(" ");
    let files = ["crates", "tests"].iter().flat_map(|directory| sources(&root.join(directory), 0));
    let tests: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let rows: Vec<Vec<&str>> =
        table.lines().filter(|line| line.contains("| `")).map(|row| row.split(" | ").collect()).collect();
    assert!(rows.len() > 60, "the table has rows: {rows:?}");
    for row in rows {
        let [_, promise, proofs] = row[..] else { panic!("not three columns: {row:?}") };
        assert!(promises.contains(promise), "docs/SEMANTICS.md does not promise `{promise}`");
        for test in proofs.split('`').skip(1).step_by(2) {
            let there = tests.contains(&format!("fn {test}(")) || tests.contains(&format!("def {test}("));
            assert!(there, "docs/SEMANTICS.md names `{test}`, which is no test");
        }
    }
}
