//! Tests of `run` on real processes, in a binary of its own, because they look at the descriptors
//! and children of the whole process. Scripts signal through a named pipe, so no test waits for a
//! fixed time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use exec::{ExitReason, KEPT_BYTES_MAX, Launch, PathOrFd, ProcessReport, run};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use test_support::until_polled;
use tokio_util::sync::CancellationToken;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_mins(1);

fn shell(dir: &TempDir, script: &str) -> Launch {
    let mut launch = Launch::new("/bin/sh", dir.path());
    launch.args = vec!["-c".into(), script.into()];
    launch.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    launch
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

async fn ran(launch: Launch) -> ProcessReport {
    run(launch, CancellationToken::new()).await
}

/// Number of live processes of a group, without zombies.
fn alive_in(group: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    let fields = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    stats
        .map(fields)
        .filter(|rest| !rest.starts_with(['Z', 'X']) && rest.split(' ').nth(2) == Some(group.trim()))
        .count()
}

/// Creates a named pipe, to which a script writes when it is ready.
fn named_pipe(dir: &TempDir, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap();
    assert!(made.success());
}

/// Reads what the script wrote to the named pipe.
async fn said(dir: &TempDir, name: &str) -> String {
    let path = dir.path().join(name);
    tokio::task::spawn_blocking(move || fs::read_to_string(path).unwrap()).await.unwrap()
}

/// Runs the script and cancels it when it has written to the pipe `ready`. Also returns the text.
async fn cancelled(dir: &TempDir, launch: Launch) -> (ProcessReport, String) {
    named_pipe(dir, "ready");
    let cancel = CancellationToken::new();
    let task = tokio::spawn(run(launch, cancel.clone()));
    let words = said(dir, "ready").await;
    cancel.cancel();
    (task.await.unwrap(), words)
}

#[tokio::test]
async fn the_exit_code_is_told() {
    for code in [0, 1, 3, 255] {
        let report = ran(shell(&dir(), &format!("exit {code}"))).await;
        assert!(matches!(report.ending, ExitReason::Exited(told) if told == code), "{report:?}");
        assert_eq!(report.ending.is_success(), code == 0);
    }
}

#[tokio::test]
async fn a_signal_is_told_by_number_and_name() {
    let report = ran(shell(&dir(), "kill -SEGV $$")).await;
    assert!(matches!(report.ending, ExitReason::Signalled(11)), "{report:?}");
    assert_eq!(report.ending.to_string(), "killed by signal 11 (SEGV)");
}

#[tokio::test]
async fn the_environment_is_exactly_the_given_one() {
    let mut launch = Launch::new("/usr/bin/env", "/");
    launch.env = vec![("ONLY".into(), "this one".into())];
    assert_eq!(ran(launch).await.stdout.to_string(), "ONLY=this one\n");
}

#[tokio::test]
async fn a_child_works_with_what_was_opened_for_it() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("in"), "one two").unwrap();
    fs::create_dir(at("gone")).unwrap();
    let open = |file: File| PathOrFd::Open(Arc::new(file.into()));
    let mut launch = shell(&dir, "cat; echo > beside || echo nowhere; ls -A /proc/self/fd | wc -l >&2");
    launch.stdin = Some(open(File::open(at("in")).unwrap()));
    launch.stdout = Some(open(File::create(at("out")).unwrap()));
    launch.cwd = open(File::open(at("gone")).unwrap());
    fs::remove_dir(at("gone")).unwrap();
    let report = ran(launch).await;
    assert_eq!(fs::read_to_string(at("out")).unwrap(), "one twonowhere\n", "{report:?}");
    assert!(report.stderr.to_string().ends_with("4\n"), "three, and that of the listing: {report:?}");
    assert_eq!(report.stdout.to_string(), "");
}

#[tokio::test]
async fn arguments_reach_the_program_without_a_shell() {
    let mut launch = Launch::new("/usr/bin/printf", "/");
    launch.args = ["%s|", "a b", "$HOME", "*", ""].map(Into::into).to_vec();
    assert_eq!(ran(launch).await.stdout.to_string(), "a b|$HOME|*||");
}

#[tokio::test]
async fn both_streams_are_captured_apart() {
    let report = ran(shell(&dir(), "echo out; echo err >&2; pwd -P >&2")).await;
    assert_eq!(report.stdout.to_string(), "out\n");
    assert!(report.stderr.to_string().starts_with("err\n/"), "{report:?}");
}

#[tokio::test]
async fn a_time_out_ends_a_tool_that_ignores_sigterm_and_its_children() {
    let dir = dir();
    let mut launch = shell(&dir, "trap '' TERM; echo $$; sleep 100 & while :; do sleep 100; done");
    launch.timeout = Some(Duration::from_millis(200));
    launch.grace = Duration::from_millis(100);
    let report = ran(launch).await;
    assert!(matches!(report.ending, ExitReason::TimedOut), "{report:?}");
    assert!(report.wall() >= Duration::from_millis(300) && report.wall() < LONG);
    assert_eq!(alive_in(&report.stdout.to_string()), 0);
}

#[tokio::test]
async fn a_tool_may_tidy_up_within_the_grace() {
    let dir = dir();
    let mut launch = shell(&dir, "trap 'echo tidied; exit 0' TERM; echo > ready; sleep 100 & wait");
    launch.grace = LONG;
    let (report, _) = cancelled(&dir, launch).await;
    assert!(matches!(report.ending, ExitReason::Cancelled), "{report:?}");
    assert_eq!(report.stdout.to_string(), "tidied\n");
    assert!(report.wall() < LONG);
}

#[tokio::test]
async fn cancel_ends_grandchildren_too() {
    let dir = dir();
    let launch = shell(&dir, "sh -c 'sh -c \"sleep 100 & wait\" & wait' & echo $$ > ready; wait");
    let (report, group) = cancelled(&dir, launch).await;
    assert!(matches!(report.ending, ExitReason::Cancelled), "{report:?}");
    assert_eq!(alive_in(&group), 0);
}

#[tokio::test]
async fn a_cancelled_launch_never_starts() {
    let dir = dir();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let report = run(shell(&dir, "touch started"), cancel).await;
    assert!(matches!(report.ending, ExitReason::Cancelled));
    assert!(!dir.path().join("started").exists());
}

#[tokio::test]
async fn dropping_the_future_kills_the_group() {
    let dir = dir();
    named_pipe(&dir, "ready");
    named_pipe(&dir, "gone");
    let script = "exec 3> gone; sleep 100 & echo $$ > ready; wait";
    let task = tokio::spawn(run(shell(&dir, script), CancellationToken::new()));
    // Both processes hold `gone` open before one writes to `ready`; the pipe ends when both are
    // dead.
    let gone = tokio::spawn({
        let path = dir.path().join("gone");
        tokio::task::spawn_blocking(move || fs::read_to_string(path).unwrap())
    });
    said(&dir, "ready").await;
    task.abort();
    tokio::time::timeout(LONG, gone).await.expect("the child dies").unwrap().unwrap();
}

#[tokio::test]
async fn big_output_is_bounded_and_counted() {
    let script = "head -c 3000000 /dev/zero; echo; echo the end; head -c 100000 /dev/zero >&2";
    let report = ran(shell(&dir(), script)).await;
    assert!(report.ending.is_success());
    assert_eq!((report.stdout.total(), report.stderr.total()), (3_000_009, 100_000));
    assert_eq!(report.stdout.left_out(), 3_000_009 - 2 * KEPT_BYTES_MAX as u64);
    assert!(report.stdout.tail().ends_with(b"the end\n"));
    assert_eq!(report.stderr.left_out(), 0);
}

#[tokio::test]
async fn standard_input_is_empty_unless_a_file_is_given() {
    let dir = dir();
    assert_eq!(ran(shell(&dir, "wc -c")).await.stdout.to_string().trim(), "0");
    fs::write(dir.path().join("words"), "five.").unwrap();
    let mut launch = shell(&dir, "wc -c");
    launch.stdin = Some(dir.path().join("words").into());
    assert_eq!(ran(launch).await.stdout.to_string().trim(), "5");
}

#[tokio::test]
async fn standard_output_goes_to_a_file_that_is_emptied_first() {
    let dir = dir();
    let path = dir.path().join("result");
    fs::write(&path, "something longer than before").unwrap();
    let mut launch = shell(&dir, "echo short; echo err >&2");
    launch.stdout = Some(path.clone().into());
    let report = ran(launch).await;
    assert_eq!(fs::read_to_string(path).unwrap(), "short\n");
    assert!(report.stdout.is_empty());
    assert_eq!(report.stderr.to_string(), "err\n");
}

/// The children of this process, with their numbers of open descriptors.
fn children() -> Vec<(String, usize)> {
    let ours = format!(" {} ", std::process::id());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_ours = |stat: &str| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest[1..].starts_with(&ours));
    processes
        .filter(|process| fs::read_to_string(process.path().join("stat")).is_ok_and(|stat| is_ours(&stat)))
        .map(|process| (process.path().display().to_string(), count(&process.path().join("fd"))))
        .collect()
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

/// The child's directory and files may be in a mount that we serve, so a waiting child must not
/// hold the mount's device open.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_waits_for_a_file_holds_nothing_else_of_ours() {
    let dir = dir();
    named_pipe(&dir, "input");
    let mut launch = shell(&dir, "cat");
    let value = format!("{}", dir.path().display());
    launch.stdin = Some(dir.path().join("input").into());
    let before: Vec<String> = children().into_iter().map(|(pid, _)| pid).collect();
    let task = tokio::spawn(ran(launch));
    let waits = async {
        let only_standard = |(pid, open): &(String, usize)| !before.contains(pid) && *open == 3;
        while !children().iter().any(only_standard) {
            tokio::task::yield_now().await;
        }
    };
    // Standard input is not opened yet: descriptor 0 is still inherited. So 0, 1 and 2 are open.
    let closed = tokio::time::timeout(LONG, waits).await;
    fs::write(dir.path().join("input"), &value).unwrap();
    closed.expect("the child closes what it was born with");
    assert_eq!(task.await.unwrap().stdout.to_string(), value);
}

#[tokio::test]
async fn a_tool_starts_with_three_descriptors_and_the_signals_of_a_shell() {
    let report = ran(shell(&dir(), "ls /proc/$$/fd; exec grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status")).await;
    let said = report.stdout.to_string();
    // The shell opens no other descriptor, except 255 by bash. It blocks signals while it starts a
    // program, so it replaces itself by `exec`.
    assert!(said.starts_with("0\n1\n2\nSig") || said.starts_with("0\n1\n2\n255\nSig"), "{said}");
    let mask = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk:"), 0);
    assert_eq!(mask("SigIgn:") & (1 << 12), 0, "SIGPIPE ends a tool");
}

#[tokio::test]
async fn a_background_child_that_holds_the_output_neither_hangs_us_nor_survives() {
    let report = ran(shell(&dir(), "echo $$; sleep 100 & exit 0")).await;
    assert!(report.ending.is_success() && report.wall() < LONG, "{report:?}");
    assert_eq!(alive_in(&report.stdout.to_string()), 0);
}

#[tokio::test]
async fn a_child_that_left_the_group_does_not_hang_us_and_is_swept_by_its_mark() {
    let dir = dir();
    named_pipe(&dir, "up");
    let script = "setsid sh -c 'echo $$; echo > up; sleep 100; true' & read -r nothing < up; echo said";
    let mut launch = shell(&dir, script);
    let value = format!("{}-{}", std::process::id(), dir.path().display());
    launch.env.push(("TEST_MARK".into(), value.clone().into()));
    let report = ran(launch).await;
    assert!(report.ending.is_success() && report.wall() < LONG, "{report:?}");
    let said = report.stdout.to_string();
    assert!(said.ends_with("said\n"));
    let its_group = said.lines().next().unwrap();
    assert!(alive_in(its_group) > 0);
    assert_eq!(exec::kill_by_env_var("TEST_MARK=other"), 0);
    assert!(exec::kill_by_env_var(&format!("TEST_MARK={value}")) > 0);
    until_polled("what was swept ends", || alive_in(its_group) == 0).await;
}

#[tokio::test]
async fn what_a_tool_took_is_told() {
    let report = ran(shell(&dir(), "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")).await;
    assert!(report.usage.user > Duration::from_millis(1), "{report:?}");
    assert!(
        report.ended.duration_since(report.started) <= report.started_at.elapsed().unwrap() + Duration::from_secs(1)
    );
}

fn told(ending: &ExitReason) -> String {
    assert!(matches!(ending, ExitReason::NotStarted { .. }), "{ending:?}");
    ending.to_string()
}

fn script(dir: &TempDir, text: &str, mode: u32) -> Launch {
    let path = dir.path().join("tool");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    Launch::new(path, dir.path())
}

#[tokio::test]
async fn a_program_that_cannot_start_says_what_to_do() {
    let cases = [
        ("#!/bin/sh\n", 0o644, "chmod +x"),
        ("#!/opt/none/python3 -u\n", 0o755, "interpreter `/opt/none/python3`, which does not exist"),
        ("#!/bin/sh\r\nexit 0\r\n", 0o755, "as on Windows"),
        ("no first line", 0o755, "first line names its interpreter"),
    ];
    for (text, mode, hint) in cases {
        let dir = dir();
        let said = told(&ran(script(&dir, text, mode)).await.ending);
        assert!(said.contains("/tool` could not be started") && said.contains(hint), "{said}");
    }
}

#[tokio::test]
async fn missing_files_are_named() {
    let dir = dir();
    let missing = |launch: Launch| async move { told(&ran(launch).await.ending) };
    assert!(missing(Launch::new("/none/such", "/")).await.contains("there is no such file; install it"));
    assert!(missing(Launch::new("/bin/true", "/none/dir")).await.contains("working directory `/none/dir` is gone"));
    let mut launch = shell(&dir, "cat");
    launch.stdin = Some("/none/input".into());
    assert!(missing(launch).await.contains("standard input `/none/input`"));
    let mut launch = shell(&dir, "echo");
    launch.stdout = Some("/none/output".into());
    assert!(missing(launch).await.contains("standard output `/none/output`"));
}

#[tokio::test]
async fn too_long_a_command_line_points_to_lists() {
    let mut launch = Launch::new("/bin/true", "/");
    launch.args = vec!["x".repeat(100_000).into(); 100];
    assert!(told(&ran(launch).await.ending).contains("array = \"list\""));
}

#[tokio::test]
async fn many_run_side_by_side() {
    let dir = dir();
    let started = Instant::now();
    let runs: Vec<_> =
        (0..50).map(|code| tokio::spawn(ran(shell(&dir, &format!("echo {code}; exit {code}"))))).collect();
    for (code, report) in (0..).zip(runs) {
        let report = report.await.unwrap();
        assert!(matches!(report.ending, ExitReason::Exited(told) if told == code), "{report:?}");
        assert_eq!(report.stdout.to_string(), format!("{code}\n"));
    }
    assert!(started.elapsed() < LONG);
    assert!(open_files_below(Path::new("/proc/self/fd"), 100));
}

fn open_files_below(fds: &Path, limit: usize) -> bool {
    fs::read_dir(fds).unwrap().count() < limit
}

#[tokio::test]
async fn standard_error_goes_to_the_file_that_is_given_for_it() {
    let dir = dir();
    let mut launch = shell(&dir, "echo out; echo err >&2");
    launch.stderr = Some(dir.path().join("err").into());
    let report = ran(launch).await;
    assert_eq!((report.stdout.to_string(), report.stderr.to_string()), ("out\n".to_owned(), String::new()));
    assert_eq!(fs::read_to_string(dir.path().join("err")).unwrap(), "err\n");
    let mut refused = shell(&dir, "true");
    refused.stderr = Some(dir.path().join("none/err").into());
    let ExitReason::NotStarted { error, .. } = ran(refused).await.ending else { panic!("it cannot start") };
    assert!(error.to_string().starts_with("standard error `"), "{error}");
}
