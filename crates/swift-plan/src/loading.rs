//! Loading: a script and the files that it includes and imports, read from this host and checked.

use crate::{host_files, tools};
use base::Problem;
use flow::{Tool, Workflow};
use run::CheckedWorkflow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use swift::{Program, ScriptFiles, ScriptFolders, Sources};

/// The options of a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptOptions {
    /// Directories of imported and included files (`-I`).
    pub search: Vec<PathBuf>,
    /// Macros and their values (`-D`).
    pub defines: Vec<(String, String)>,
    /// The tools of the tool file.
    pub tools: Vec<Tool>,
    /// The directory from which relative paths of programs start.
    pub data_dir: PathBuf,
}

/// A script that is right.
#[derive(Debug)]
pub struct LoadedScript {
    /// The beginning of its workflow: its tools.
    pub flow: CheckedWorkflow,
    /// The script itself.
    pub script: SwiftScript,
    /// Probable mistakes.
    pub warnings: Vec<String>,
}

/// A checked script and its texts.
#[derive(Debug)]
pub struct SwiftScript {
    /// The program.
    pub program: Program,
    /// The texts, for messages.
    pub sources: Sources,
    /// The files that were read: the script, and those that it includes and imports.
    pub files: Vec<PathBuf>,
}

/// Returns whether a workflow is a Swift script, by the ending of its name.
pub fn is_swift(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "swift")
}

/// Reads and checks a script.
///
/// # Errors
/// The problems, each with its place and line.
pub fn load(path: &Path, text: &str, options: &ScriptOptions) -> Result<LoadedScript, Vec<Problem>> {
    let name = path.display().to_string();
    let files = HostScripts::default();
    let search = options.search.iter().map(|directory| directory.display().to_string()).collect();
    let folders = ScriptFolders { files: &files, search, defines: options.defines.clone() };
    let mut sources = Sources::default();
    let modules = swift::load(&name, text, &folders, &mut sources)?;
    let checked = swift::check(&modules, &sources)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let tools = tools::tools_of(&checked.program.apps, &options.tools, &options.data_dir)?;
    let mut warnings: Vec<String> = checked.warnings.iter().map(ToString::to_string).collect();
    warnings.extend(unused_tools(&options.tools, &tools));
    let flow = CheckedWorkflow::growing(Workflow { name: stem, tools, ..Workflow::default() }, None)?;
    let files = std::iter::once(path.to_path_buf()).chain(files.read.into_inner()).collect();
    let script = SwiftScript { program: checked.program, sources, files };
    Ok(LoadedScript { flow, script, warnings })
}

/// Warnings about tools of the tool file that no app function has the name of.
fn unused_tools(given: &[Tool], tools: &[Tool]) -> Vec<String> {
    let is_unused = |given: &&Tool| tools.iter().all(|tool| tool.name != given.name);
    let warn =
        |given: &Tool| format!("tool `{}` of the tool file changes nothing: no app function has this name", given.name);
    given.iter().filter(is_unused).map(warn).collect()
}

/// Scripts on this host.
#[derive(Debug, Default)]
struct HostScripts {
    read: RefCell<BTreeSet<PathBuf>>,
}

impl ScriptFiles for HostScripts {
    fn read(&self, path: &str) -> Option<Result<String, String>> {
        match host_files::read_source(Path::new(path)) {
            Ok(text) => {
                self.read.borrow_mut().insert(path.into());
                Some(Ok(text))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(error) => Some(Err(error.to_string())),
        }
    }
}
