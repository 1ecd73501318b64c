//! The page of promises names the tests that prove them.

use std::{fs, path::Path};

#[test]
fn every_test_that_the_page_of_promises_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/SEMANTICS.md")).unwrap();
    let sources: String = ["vfs", "partition", "node"]
        .iter()
        .flat_map(|name| fs::read_dir(root.join("crates").join(name).join("src")).unwrap())
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let (_, pool) = page.split_once("\n## The pool\n").unwrap();
    let (pool, _) = pool.split_once("\n## ").unwrap_or((pool, ""));
    let quoted = pool.split('`').skip(1).step_by(2);
    let named: Vec<&str> = quoted.filter(|text| text.matches('_').count() >= 3 && !text.contains(['/', '.'])).collect();
    assert!(named.len() > 20, "the page names tests: {named:?}");
    for test in named {
        assert!(sources.contains(&format!("fn {test}()")), "docs/SEMANTICS.md names `{test}`, which is no test");
    }
}
