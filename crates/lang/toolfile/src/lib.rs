//! Layer 2: the tool file: TOML to declared tools.
//!
//! [`parse`] reads a whole file and reports all its problems, each with its position. The format is
//! described in `docs/formats/tools.md`. This crate checks the keys of a tool one by one;
//! [`flow::check_tool`] checks its templates and values together, as for descriptors. No I/O: the
//! caller reads the text and checks whether files exist.
#![forbid(unsafe_code)]

mod section;
mod tool;
mod value;

use base::{Problem, SourceLocation};
use flow::Tool;
use section::{Diagnostics, Section};
use std::path::Path;
use toml::de::DeTable;

/// The version of the format that this crate reads.
pub const VERSION: i64 = 1;

/// A tool file and its text.
#[derive(Debug, Clone, Copy)]
pub struct ToolFile<'a> {
    /// The file as the user named it, for messages.
    pub name: &'a str,
    /// The text of the file.
    pub text: &'a str,
    /// The absolute directory of the file: `{here}` in templates.
    pub here: &'a Path,
}

/// The tools of `file` in the order of their declaration, or all its problems in the order of the
/// text.
///
/// `exists` returns whether a file exists at an absolute path; it is called for every entry of
/// `files`.
pub fn parse(file: &ToolFile<'_>, exists: &dyn Fn(&Path) -> bool) -> Result<Vec<Tool>, Vec<Problem>> {
    let document = DeTable::parse(file.text).map_err(|error| vec![syntax(file, &error)])?;
    let diagnostics = Diagnostics::new(file.name, file.text);
    let tools = read(file, &diagnostics, document.get_ref(), exists);
    let problems = diagnostics.into_problems();
    if problems.is_empty() { Ok(tools) } else { Err(problems) }
}

fn syntax(file: &ToolFile<'_>, error: &toml::de::Error) -> Problem {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let problem = Problem::new(format!("this is not TOML: {message}"));
    match error.span() {
        Some(span) => problem.at(SourceLocation::at_offset(file.name, file.text, span.start)),
        None => problem.at(SourceLocation::file(file.name)),
    }
}

fn read(
    file: &ToolFile<'_>,
    diagnostics: &Diagnostics<'_>,
    document: &DeTable<'_>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<Tool> {
    let top = Section::new(diagnostics, String::new(), document, 0);
    top.check_keys(&["version", "tools"]);
    match top.get("version") {
        None => top.refuse("`version` is missing", Some("begin the file with `version = 1`".to_owned())),
        Some(_) => match top.integer("version") {
            Some(VERSION) | None => {}
            Some(other) => {
                top.refuse_at("version", format!("version {other} is not known; this program reads version {VERSION}"));
            }
        },
    }
    let Some(here) = file.here.to_str() else {
        top.refuse("the path of the tool file's directory is not UTF-8", None);
        return Vec::new();
    };
    let tools = top.tables("tools", |name| format!("tool `{name}`"));
    if tools.is_empty() {
        top.refuse("no tools are declared", Some("declare one with `[tools.NAME]`".to_owned()));
    }
    tools.iter().map(|(name, section)| tool::read(name, section, here, exists)).collect()
}

#[cfg(test)]
#[path = "parse_test.rs"]
mod tests;
