//! Versions of tools: the first line that a tool's `version` command prints.

use exec::Launch;
use flow::Tool;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time limit for the version command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Upper bound of the characters of the line that are kept.
const LINE_CHARS_MAX: usize = 200;

/// Cache of versions; each pair of command and directory is run once.
#[derive(Debug)]
pub struct ToolVersions {
    environment: Vec<(OsString, OsString)>,
    cancel: CancellationToken,
    known: HashMap<(Vec<String>, String), Option<String>>,
}

impl ToolVersions {
    /// Creates an empty cache. Commands run with `environment`, and are ended when `cancel` fires.
    pub fn new(environment: Vec<(OsString, OsString)>, cancel: CancellationToken) -> Self {
        Self { environment, cancel, known: HashMap::new() }
    }

    /// The version of `tool`; `None` if it declares no version command or the command prints
    /// nothing.
    pub async fn version_of(&mut self, tool: &Tool) -> Option<String> {
        if tool.version.is_empty() {
            return None;
        }
        let key = (tool.version.clone(), tool.here.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let version = self.run_command(tool).await;
        self.known.insert(key, version.clone());
        version
    }

    async fn run_command(&self, tool: &Tool) -> Option<String> {
        let (program, args) = tool.version.split_first()?;
        let here = Path::new(&tool.here);
        let path = self.environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
        let dirs = exec::search_dirs(&tool.path, here, path);
        let program = exec::which(OsStr::new(program), &dirs, here).ok()?;
        let launch = Launch {
            args: args.iter().map(OsString::from).collect(),
            env: self.environment.clone(),
            timeout: Some(TIMEOUT),
            ..Launch::new(program, "/")
        };
        let report = exec::run(launch, self.cancel.clone()).await;
        // Some programs print their version on standard error, and some exit with an error.
        let printed = if report.stdout.is_empty() { &report.stderr } else { &report.stdout };
        let text = String::from_utf8_lossy(printed.head()).into_owned();
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(LINE_CHARS_MAX).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queried(version: &[&str]) -> Option<String> {
        let tool: Tool = serde_json::from_value(serde_json::json!({"name": "t", "command": ["t"], "version": version}))
            .expect("a tool");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(ToolVersions::new(std::env::vars_os().collect(), CancellationToken::new()).version_of(&tool))
    }

    #[test]
    fn the_first_line_that_says_something_is_the_version() {
        assert_eq!(queried(&["sh", "-c", "echo; echo ' tide 1.2 '; echo more"]).as_deref(), Some("tide 1.2"));
        assert_eq!(queried(&["sh", "-c", "echo v3 >&2; exit 1"]).as_deref(), Some("v3"));
    }

    #[test]
    fn who_says_nothing_or_is_not_there_has_no_version() {
        assert_eq!(queried(&[]), None);
        assert_eq!(queried(&["true"]), None);
        assert_eq!(queried(&["no-such-program-anywhere"]), None);
    }
}
