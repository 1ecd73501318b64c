//! The tools of one host: their programs, and their files, which are the host's own if it has the
//! same, or copies from the pool. Files are looked for and copied in the background, once for all
//! attempts, which wait for them.

use super::messages::{AgentTool, AgentTree, TREES};
use super::tree_copy::TreeCopy;
use crate::order::{AttemptOrder, at_here};
use crate::outcome::AttemptFailure;
use crate::tool_manifest::ToolManifest;
use crate::workspace::copy::{blocking, bytes_of};
use base::Problem;
use flow::ToolId;
use parking_lot::Mutex;
use report::ReasonKind;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// Programs and files of the tools on this host.
#[derive(Debug, Default)]
pub struct HostTools {
    tools: HashMap<ToolId, HostTool>,
    /// The trees, by their hashes.
    trees: HashMap<String, HostTree>,
    /// Ends the copies.
    cancel: CancellationToken,
}

/// The directory of a tool file on this host or why its files are not here; `None` until known.
type TreeState = watch::Receiver<Option<Result<PathBuf, String>>>;

/// A tree of tools' files on this host.
#[derive(Debug)]
struct HostTree {
    state: Mutex<TreeState>,
    source: TreeSource,
    /// Number of times that a copy which failed may be made again.
    retries: AtomicU32,
}

/// Times that a copy which failed is made again. The disk may have space then, or the pool answer.
const COPY_RETRIES_MAX: u32 = 2;

/// Where a tree comes from, and where its copy goes.
#[derive(Debug, Clone)]
struct TreeSource {
    tree: AgentTree,
    pool: Vfs,
    directory: PathBuf,
}

impl TreeSource {
    /// Begins to look for the tree, or to copy it.
    fn provide(self, cancel: CancellationToken) -> TreeState {
        let (tell, state) = watch::channel(None);
        tokio::spawn(async move {
            let provided = provide(&self.tree, &self.pool, self.directory, cancel).await;
            if let Err(why) = &provided {
                tracing::warn!("files of tools cannot be had: {why}");
            }
            tell.send_replace(Some(provided));
        });
        state
    }
}

impl HostTree {
    /// What is known of the tree. A copy that failed before is made again.
    fn state(&self, cancel: &CancellationToken) -> TreeState {
        let mut state = self.state.lock();
        let has_failed = matches!(*state.borrow(), Some(Err(_)));
        let fewer = |retries: u32| retries.checked_sub(1);
        if has_failed && self.retries.fetch_update(Relaxed, Relaxed, fewer).is_ok() {
            *state = self.source.clone().provide(cancel.clone());
        }
        state.clone()
    }
}

#[derive(Debug)]
struct HostTool {
    tool: AgentTool,
    /// Path of its program; `None` if that is among the files that travel.
    program: Option<PathBuf>,
}

impl HostTools {
    /// Finds the programs that do not travel.
    pub fn find(called: &[AgentTool]) -> Result<Self, Problem> {
        let mut tools = HashMap::new();
        for tool in called {
            let program = if tool.travels {
                None
            } else {
                let here = &tool.here.to_string_lossy();
                let found = find_program(tool, &at_here(&tool.program, here), &paths(tool, None));
                Some(found.map_err(|why| {
                    Problem::new(why).hint("install it on every host, or name its directory in the tool's `path`")
                })?)
            };
            tools.insert(tool.id, HostTool { tool: tool.clone(), program });
        }
        Ok(Self { tools, ..Self::default() })
    }

    /// Path of a tool's program, if that does not travel.
    pub fn program(&self, tool: ToolId) -> Option<&Path> {
        self.tools.get(&tool)?.program.as_deref()
    }

    /// Begins to look for a tree. If this host has not the same, it is copied to `directory`, which
    /// does not exist yet. Must be called within a tokio runtime.
    pub fn provide(&mut self, tree: &AgentTree, pool: &Vfs, directory: PathBuf) {
        let source = TreeSource { tree: tree.clone(), pool: pool.clone(), directory };
        let state = Mutex::new(source.clone().provide(self.cancel.clone()));
        self.trees.insert(tree.hash.clone(), HostTree { state, source, retries: COPY_RETRIES_MAX.into() });
    }

    /// Gives up copies that are not complete, and waits until nothing is written any more.
    pub async fn close(&self) {
        self.cancel.cancel();
        for tree in self.trees.values() {
            let mut state = tree.state.lock().clone();
            // An error means that its task is gone.
            let _ = state.wait_for(Option::is_some).await;
        }
    }

    /// An order with the paths of this host, when the files of its tool are here.
    pub async fn localize(
        &self,
        order: &AttemptOrder,
        cancel: &CancellationToken,
    ) -> Result<AttemptOrder, AttemptFailure> {
        let not_started = |text: String| AttemptFailure::new(ReasonKind::NotStarted, text);
        let unknown = || not_started(format!("this host does not know tool {}", order.tool_name));
        let HostTool { tool, program } = self.tools.get(&order.tool).ok_or_else(unknown)?;
        let here = match &tool.tree {
            None => None,
            Some(hash) => Some(self.here(hash, cancel).await?.map_err(|why| {
                not_started(format!("the files of tool {} cannot be had on this host: {why}", tool.name))
            })?),
        };
        let mut order = order.clone();
        order.command.path = paths(tool, here.as_deref());
        order.here = here.unwrap_or_else(|| tool.here.clone()).to_string_lossy().into_owned();
        order.program = match program {
            Some(program) => program.clone(),
            None => {
                find_program(tool, &at_here(&tool.program, &order.here), &order.command.path).map_err(not_started)?
            }
        };
        Ok(order)
    }

    /// Waits for a tree; fails if the attempt is ended meanwhile.
    async fn here(&self, hash: &str, cancel: &CancellationToken) -> Result<Result<PathBuf, String>, AttemptFailure> {
        let Some(tree) = self.trees.get(hash) else {
            return Ok(Err("this host does not know them".into()));
        };
        let mut state = tree.state(&self.cancel);
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(AttemptFailure {
                retry: false,
                ..AttemptFailure::new(ReasonKind::Cancelled, "the run was ended while it waited for its tool's files")
            }),
            known = state.wait_for(Option::is_some) => {
                let known = known.ok().and_then(|known| known.clone());
                Ok(known.unwrap_or_else(|| Err("the copy was given up".into())))
            }
        }
    }
}

/// The directories that are searched before `PATH`: of a tool with a copy at `here` those in it, if
/// they are there, else those of the machine that started the run.
fn paths(tool: &AgentTool, here: Option<&Path>) -> Vec<String> {
    let own = |directory: &String| {
        let copied = here.map(|here| here.join(directory)).filter(|copied| copied.is_dir());
        copied.unwrap_or_else(|| tool.here.join(directory)).to_string_lossy().into_owned()
    };
    tool.path.iter().map(own).collect()
}

fn find_program(tool: &AgentTool, program: &str, own: &[String]) -> Result<PathBuf, String> {
    let dirs = exec::search_dirs(own, &tool.here, std::env::var_os("PATH").as_deref());
    exec::which(OsStr::new(program), &dirs, &tool.here).map_err(|why| format!("tool {}: {why}", tool.name))
}

/// The directory of the tool file on this host, with all that belongs to it.
async fn provide(
    tree: &AgentTree,
    pool: &Vfs,
    directory: PathBuf,
    cancel: CancellationToken,
) -> Result<PathBuf, String> {
    let source = Path::new(TREES).join(&tree.hash);
    let place = source.join("manifest");
    let text = pool.read_file(bytes_of(&place)).await.map_err(|refusal| format!("{}: {refusal}", place.display()))?;
    let manifest: ToolManifest =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", place.display()))?;
    if manifest.hash() != tree.hash {
        return Err(format!("{} is damaged: its hash is another", place.display()));
    }
    let manifest = Arc::new(manifest);
    let (known, wanted) = (tree.clone(), manifest.clone());
    let is_here = blocking(move || Ok(has_own(&known, &wanted))).await.unwrap_or(false);
    if is_here {
        return Ok(tree.here.clone());
    }
    let here = directory.join(&tree.inner);
    tracing::info!("the files of the tools in {} are copied to {}", tree.here.display(), directory.display());
    TreeCopy { manifest, source, old_root: tree.root.clone(), root: directory, cancel }.make(pool).await?;
    Ok(here)
}

/// Returns whether the same tree is where it is at the machine that started the run.
fn has_own(tree: &AgentTree, manifest: &ToolManifest) -> bool {
    let here = fs::canonicalize(&tree.here);
    here.is_ok_and(|here| here == tree.root.join(&tree.inner)) && manifest.is_at(&tree.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked_workflow::CheckedWorkflow;
    use crate::layout::{AttemptPlace, RunLayout};
    use crate::order::here_token;
    use flow::TaskId;
    use std::os::unix::fs::PermissionsExt;

    const FLOW: &str = r#"{"tidemill_flow": 1, "name": "f", "elements": [],
        "tools": [{"name": "say", "command": ["./say", "{here}/x"], "here": "/old", "path": ["bin", "/opt/bin"]}],
        "tasks": [{"tool": "say"}]}"#;

    fn order() -> AttemptOrder {
        let flow = CheckedWorkflow::new(flow::from_json(FLOW, "f.json").expect("read"), None).expect("right");
        let place = AttemptPlace { attempt: 1, node: None };
        AttemptOrder::new(&flow, &RunLayout::default(), (TaskId(0), place), "/old/say".into(), &|_| None)
    }

    fn pool() -> Vfs {
        let settings = node::NodeSettings::new(base::ByteSize::mib(32));
        let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
        Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))))
    }

    fn tree(hash: &str, root: &Path) -> AgentTree {
        AgentTree { hash: hash.into(), here: "/old".into(), root: root.to_owned(), inner: PathBuf::new() }
    }

    /// The tools of a host with the state of its only tree.
    fn tools(state: Result<PathBuf, String>) -> HostTools {
        let source = TreeSource { tree: tree("hash", Path::new("/old")), pool: pool(), directory: "/none".into() };
        let state = Mutex::new(watch::channel(Some(state)).1);
        let mut tools = tools_with("hash");
        tools.trees.insert("hash".into(), HostTree { state, source, retries: 0.into() });
        tools
    }

    /// The tools of a host whose only tool has its files in a tree.
    fn tools_with(tree: &str) -> HostTools {
        let tool = AgentTool {
            id: ToolId(0),
            name: "say".into(),
            program: format!("{}/./say", here_token("/old")),
            tree: Some(tree.into()),
            travels: true,
            obstacle: None,
            path: vec!["bin".into(), "/opt/bin".into()],
            here: "/old".into(),
            has_files: false,
            memory: 0,
        };
        HostTools::find(&[tool]).expect("its program comes later")
    }

    #[tokio::test]
    async fn an_order_gets_the_paths_of_the_copy() {
        let copy = tempfile::tempdir().expect("made");
        fs::create_dir(copy.path().join("bin")).expect("made");
        std::os::unix::fs::symlink("/bin/sh", copy.path().join("say")).expect("linked");
        let localized = tools(Ok(copy.path().to_owned())).localize(&order(), &CancellationToken::new()).await;
        let localized = localized.expect("all is here");
        let at = |name: &str| copy.path().join(name).display().to_string();
        assert_eq!(localized.program, copy.path().join("./say"));
        let command = localized.command_at("", &|_| String::new());
        assert_eq!((command.args, command.path), (vec![at("x")], vec![at("bin"), "/opt/bin".to_owned()]));
    }

    #[tokio::test]
    async fn a_copy_that_failed_is_made_again_for_the_next_order() {
        let root = tempfile::tempdir().expect("made");
        let (old, copy) = (root.path().join("old"), root.path().join("copy"));
        fs::create_dir(&old).expect("made");
        fs::write(old.join("say"), "#!/bin/sh").expect("written");
        fs::set_permissions(old.join("say"), fs::Permissions::from_mode(0o755)).expect("changed");
        let mut manifest = ToolManifest::scan(&old, &[old.join("say")]).expect("read");
        manifest.hash_files(&old).expect("read");
        let (hash, pool, cancel) = (manifest.hash(), pool(), CancellationToken::new());
        let mut tools = tools_with(&hash);
        tools.provide(&tree(&hash, &old), &pool, copy.clone());
        let failure = tools.localize(&order(), &cancel).await.expect_err("the pool has nothing");
        assert!(failure.text.contains("manifest"), "{failure:?}");
        let (place, text) = (Path::new(TREES).join(&hash), serde_json::to_vec(&manifest).expect("written"));
        for (content, _) in manifest.contents() {
            let content = place.join(crate::cluster::messages::content_place(content));
            pool.make_directories(bytes_of(content.parent().expect("it has one"))).await.expect("made");
            pool.write_file(bytes_of(&content), b"#!/bin/sh").await.expect("written");
        }
        pool.write_file(bytes_of(&place.join("manifest")), &text).await.expect("written");
        let localized = tools.localize(&order(), &cancel).await.expect("it is there now");
        assert_eq!(localized.program, copy.join("./say"));
    }

    #[tokio::test]
    async fn a_tool_without_its_files_fails_so_that_another_host_may_try() {
        let failure = tools(Err("the disk is full".into())).localize(&order(), &CancellationToken::new()).await;
        let failure = failure.expect_err("its files are not here");
        assert_eq!(failure.text, "the files of tool say cannot be had on this host: the disk is full");
        assert!(failure.retry && failure.kind == ReasonKind::NotStarted, "{failure:?}");
        let unknown = HostTools::default().localize(&order(), &CancellationToken::new()).await;
        assert_eq!(unknown.expect_err("there is none").text, "this host does not know tool say");
    }
}
