//! Chooses the storage mode: the first possible one of the mount, the preload library and RAM-disk
//! staging, and the reason for it.
//!
//! ```text
//! a mount where FUSE is allowed --else--> the library, for tools that it reaches --else--> staging
//!                                            \-- the others: staging
//! ```

use crate::checked_workflow::CheckedWorkflow;
use crate::spec::StorageRequest;
use base::Problem;
use exec::{PreloadLibraryError, preload_obstacle};
use flow::ToolId;
use report::AccessMode;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Upper bound of the tools outside the library's reach that are named; more are counted.
const NAMED_MAX: usize = 3;

/// The chosen storage mode, and the line that gives the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageChoice {
    /// The storage mode; with the preload library, that of all tools but `staged`.
    pub mode: AccessMode,
    /// Path of the library, if tasks use it.
    pub library: Option<PathBuf>,
    /// Tools that the library does not reach: their tasks see copies.
    pub staged: BTreeSet<ToolId>,
    /// One line for the user.
    pub line: String,
}

impl StorageChoice {
    fn new(mode: AccessMode, line: impl Into<String>) -> Self {
        Self { mode, library: None, staged: BTreeSet::new(), line: line.into() }
    }

    /// Returns whether there will be copies of files on a RAM disk.
    pub fn has_copies(&self) -> bool {
        self.mode == AccessMode::Staging || !self.staged.is_empty()
    }
}

/// A tool whose tasks have data, and its program; `None` if that was not found.
#[derive(Debug, Clone, Copy)]
pub struct ToolProgram<'a> {
    /// Id of the tool.
    pub id: ToolId,
    /// Name of the tool.
    pub name: &'a str,
    /// Path of its program.
    pub program: Option<&'a Path>,
    /// The reason why the library does not reach a program that is not here yet, if it does not.
    pub obstacle: Option<&'a str>,
    /// Directories that are searched before `PATH`.
    pub path: &'a [String],
    /// Directory of the tool file.
    pub here: &'a Path,
}

/// Facts about the workflow's tools that the choice depends on.
#[derive(Debug)]
pub struct ToolSupport {
    /// Names of the tools whose tasks have data.
    names: BTreeMap<ToolId, String>,
    /// The subset that the library does not reach, with the reasons.
    unreached: BTreeMap<ToolId, String>,
    library: Result<PathBuf, PreloadLibraryError>,
}

impl ToolSupport {
    /// Inspects the programs of the workflow's tools.
    pub fn inspect(flow: &CheckedWorkflow, programs: &HashMap<ToolId, PathBuf>) -> Self {
        let workflow = flow.workflow();
        let with_files = flow.called_tools().into_iter().filter_map(|id| {
            let tool = &workflow.tools[id.0 as usize];
            let program = programs.get(&id).map(PathBuf::as_path);
            tool.needs_workdir().then(|| ToolProgram {
                id,
                name: &tool.name,
                program,
                obstacle: None,
                path: &tool.path,
                here: Path::new(&tool.here),
            })
        });
        Self::of_programs(with_files)
    }

    /// Inspects programs of tools whose tasks have data.
    pub fn of_programs<'a>(tools: impl Iterator<Item = ToolProgram<'a>>) -> Self {
        let path = std::env::var_os("PATH");
        let (mut names, mut without) = (BTreeMap::new(), BTreeMap::new());
        for tool in tools {
            names.insert(tool.id, tool.name.to_owned());
            let dirs = exec::search_dirs(tool.path, tool.here, path.as_deref());
            let why = match tool.program {
                Some(program) => library_obstacle(program, &dirs),
                None => tool.obstacle.map(str::to_owned),
            };
            without.extend(why.map(|why| (tool.id, why)));
        }
        Self { names, unreached: without, library: exec::preload_library() }
    }

    /// The best mode without a mount. `why` says why there is no mount.
    pub fn without_mount(&self, why: &str) -> StorageChoice {
        self.preloaded(why).unwrap_or_else(|obstacle| Self::staged(&format!("{why}, and {obstacle}")))
    }

    /// RAM-disk staging of all tools, because of `why`.
    pub fn staged(why: &str) -> StorageChoice {
        StorageChoice::new(AccessMode::Staging, format!("RAM-disk staging, since {why}"))
    }

    /// The preload library, for tools that it reaches; the error says why it cannot be used.
    fn preloaded(&self, why: &str) -> Result<StorageChoice, String> {
        let library = self.library.clone().map_err(|none| none.to_string())?;
        if self.unreached.len() == self.names.len() {
            return Err(format!("the preload library reaches no tool: {}", self.named(false)));
        }
        let mut choice =
            StorageChoice::new(AccessMode::Preload, format!("the pool is reached by the preload library, since {why}"));
        if !self.unreached.is_empty() {
            choice.line = format!("{}; by RAM-disk staging: {}", choice.line, self.named(true));
        }
        (choice.library, choice.staged) = (Some(library), self.unreached.keys().copied().collect());
        Ok(choice)
    }

    /// Names the tools that the library does not reach, with the reasons.
    fn named(&self, with_tools: bool) -> String {
        let one = |(id, why): (&ToolId, &String)| {
            if with_tools { format!("{}, since {why}", self.names[id]) } else { why.clone() }
        };
        let named: Vec<String> = self.unreached.iter().take(NAMED_MAX).map(one).collect();
        let more = self.unreached.len().saturating_sub(NAMED_MAX);
        if more > 0 { format!("{} and {more} more", named.join("; ")) } else { named.join("; ") }
    }
}

/// The reason why the library does not reach a program, if it does not. `dirs` are searched for the
/// interpreter of a script.
pub fn library_obstacle(program: &Path, dirs: &[PathBuf]) -> Option<String> {
    match preload_obstacle(program, dirs) {
        Ok(why) => why.map(|why| why.to_string()),
        Err(error) => Some(format!("`{}` cannot be examined: {error}", program.display())),
    }
}

/// Chooses the storage mode. Staging needs no permission, so only a demand for another mode can be
/// refused.
pub fn choose(wanted: StorageRequest, tools: &ToolSupport) -> Result<StorageChoice, Problem> {
    if tools.names.is_empty() {
        return Ok(StorageChoice::new(AccessMode::None, "no pool, since no task reads or writes data"));
    }
    let asked = |mode: &str| format!("--storage {mode} was asked for");
    let refused = |what: String, mode: &str| {
        Problem::new(what).hint(format!("leave --storage {mode} out to use what this machine allows"))
    };
    match wanted {
        StorageRequest::Staging => Ok(ToolSupport::staged(&asked("staging"))),
        StorageRequest::Preload => tools.preloaded(&asked("preload")).map_err(|why| {
            let problem = refused(format!("--storage preload: {why}"), "preload");
            match &tools.library {
                Err(none) => problem.hint(none.hint()),
                Ok(_) => problem,
            }
        }),
        StorageRequest::Mount | StorageRequest::Auto => match mount::availability() {
            Ok(_) => Ok(StorageChoice::new(AccessMode::Mount, "the pool is mounted")),
            Err(why) if wanted == StorageRequest::Auto => Ok(tools.without_mount(&why.to_string())),
            Err(why) => Err(refused(format!("the pool cannot be mounted: {why}"), "mount")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tools with data; the library does not reach the first `unreached` of them.
    fn tools(unreached: u32, library: Result<PathBuf, PreloadLibraryError>) -> ToolSupport {
        let names = (0..2).map(|id| (ToolId(id), format!("tool{id}"))).collect();
        let unreached = (0..unreached).map(|id| (ToolId(id), format!("`/bin/{id}` is statically linked"))).collect();
        ToolSupport { names, unreached, library }
    }

    fn library_path() -> PathBuf {
        "/lib/preload.so".into()
    }

    #[test]
    fn without_a_mount_the_library_is_next_and_its_reason_is_said() {
        let choice = tools(0, Ok(library_path())).without_mount("there is no /dev/fuse");
        assert_eq!((choice.mode, choice.staged.len(), choice.has_copies()), (AccessMode::Preload, 0, false));
        assert_eq!(choice.line, "the pool is reached by the preload library, since there is no /dev/fuse");
        assert_eq!(choice.library, Some(library_path()));
    }

    #[test]
    fn tools_that_the_library_does_not_reach_are_staged_and_named() {
        let choice = tools(1, Ok(library_path())).without_mount("x");
        assert_eq!((choice.mode, choice.has_copies()), (AccessMode::Preload, true));
        assert_eq!(choice.staged, BTreeSet::from([ToolId(0)]));
        assert!(
            choice.line.ends_with("; by RAM-disk staging: tool0, since `/bin/0` is statically linked"),
            "{choice:?}"
        );
    }

    #[test]
    fn all_are_staged_where_the_library_reaches_none_or_is_not_there() {
        let none = tools(2, Ok(library_path())).without_mount("x");
        assert_eq!((none.mode, none.staged.len(), none.has_copies()), (AccessMode::Staging, 0, true));
        assert!(none.line.contains("since x, and the preload library reaches no tool: `/bin/0` is"), "{none:?}");
        let missing = tools(0, Err(PreloadLibraryError::NotAFile("/no".into()))).without_mount("x");
        assert_eq!(missing.mode, AccessMode::Staging);
        assert!(missing.line.contains("/no, which is not a file"), "{missing:?}");
    }

    #[test]
    fn a_demand_for_the_library_is_refused_with_what_to_do() {
        let refused =
            choose(StorageRequest::Preload, &tools(0, Err(PreloadLibraryError::Missing("/bin".into())))).unwrap_err();
        assert!(refused.to_string().contains("make build"), "{refused}");
        let refused = choose(StorageRequest::Preload, &tools(2, Ok(library_path()))).unwrap_err();
        assert!(refused.to_string().contains("leave --storage preload out"), "{refused}");
        assert_eq!(choose(StorageRequest::Preload, &tools(1, Ok(library_path()))).unwrap().mode, AccessMode::Preload);
    }

    #[test]
    fn a_workflow_without_data_has_no_pool() {
        let none = ToolSupport { names: BTreeMap::new(), unreached: BTreeMap::new(), library: Ok(library_path()) };
        assert_eq!(choose(StorageRequest::Mount, &none).unwrap().mode, AccessMode::None);
    }
}
