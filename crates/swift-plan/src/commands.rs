//! Programs that a script runs itself (`system`), beside the tasks of its workflow.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use swift::ScriptAnswer;
use tokio::process::Command;

/// Runs a program and waits for its end; it is killed if the run ends before. Its standard error is
/// that of the run.
///
/// # Errors
/// It could not be started, or printed something that is no text.
pub async fn run(words: &[String]) -> Result<ScriptAnswer, String> {
    let Some((program, arguments)) = words.split_first() else { return Err("there is no program to run".to_owned()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let ended = match command.spawn() {
        Ok(child) => child.wait_with_output().await,
        Err(error) => Err(error),
    };
    let ended = ended.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    let mut output = String::from_utf8(ended.stdout).map_err(|_| format!("what `{program}` printed is no text"))?;
    if output.ends_with('\n') {
        output.pop();
    }
    let of_signal = ended.status.signal().map_or(1, |signal| 128 + signal);
    Ok(ScriptAnswer::Ended { output, exit_code: ended.status.code().unwrap_or(of_signal) })
}
