//! The trees of tools' files that travel to the hosts of a cluster, on the side of the run: one
//! tree for all tools of one tool file.
//!
//! ```text
//! tools -> scan (limits) -> hash -> put into the pool, bound: tools/<hash>/manifest, contents
//! ```

use super::messages::{AgentTree, TREES, content_place};
use crate::checked_workflow::CheckedWorkflow;
use crate::tool_manifest::ToolManifest;
use crate::workspace::{WorkspaceBase, WorkspaceError};
use base::Problem;
use flow::{Tool, ToolId};
use placement::{NodeId, Policy};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;
use wire::{PLACEMENT, XattrMode};

/// Files that are bound at a time.
const BOUND_AT_ONCE: usize = 64;

/// The trees of a run, by the directories of their tool files.
#[derive(Debug, Clone, Default)]
pub struct ToolTrees {
    trees: BTreeMap<String, ToolTree>,
}

/// The files of the tools of one tool file.
#[derive(Debug, Clone)]
struct ToolTree {
    /// Directory of all that travels, without links in it.
    root: PathBuf,
    /// Directory of the tool file below the root.
    inner: PathBuf,
    manifest: ToolManifest,
    /// Hash of the manifest; empty until the files are hashed.
    hash: String,
}

impl ToolTrees {
    /// Lists the files of the tools that the workflow calls. `programs` are those of this host.
    pub fn scan(flow: &CheckedWorkflow, programs: &HashMap<ToolId, PathBuf>) -> Result<Self, Vec<Problem>> {
        let workflow = flow.workflow();
        let mut by_here: BTreeMap<&str, Vec<(&Tool, Option<&PathBuf>)>> = BTreeMap::new();
        for id in flow.called_tools() {
            let tool = &workflow.tools[id.0 as usize];
            if !tool.here.is_empty() {
                by_here.entry(&tool.here).or_default().push((tool, programs.get(&id)));
            }
        }
        let (mut trees, mut problems) = (BTreeMap::new(), Vec::new());
        for (here, tools) in by_here {
            match ToolTree::scan(Path::new(here), &tools) {
                Ok(Some(tree)) => drop(trees.insert(here.to_owned(), tree)),
                Ok(None) => {}
                Err(why) => {
                    let names: Vec<&str> = tools.iter().map(|(tool, _)| tool.name.as_str()).collect();
                    let problem = Problem::new(format!("the files of {} cannot travel: {why}", names.join(", ")));
                    problems.push(problem.hint("`files` of the tool file names what travels to the hosts"));
                }
            }
        }
        if problems.is_empty() { Ok(Self { trees }) } else { Err(problems) }
    }

    /// Reads all files and hashes them; blocks the thread.
    pub fn hashed(mut self) -> Result<Self, Problem> {
        for tree in self.trees.values_mut() {
            let read = tree.manifest.hash_files(&tree.root);
            read.map_err(|why| Problem::new(format!("the files of the tools cannot be read: {why}")))?;
            tree.hash = tree.manifest.hash();
        }
        Ok(self)
    }

    /// What agents are told.
    pub fn for_agents(&self) -> Vec<AgentTree> {
        let tree = |(here, tree): (&String, &ToolTree)| AgentTree {
            hash: tree.hash.clone(),
            here: here.into(),
            root: tree.root.clone(),
            inner: tree.inner.clone(),
        };
        self.trees.iter().map(tree).collect()
    }

    /// The hash of the tree of a tool; `None` if none of its files travel.
    pub fn of_tool(&self, tool: &Tool) -> Option<&str> {
        self.trees.get(&tool.here).map(|tree| tree.hash.as_str())
    }

    /// Returns whether a tool's program is in its tree.
    pub fn has_program(&self, tool: &Tool, program: &Path) -> bool {
        let Some(tree) = self.trees.get(&tool.here) else { return false };
        let here = Path::new(&tool.here);
        // As it is named, perhaps through a link that `files` names, and where it is.
        let named = program.strip_prefix(here).ok().map(|below| without_dots(&tree.root.join(&tree.inner).join(below)));
        let mut places = [named, place_of(program, here).ok()].into_iter().flatten();
        let has = |place: PathBuf| {
            let name = place.strip_prefix(&tree.root).ok().and_then(Path::to_str);
            name.is_some_and(|name| tree.manifest.entries.contains_key(name))
        };
        places.any(has)
    }

    /// Shows all files in the pool, each content once. Their bytes stay where they are: the node
    /// `first`, which is on this host, reads them for the others.
    pub async fn put(&self, pool: &Vfs, first: NodeId) -> Result<(), Problem> {
        for tree in self.trees.values() {
            let put = tree.put(pool, first).await;
            put.map_err(|error| Problem::new(format!("the tools' files cannot be shown to the hosts: {error}")))?;
        }
        Ok(())
    }
}

impl ToolTree {
    /// `None` if no file travels.
    fn scan(here: &Path, tools: &[(&Tool, Option<&PathBuf>)]) -> Result<Option<Self>, String> {
        let canonical = fs::canonicalize(here).map_err(|error| format!("{}: {error}", here.display()))?;
        let mut places = BTreeSet::new();
        for file in tools.iter().flat_map(|(tool, _)| &tool.files) {
            places.insert(place_of(&here.join(file), here)?);
        }
        for (_, program) in tools {
            let place = program.and_then(|program| place_of(program, here).ok());
            places.extend(place.filter(|place| place.starts_with(&canonical)));
        }
        // What is in a directory that is named travels with it.
        let is_covered = |place: &Path| place.ancestors().skip(1).any(|above| places.contains(above));
        let places: Vec<PathBuf> = places.iter().filter(|place| !is_covered(place)).cloned().collect();
        if places.is_empty() {
            return Ok(None);
        }
        let root = places.iter().fold(canonical.clone(), |root, place| common(&root, place));
        let inner = canonical.strip_prefix(&root).expect("it is an ancestor").to_owned();
        let manifest = ToolManifest::scan(&root, &places)?;
        Ok(Some(Self { root, inner, manifest, hash: String::new() }))
    }

    async fn put(&self, pool: &Vfs, first: NodeId) -> Result<(), WorkspaceError> {
        let base = WorkspaceBase::new(pool.clone(), CancellationToken::new());
        let top = base.make_dir(Path::new(TREES)).await?;
        let policy = Policy::At(first).to_string();
        let placed = pool.set_xattr(top, PLACEMENT, policy.into(), XattrMode::Set, false).await;
        placed.map_err(WorkspaceError::pool(TREES))?;
        let place = Path::new(TREES).join(&self.hash);
        let mut binding = JoinSet::new();
        let mut directories = HashMap::new();
        for (hash, name) in self.manifest.contents() {
            let above = place.join(content_place(hash)).parent().map(Path::to_owned).unwrap_or_default();
            let directory = match directories.get(&above) {
                Some(known) => *known,
                None => base.make_dir(&above).await?,
            };
            directories.insert(above, directory);
            if binding.len() >= BOUND_AT_ONCE {
                joined(binding.join_next().await)?;
            }
            let path = self.root.join(name);
            let bound = pool.bind(directory, hash.as_bytes(), &path);
            binding.spawn(async move { bound.await.map(drop).map_err(WorkspaceError::pool(path)) });
        }
        while let Some(bound) = binding.join_next().await {
            joined(Some(bound))?;
        }
        let text = serde_json::to_vec(&self.manifest).expect("its keys are text");
        base.write(&place.join("manifest"), &text).await
    }
}

fn joined(ended: Option<Result<Result<(), WorkspaceError>, tokio::task::JoinError>>) -> Result<(), WorkspaceError> {
    ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())))
}

/// The absolute path of a file or directory, without links in its directory. The directory of the
/// tool file and those above have no links at all.
fn place_of(path: &Path, here: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("{}: {error}", path.display());
    let whole = fs::canonicalize(path).map_err(failed)?;
    let above = fs::canonicalize(here).map_err(failed)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !above.starts_with(&whole) => {
            Ok(fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        _ => Ok(whole),
    }
}

/// A path without `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The directory that has both a directory and another place in it.
fn common(directory: &Path, place: &Path) -> PathBuf {
    let is_above = |above: &&Path| place == *above || place.parent().is_some_and(|parent| parent.starts_with(above));
    directory.ancestors().find(is_above).unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A tool with these files and this directory of programs, and a tree of its files.
    fn tree_of(here: &Path, files: &[&str], path: &str) -> (Tool, Option<ToolTree>) {
        let mut tool = Tool::new("T", vec!["prog".into()], Vec::new());
        tool.here = here.to_str().expect("UTF-8").to_owned();
        tool.files = files.iter().map(|file| (*file).to_owned()).collect();
        tool.path = vec![path.to_owned()];
        let program = here.join(path).join("prog");
        let tree = ToolTree::scan(here, &[(&tool, program.exists().then_some(&program))]).expect("they can be read");
        (tool, tree)
    }

    fn has_program(tool: &Tool, tree: Option<ToolTree>, program: &Path) -> bool {
        ToolTrees { trees: tree.map(|tree| (tool.here.clone(), tree)).into_iter().collect() }.has_program(tool, program)
    }

    fn kit() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("made");
        for directory in ["kit/lib", "kit/bin", "env/bin", "other"] {
            fs::create_dir_all(root.path().join(directory)).expect("made");
        }
        for file in ["kit/run.py", "kit/lib/m.py", "kit/bin/prog", "env/bin/prog"] {
            fs::write(root.path().join(file), file).expect("written");
            fs::set_permissions(root.path().join(file), fs::Permissions::from_mode(0o755)).expect("changed");
        }
        root
    }

    #[test]
    fn a_tree_has_the_named_files_and_the_program_below_the_tool_file() {
        let kit = kit();
        let here = kit.path().join("kit");
        let (tool, tree) = tree_of(&here, &["run.py", "lib", "lib/m.py"], "bin");
        let tree = tree.expect("files travel");
        assert_eq!(tree.inner, Path::new(""));
        assert_eq!(tree.manifest.entries.keys().collect::<Vec<_>>(), ["bin/prog", "lib", "lib/m.py", "run.py"]);
        assert!(has_program(&tool, Some(tree.clone()), &here.join("bin/prog")));
        assert!(!has_program(&tool, Some(tree), Path::new("/bin/sh")));
        assert!(tree_of(&here, &[], "none").1.is_none(), "nothing travels");
    }

    #[test]
    fn an_environment_beside_the_tools_keeps_its_place_also_as_a_link() {
        let kit = kit();
        let here = kit.path().join("kit");
        let (tool, tree) = tree_of(&here, &["../env"], "../env/bin");
        let found = tree.as_ref().expect("files travel");
        assert_eq!(found.inner, Path::new("kit"));
        assert!(found.manifest.entries.contains_key("env/bin/prog"));
        assert!(has_program(&tool, tree, &here.join("../env/bin/prog")));
        symlink(kit.path().join("env"), kit.path().join("linked")).expect("linked");
        let (tool, tree) = tree_of(&here, &["../linked"], "../linked/bin");
        assert!(tree.as_ref().expect("files travel").manifest.entries.contains_key("linked/bin/prog"));
        assert!(has_program(&tool, tree, &here.join("../linked/bin/prog")));
    }
}
