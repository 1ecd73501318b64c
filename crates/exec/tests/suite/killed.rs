//! Tools die when this process is killed by SIGKILL. The test runs itself as the process to kill.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use exec::{Launch, protect, run};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use tokio_util::sync::CancellationToken;

/// Set in the process to kill.
const MARK: &str = "EXEC_TEST_IS_KILLED";

#[test]
fn tools_and_their_children_die_when_we_are_killed() {
    if std::env::var_os(MARK).is_some() {
        return run_tools_for_ever();
    }
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(itself);
    command.args(["--exact", "killed::tools_and_their_children_die_when_we_are_killed", "--nocapture"]);
    let mut victim = command.env(MARK, "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The tools and their children hold this pipe open, so it ends when all of them are dead.
    let mut words = BufReader::new(victim.stderr.take().unwrap());
    let mut ready = String::new();
    while !["ready 1", "ready 2", "both recorded"].iter().all(|word| ready.contains(word)) {
        assert_ne!(words.read_line(&mut ready).unwrap(), 0, "the tools start: {ready}");
    }
    victim.kill().unwrap();
    victim.wait().unwrap();
    let mut rest = String::new();
    words.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("survived"), "{rest}");
}

fn run_tools_for_ever() {
    protect().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let own_stderr = format!("/proc/{}/fd/2", std::process::id());
    let tool = |number: u32| {
        let mut launch = Launch::new("/bin/sh", "/");
        let script =
            format!("exec 2>{own_stderr}; trap '' TERM; echo ready {number} >&2; sleep 20 & wait; echo survived >&2");
        launch.args = vec!["-c".into(), script.into()];
        run(launch, CancellationToken::new())
    };
    runtime.block_on(async {
        // The list entry of an ended process is reused.
        run(Launch::new("/bin/true", "/"), CancellationToken::new()).await;
        let recorded = async { eprintln!("both recorded") };
        tokio::join!(tool(1), tool(2), recorded);
    });
}
