//! Locks of programs on two mounts of one pool: they conflict, and a killed waiter leaves nothing.
//! Needs a usable /dev/fuse. The lock owners are child processes of this test binary.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on has failed")]

use std::{
    env,
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use crate::common::{TestMount, mounted_with, needs_fuse, options, pool};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use test_support::until;

/// Environment variable that tells this test binary, started again, its work.
const WORK: &str = "FUSE_TEST_WORK";

/// Not a test: the work of the child processes below.
#[test]
fn worker() {
    let Some(work) = env::var_os(WORK) else { return };
    let work = work.into_string().unwrap();
    let words: Vec<_> = work.split('|').collect();
    match words[..] {
        ["lock", how, path] => {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            println!("\nasking");
            match how {
                "posix" => fcntl_lock(&file, FlockOperation::LockExclusive).unwrap(),
                "flock" => flock(&file, FlockOperation::LockExclusive).unwrap(),
                other => panic!("{other}"),
            }
            println!("\nlocked");
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        }
        _ => panic!("{work}"),
    }
}

fn work(work: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "locks::worker", "--nocapture"]).env(WORK, work);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the child prints `line`.
fn says(child: &mut Child, line: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|said| said.unwrap() == line), "the child ended before it said `{line}`");
}

#[test]
fn locks_of_programs_of_two_mounts_meet_and_a_killed_waiter_leaves_nothing() {
    needs_fuse!();
    let vfs = pool();
    let mounts: [TestMount; 2] = [(); 2].map(|()| mounted_with(vfs.clone(), &options()));
    fs::write(mounts[0].point().join("file"), b"x").unwrap();
    for how in ["posix", "flock"] {
        let path = |at: usize| format!("lock|{how}|{}", mounts[at].point().join("file").display());
        let mut holder = work(&path(0));
        says(&mut holder, "locked");
        // One process waits on each mount; both are killed while they wait.
        for (at, mount) in mounts.iter().enumerate() {
            let before = mount.mount.traffic().deferred_requests;
            let mut waiter = work(&path(at));
            says(&mut waiter, "asking");
            until("it waits", || mount.mount.traffic().deferred_requests > before);
            waiter.kill().unwrap();
            assert!(!waiter.wait().unwrap().success());
        }
        let mut next = work(&path(1));
        says(&mut next, "asking");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        says(&mut next, "locked");
        next.kill().unwrap();
        next.wait().unwrap();
        let mut last = work(&path(0));
        says(&mut last, "locked");
        drop(last.stdin.take());
        assert!(last.wait().unwrap().success());
    }
}
