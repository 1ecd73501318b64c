//! Loader: a script and the modules that it imports, as syntax trees.

use crate::ast::{SourceName, StatementKind, SwiftModule};
use crate::library;
use crate::parser::parse;
use crate::preprocessor::{Preprocessor, ScriptFiles, directory_of, find_file};
use crate::source::{SourceId, Sources, Span};
use base::Problem;
use std::collections::HashSet;

/// The beginning of the names of library files.
pub const LIBRARY: &str = "(library)/";

/// Files and macros of a script.
pub struct ScriptFolders<'a> {
    /// The files.
    pub files: &'a dyn ScriptFiles,
    /// Directories in which imported and included files are searched for, before that of the script
    /// (`-I`).
    pub search: Vec<String>,
    /// Macros (`-D`).
    pub defines: Vec<(String, String)>,
}

/// Loads a script. The modules are in the order in which they are defined: the script is the last.
///
/// # Errors
/// The problems of the first file that has some.
pub fn load(
    name: &str,
    text: &str,
    folders: &ScriptFolders<'_>,
    sources: &mut Sources,
) -> Result<Vec<SwiftModule>, Vec<Problem>> {
    let mut search = folders.search.clone();
    search.push(directory_of(name));
    let one = |problem| vec![problem];
    let preprocessor = Preprocessor::new(folders.files, &search, &folders.defines, sources).map_err(one)?;
    let mut loader =
        Loader { preprocessor, search: &search, files: folders.files, loaded: HashSet::new(), modules: Vec::new() };
    loader.library("builtins", sources)?;
    let source = sources.add(name, text).map_err(one)?;
    loader.file(source, sources)?;
    Ok(loader.modules)
}

struct Loader<'a> {
    preprocessor: Preprocessor<'a>,
    search: &'a [String],
    files: &'a dyn ScriptFiles,
    /// The modules and paths that are there.
    loaded: HashSet<String>,
    modules: Vec<SwiftModule>,
}

impl Loader<'_> {
    /// Loads a module of the library; returns whether there is one.
    fn library(&mut self, name: &str, sources: &mut Sources) -> Result<bool, Vec<Problem>> {
        let Some(text) = library::module(name) else { return Ok(false) };
        if self.loaded.insert(name.to_owned()) {
            let source = sources.add(&format!("{LIBRARY}{name}.swift"), text).map_err(|problem| vec![problem])?;
            self.file(source, sources)?;
        }
        Ok(true)
    }

    fn file(&mut self, source: SourceId, sources: &mut Sources) -> Result<(), Vec<Problem>> {
        let tokens = self.preprocessor.tokens_of(source, sources).map_err(|problem| vec![problem])?;
        let module = parse(&tokens, sources)?;
        for statement in &module.statements {
            if let StatementKind::Import { path } = &statement.kind {
                self.import(path, statement.span, sources)?;
            }
        }
        self.modules.push(module);
        Ok(())
    }

    fn import(&mut self, path: &[SourceName], span: Span, sources: &mut Sources) -> Result<(), Vec<Problem>> {
        let name = path.iter().map(|name| &*name.text).collect::<Vec<_>>().join("/");
        if self.library(&name, sources)? {
            return Ok(());
        }
        let file = format!("{}.swift", name.strip_suffix(".swift").unwrap_or(&name));
        let Some(found) = find_file(self.files, self.search, &file) else {
            if let Some(why) = library::refused_module(&name) {
                return Err(vec![sources.problem(span, why)]);
            }
            let known = library::module_names();
            let problem = sources.problem(span, format!("there is no module `{name}`")).nearest(&name, known);
            return Err(vec![problem]);
        };
        let (path, text) = found.map_err(|problem| vec![problem.at(sources.location(span))])?;
        if self.loaded.insert(path.clone()) {
            let source = sources.add(&path, &text).map_err(|problem| vec![problem.at(sources.location(span))])?;
            self.file(source, sources)?;
        }
        Ok(())
    }
}
