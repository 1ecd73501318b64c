//! Pages of `docs/formats`, parts of which are made from the code.

use std::{env, fs, path::PathBuf};

/// A page of `docs/formats`. A part of it stands between two comments, `<!-- part -->` and
/// `<!-- end of part -->`.
#[derive(Debug)]
pub struct FormatPage {
    name: &'static str,
    path: PathBuf,
}

impl FormatPage {
    /// The page of this name, without `.md`.
    pub fn new(name: &'static str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/formats/{name}.md"));
        Self { name, path }
    }

    /// Returns the text of a part.
    #[track_caller]
    pub fn part(&self, part: &str) -> String {
        self.split(part).1
    }

    /// Checks that a part has this text, or writes it if the variable `FIX` is set.
    #[track_caller]
    pub fn check(&self, part: &str, text: &str) {
        let (before, found, after) = self.split(part);
        if found != text && env::var_os("FIX").is_some() {
            fs::write(&self.path, [&before, text, &after].concat()).expect("the page can be written");
            return;
        }
        let name = self.name;
        assert!(
            found == text,
            "the part `{part}` of docs/formats/{name}.md is to be:\n{text}(FIX=1 writes it; was the version raised?)"
        );
    }

    /// Checks that a part which begins with a version, up to a semicolon, has another version if it
    /// has another text.
    #[track_caller]
    pub fn check_version(&self, part: &str, text: &str, what_to_do: &str) {
        let (old, name) = (self.part(part), self.name);
        let number = |text: &str| text.split(';').next().map(str::to_owned);
        assert!(
            old == text || number(&old) != number(text),
            "shapes have changed: {what_to_do}, and say in docs/formats/{name}.md what the version before was without"
        );
    }

    /// The page before a part, the part, and the page after it.
    #[track_caller]
    fn split(&self, part: &str) -> (String, String, String) {
        let (open, close) = (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->"));
        let page = fs::read_to_string(&self.path).expect("the page can be read");
        let (before, rest) = page.split_once(&open).unwrap_or_else(|| panic!("the page has a part `{part}`"));
        let (part, after) = rest.split_once(&close).expect("which ends");
        (before.to_owned() + &open, part.to_owned(), close + after)
    }
}

/// Returns a text as a block of code.
pub fn fenced(text: &str) -> String {
    format!("```text\n{text}\n```\n")
}
