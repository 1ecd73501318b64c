//! Provenance: hashes of the tools' declarations, programs and files, and of the inputs.

use crate::preflight;
use crate::tool_manifest::ToolManifest;
use flow::DataId;
use report::{FileProvenance, Seed, ToolProvenance};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// BLAKE3 of a file's bytes in hexadecimal, and its size.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub fn hash_file(path: &Path) -> io::Result<(String, u64)> {
    hash_file_unless(path, &|| false)
}

fn hash_file_unless(path: &Path, cancelled: &dyn Fn() -> bool) -> io::Result<(String, u64)> {
    const CHUNK_BYTES: usize = 256 << 10;
    let mut file = preflight::open_file(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    while !cancelled() {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((hasher.finalize().to_hex().to_string(), bytes)),
            Ok(got) => {
                hasher.update(&chunk[..got]);
                bytes += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the run was ended"))
}

/// Tools and inputs to hash.
#[derive(Debug)]
pub struct HashTargets {
    /// Tools that the run calls.
    pub tools: Vec<ResolvedTool>,
    /// Inputs of the run.
    pub inputs: Vec<(DataId, PathBuf)>,
}

/// Hashes of a run's tools and inputs, as far as they could be read.
#[derive(Debug, Default)]
pub struct InputHashes {
    /// Tools with their hashes, as in the report.
    pub tools: Vec<ToolProvenance>,
    /// Hash and size in bytes of each input.
    pub inputs: Vec<(DataId, String, u64)>,
}

impl HashTargets {
    /// Reads and hashes everything; blocks the thread. Inputs that are not read before `cancelled`
    /// returns true are left out.
    pub fn hashes(&self, cancelled: &dyn Fn() -> bool) -> InputHashes {
        // Many tools may name one virtual environment.
        let mut known = HashMap::new();
        let tools = self.tools.iter().map(|tool| tool_provenance(tool, &mut known)).collect();
        let hash = |(id, path): &(DataId, PathBuf)| {
            let (hash, bytes) = hash_file_unless(path, cancelled).ok()?;
            Some((*id, hash, bytes))
        };
        InputHashes { tools, inputs: self.inputs.iter().filter_map(hash).collect() }
    }
}

/// A tool with the path of its program.
#[derive(Debug, Clone)]
pub struct ResolvedTool {
    /// Declaration of the tool.
    pub tool: flow::Tool,
    /// Path of the program.
    pub program: PathBuf,
}

/// The report's entry for a tool. Its hash covers the declaration (without the path of its
/// directory), its files and its program. `known` are the paths that were hashed before.
pub fn tool_provenance(resolved: &ResolvedTool, known: &mut HashMap<PathBuf, (Option<String>, u64)>) -> ToolProvenance {
    let tool = &resolved.tool;
    let mut file_provenance = |path: &String| {
        let whole = Path::new(&tool.here).join(path);
        let (hash, bytes) = known.entry(whole).or_insert_with_key(|whole| hash_of_any(whole)).clone();
        FileProvenance { path: path.clone(), bytes, hash }
    };
    let files: Vec<FileProvenance> = tool.files.iter().map(&mut file_provenance).collect();
    let program_hash = hash_file(&resolved.program).ok().map(|(hash, _)| hash);
    let declaration = flow::Tool { here: String::new(), ..tool.clone() };
    let mut hasher = blake3::Hasher::new();
    hasher.update(serde_json::to_string(&declaration).unwrap_or_default().as_bytes());
    for part in files.iter().filter_map(|file| file.hash.as_ref()).chain(&program_hash) {
        hasher.update(part.as_bytes());
    }
    ToolProvenance {
        name: tool.name.clone(),
        description: tool.description.clone(),
        hash: Some(hasher.finalize().to_hex().to_string()),
        command: tool.command.clone(),
        program: Some(resolved.program.display().to_string()),
        program_hash,
        program_version: None,
        files,
    }
}

/// Hash and size of a file, or of a directory with all in it.
fn hash_of_any(path: &Path) -> (Option<String>, u64) {
    let hash_directory = || {
        let mut manifest = ToolManifest::scan(path, &[path.to_owned()]).ok()?;
        manifest.hash_files(path).ok()?;
        Some((manifest.hash(), manifest.bytes()))
    };
    let hashed = if path.is_dir() { hash_directory() } else { hash_file(path).ok() };
    hashed.map_or((None, 0), |(hash, bytes)| (Some(hash), bytes))
}

/// Config values, defaults included, whose name ends in `seed` in any case, and `TIDEMILL_*`
/// variables.
pub fn seeds(workflow: &flow::Workflow, environment: impl Iterator<Item = (String, String)>) -> Vec<Seed> {
    let mut counts: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for task in &workflow.tasks {
        let tool = workflow.tool_of(task);
        for (number, param) in tool.params.iter().enumerate() {
            let flow::ParamKind::Config { default, .. } = &param.kind else { continue };
            if !param.name.to_ascii_lowercase().ends_with("seed") {
                continue;
            }
            let given = task.configs.iter().find(|config| usize::from(config.param) == number);
            if let Some(value) = given.map(|config| &config.value).or(default.as_ref()) {
                let text = serde_json::to_string(value).unwrap_or_default();
                *counts.entry((tool.name.clone(), param.name.clone(), text)).or_default() += 1;
            }
        }
    }
    let of_tools = counts.into_iter().map(|((tool, name, value), tasks)| Seed {
        name,
        value: serde_json::from_str(&value).unwrap_or_default(),
        tool: Some(tool),
        tasks,
    });
    let variables = environment.filter(|(name, _)| name.starts_with("TIDEMILL_"));
    let of_environment = variables.map(|(name, value)| Seed { name, value: value.into(), tool: None, tasks: 0 });
    of_tools.chain(of_environment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_ended_does_not_wait_for_hashes() {
        let root = tempfile::tempdir().expect("made");
        let path = root.path().join("in");
        std::fs::write(&path, "tide").expect("written");
        let of = HashTargets { tools: Vec::new(), inputs: vec![(DataId(3), path)] };
        let expected = (DataId(3), blake3::hash(b"tide").to_hex().to_string(), 4);
        assert_eq!(of.hashes(&|| false).inputs, [expected]);
        assert_eq!(of.hashes(&|| true).inputs, []);
    }

    #[test]
    fn a_tool_hash_changes_with_its_files_and_not_with_its_place() {
        let (here, there) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let hash = |directory: &Path, name: &str, text: &str| {
            std::fs::create_dir_all(directory.join("lib")).expect("made");
            for file in ["lib.sh", "lib/part.sh"] {
                std::fs::write(directory.join(file), text).expect("written");
            }
            let mut tool: flow::Tool =
                serde_json::from_value(serde_json::json!({"name": "t", "command": ["sh"]})).expect("a tool");
            (tool.here, tool.files) = (directory.display().to_string(), vec![name.to_owned()]);
            let provenance = tool_provenance(&ResolvedTool { tool, program: "/bin/sh".into() }, &mut HashMap::new());
            assert_eq!(provenance.files[0].bytes, 3);
            provenance.hash
        };
        for name in ["lib.sh", "lib"] {
            assert_eq!(hash(here.path(), name, "one"), hash(there.path(), name, "one"));
            assert_ne!(hash(here.path(), name, "one"), hash(here.path(), name, "two"));
        }
    }

    #[test]
    fn seeds_are_counted_by_value_with_the_default() {
        let tool = serde_json::json!({"name": "t", "command": ["x"], "params": [
            {"name": "my_seed", "kind": {"config": {"type": "integer", "default": 7}}}]});
        let tool: flow::Tool = serde_json::from_value(tool).expect("a tool");
        let task = flow::Task {
            tool: flow::ToolId(0),
            files: [].into(),
            configs: [].into(),
            after: [].into(),
            line: 0,
            placing: None,
        };
        let workflow = flow::Workflow { tools: vec![tool], tasks: vec![task.clone(), task], ..Default::default() };
        let found = seeds(&workflow, std::iter::once(("TIDEMILL_X".to_owned(), "1".to_owned())));
        assert_eq!((found[0].name.as_str(), found[0].tasks, found.len()), ("my_seed", 2, 2));
    }
}
