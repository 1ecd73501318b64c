//! Hashes of what a run was made of: the tools' declarations, programs and files, and the inputs.

use report::{FileUsed, Seed, ToolUsed};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// BLAKE3 of a file's bytes in hexadecimal, and its size.
pub fn hash_file(path: &Path) -> io::Result<(String, u64)> {
    const CHUNK_BYTES: usize = 256 << 10;
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
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
}

/// A tool with the program that its command was found to be.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The declaration.
    pub tool: flow::Tool,
    /// The program.
    pub program: PathBuf,
}

/// What the report says of a tool: its hash covers the declaration (without the folder it lies in), its files and its program.
pub fn tool_used(resolved: &Resolved) -> ToolUsed {
    let tool = &resolved.tool;
    let files: Vec<FileUsed> = tool.files.iter().map(|file| file_used(Path::new(&tool.here), file)).collect();
    let program_hash = hash_file(&resolved.program).ok().map(|(hash, _)| hash);
    let declaration = flow::Tool { here: String::new(), ..tool.clone() };
    let mut hasher = blake3::Hasher::new();
    hasher.update(serde_json::to_string(&declaration).unwrap_or_default().as_bytes());
    for part in files.iter().filter_map(|file| file.hash.as_ref()).chain(&program_hash) {
        hasher.update(part.as_bytes());
    }
    ToolUsed {
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

fn file_used(here: &Path, path: &str) -> FileUsed {
    let hashed = hash_file(&here.join(path)).ok();
    let bytes = hashed.as_ref().map_or(0, |(_, bytes)| *bytes);
    FileUsed { path: path.to_owned(), bytes, hash: hashed.map(|(hash, _)| hash) }
}

/// Config values whose name is or ends in `seed`, defaults included, and `TIDEMILL_*` variables.
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
