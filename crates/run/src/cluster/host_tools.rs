//! The tools of one host: their programs, and their files, which are the host's own if it has the
//! same, or copies from the pool. Files are looked for and copied in the background, once for all
//! attempts, which wait for them. A copy that was removed comes again when an attempt needs it.

use super::messages::{AgentTool, AgentTree, TREES};
use super::tree_copy::TreeCopy;
use crate::order::{AttemptOrder, at_here};
use crate::outcome::AttemptFailure;
use crate::tool_manifest::ToolManifest;
use crate::workspace::copy::{blocking, bytes_of};
use crate::workspace::host_cleanup::remove_any;
use base::Problem;
use flow::ToolId;
use parking_lot::Mutex;
use report::ReasonKind;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vfs::Vfs;

/// Programs and files of the tools on this host.
#[derive(Debug, Default)]
pub struct HostTools {
    tools: HashMap<ToolId, HostTool>,
    /// The trees, by their hashes.
    trees: HashMap<String, Arc<HostTree>>,
    /// Ends the copies.
    cancel: CancellationToken,
}

/// The directory of a tool file on this host or why its files are not here; `None` until known.
type TreeState = Option<Result<PathBuf, String>>;

/// The files of the tools of one tool file.
#[derive(Debug)]
struct HostTree {
    tree: AgentTree,
    pool: Vfs,
    /// Directory of the copy, if one is needed.
    directory: PathBuf,
    cancel: CancellationToken,
    state: watch::Sender<TreeState>,
    use_now: Mutex<TreeUse>,
}

/// Times that a copy which failed is made again. The disk may have space then, or the pool answer.
const COPY_RETRIES_MAX: u32 = 2;

#[derive(Debug)]
struct TreeUse {
    /// Number of attempts that use the files or wait for them.
    users: u32,
    /// The removal of the copy, which nobody has needed since.
    removal: Option<JoinHandle<()>>,
    /// Number of times that a copy which failed may be made again.
    retries: u32,
}

impl TreeUse {
    fn new(retries: u32) -> Self {
        Self { users: 0, removal: None, retries }
    }
}

/// Keeps the files of a tool on this host while an attempt uses them.
#[derive(Debug)]
pub struct ToolFilesGuard(Option<Arc<HostTree>>);

impl Drop for ToolFilesGuard {
    fn drop(&mut self) {
        if let Some(tree) = &self.0 {
            tree.use_now.lock().users -= 1;
        }
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
        let known = Arc::new(HostTree {
            tree: tree.clone(),
            pool: pool.clone(),
            directory,
            cancel: self.cancel.clone(),
            state: watch::Sender::new(None),
            use_now: Mutex::new(TreeUse::new(COPY_RETRIES_MAX)),
        });
        known.begin(None);
        self.trees.insert(tree.hash.clone(), known);
    }

    /// Removes the copy of the files of the tool file in `here`, unless an attempt uses them.
    pub fn leave(&self, here: &Path) {
        for tree in self.trees.values().filter(|tree| tree.tree.here == here) {
            tree.leave();
        }
    }

    /// Gives up copies that are not complete, and waits until nothing is written any more.
    pub async fn close(&self) {
        self.cancel.cancel();
        for tree in self.trees.values() {
            let removal = tree.use_now.lock().removal.take();
            let _ = tree.state.subscribe().wait_for(Option::is_some).await;
            if let Some(removal) = removal {
                let _ = removal.await;
            }
        }
    }

    /// An order with the paths of this host, when the files of its tool are here. They stay while
    /// the guard is there.
    pub async fn localize(
        &self,
        order: &AttemptOrder,
        cancel: &CancellationToken,
    ) -> Result<(AttemptOrder, ToolFilesGuard), AttemptFailure> {
        let not_started = |text: String| AttemptFailure::new(ReasonKind::NotStarted, text);
        let unknown = || not_started(format!("this host does not know tool {}", order.tool_name));
        let HostTool { tool, program } = self.tools.get(&order.tool).ok_or_else(unknown)?;
        let missing = |why| not_started(format!("the files of tool {} cannot be had on this host: {why}", tool.name));
        let (here, files) = match &tool.tree {
            None => (None, ToolFilesGuard(None)),
            Some(hash) => {
                let tree = self.trees.get(hash).ok_or_else(|| missing("this host does not know them".to_owned()))?;
                tree.acquire();
                let files = ToolFilesGuard(Some(tree.clone()));
                (Some(tree.wait(cancel).await?.map_err(missing)?), files)
            }
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
        Ok((order, files))
    }
}

impl HostTree {
    /// Looks for the files, or copies them, in the background, after the removal of an earlier
    /// copy.
    fn begin(self: &Arc<Self>, removal: Option<JoinHandle<()>>) {
        let tree = self.clone();
        tokio::spawn(async move {
            if let Some(removal) = removal {
                let _ = removal.await;
            }
            let provided = provide(&tree.tree, &tree.pool, tree.directory.clone(), tree.cancel.clone()).await;
            if let Err(why) = &provided {
                tracing::warn!("files of tools cannot be had: {why}");
            }
            tree.state.send_replace(Some(provided));
        });
    }

    /// Counts an attempt that uses the files. Lets them come again if they were removed, or could
    /// not be copied.
    fn acquire(self: &Arc<Self>) {
        let mut use_now = self.use_now.lock();
        use_now.users += 1;
        let has_failed = use_now.retries > 0 && matches!(&*self.state.borrow(), Some(Err(_)));
        let removal = use_now.removal.take();
        if has_failed || removal.is_some() {
            use_now.retries -= u32::from(has_failed);
            self.state.send_replace(None);
            self.begin(removal);
        }
    }

    /// Removes the copy in the background, if it is complete and nobody uses it.
    fn leave(&self) {
        let is_copy = matches!(&*self.state.borrow(), Some(Ok(here)) if here.starts_with(&self.directory));
        let mut use_now = self.use_now.lock();
        if is_copy && use_now.users == 0 && use_now.removal.is_none() {
            let directory = self.directory.clone();
            use_now.removal = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = remove_any(&directory) {
                    tracing::warn!(path = %directory.display(), %error, "a copy of tools' files stays");
                }
            }));
        }
    }

    /// Waits for the files; fails if the attempt is ended meanwhile.
    async fn wait(&self, cancel: &CancellationToken) -> Result<Result<PathBuf, String>, AttemptFailure> {
        let mut state = self.state.subscribe();
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
    use crate::cluster::messages::content_place;
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

    /// The tools of a host with the state of its only tree.
    fn tools(state: Result<PathBuf, String>) -> HostTools {
        let tool = AgentTool {
            id: ToolId(0),
            name: "say".into(),
            program: format!("{}/./say", here_token("/old")),
            tree: Some("hash".into()),
            travels: true,
            obstacle: None,
            path: vec!["bin".into(), "/opt/bin".into()],
            here: "/old".into(),
            has_files: false,
            memory: 0,
        };
        let mut tools = HostTools::find(&[tool]).expect("its program comes later");
        let tree = HostTree {
            tree: AgentTree { hash: "hash".into(), here: "/old".into(), root: "/old".into(), inner: PathBuf::new() },
            pool: pool(),
            directory: PathBuf::new(),
            cancel: CancellationToken::new(),
            state: watch::Sender::new(Some(state)),
            use_now: Mutex::new(TreeUse::new(0)),
        };
        tools.trees.insert("hash".into(), Arc::new(tree));
        tools
    }

    /// The tree of a directory that is made with the program `say`.
    fn say_tree(source: &Path) -> ToolManifest {
        fs::create_dir(source).expect("made");
        fs::write(source.join("say"), "#!/bin/sh").expect("written");
        fs::set_permissions(source.join("say"), fs::Permissions::from_mode(0o755)).expect("changed");
        let mut manifest = ToolManifest::scan(source, &[source.join("say")]).expect("read");
        manifest.hash_files(source).expect("read");
        manifest
    }

    fn say_agent_tree(manifest: &ToolManifest) -> AgentTree {
        AgentTree { hash: manifest.hash(), here: "/old".into(), root: "/old".into(), inner: PathBuf::new() }
    }

    /// The tools of a host whose only tool has its files in a tree that is yet to come.
    fn tools_with_tree(manifest: &ToolManifest) -> HostTools {
        let mut tools = tools(Err(String::new()));
        let tool = tools.tools.get_mut(&ToolId(0)).expect("it is known");
        tool.tool.tree = Some(manifest.hash());
        tools
    }

    async fn put_tree(manifest: &ToolManifest, pool: &Vfs) {
        let place = Path::new(TREES).join(manifest.hash());
        let content = place.join(content_place(manifest.contents().keys().next().expect("one")));
        let text = serde_json::to_vec(manifest).expect("written");
        for (file, bytes) in [(place.join("manifest"), &text[..]), (content, b"#!/bin/sh")] {
            pool.make_directories(bytes_of(file.parent().expect("it has one"))).await.expect("made");
            pool.write_file(bytes_of(&file), bytes).await.expect("written");
        }
    }

    fn pool() -> Vfs {
        let settings = node::NodeSettings::new(base::ByteSize::mib(32));
        let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
        Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))))
    }

    #[tokio::test]
    async fn an_order_gets_the_paths_of_the_copy() {
        let copy = tempfile::tempdir().expect("made");
        fs::create_dir(copy.path().join("bin")).expect("made");
        std::os::unix::fs::symlink("/bin/sh", copy.path().join("say")).expect("linked");
        let localized = tools(Ok(copy.path().to_owned())).localize(&order(), &CancellationToken::new()).await;
        let (localized, _files) = localized.expect("all is here");
        let at = |name: &str| copy.path().join(name).display().to_string();
        assert_eq!(localized.program, copy.path().join("./say"));
        let command = localized.command_at("", &|_| String::new());
        assert_eq!((command.args, command.path), (vec![at("x")], vec![at("bin"), "/opt/bin".to_owned()]));
    }

    #[tokio::test]
    async fn a_copy_of_tools_that_are_left_goes_when_no_attempt_uses_it_and_comes_again() {
        let root = tempfile::tempdir().expect("made");
        let (source, directory) = (root.path().join("source"), root.path().join("copy"));
        let (manifest, pool) = (say_tree(&source), pool());
        put_tree(&manifest, &pool).await;
        let mut tools = tools_with_tree(&manifest);
        tools.provide(&say_agent_tree(&manifest), &pool, directory.clone());
        for _ in 0..2 {
            let (_, files) = tools.localize(&order(), &CancellationToken::new()).await.expect("it is here");
            tools.leave(Path::new("/old"));
            assert!(directory.join("say").exists(), "an attempt uses it");
            drop(files);
            tools.leave(Path::new("/other"));
            assert!(directory.join("say").exists(), "others are left");
            tools.leave(Path::new("/old"));
        }
        tools.close().await;
        assert!(!directory.exists());
    }

    #[tokio::test]
    async fn a_copy_that_failed_is_made_again_for_the_next_order() {
        let root = tempfile::tempdir().expect("made");
        let (source, copy) = (root.path().join("source"), root.path().join("copy"));
        let (manifest, pool) = (say_tree(&source), pool());
        let mut tools = tools_with_tree(&manifest);
        tools.provide(&say_agent_tree(&manifest), &pool, copy.clone());
        let failure = tools.localize(&order(), &CancellationToken::new()).await.expect_err("the pool has nothing");
        assert!(failure.text.contains("manifest"), "{failure:?}");
        put_tree(&manifest, &pool).await;
        let (localized, _files) = tools.localize(&order(), &CancellationToken::new()).await.expect("it is there now");
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
