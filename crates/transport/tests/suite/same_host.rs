//! Leases of a node to clients of its own host: descriptors, and the extents that they pin.
//!
//! The clients are processes of their own: this binary again.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the failure; processes talk by their output"
)]

use super::common::{
    OWNER,
    host::{ChildTest, Host, child_orders, connect},
};
use client::BackingFd;
use rustix::{
    io::{FdFlags, fcntl_setfd, pread, pwrite},
    process::{Pid, Signal, kill_process},
};
use std::{
    io::BufRead,
    os::fd::{AsFd, BorrowedFd},
    process::{Command, Stdio},
};
use test_support::until_polled;
use vfs::{Handle, Vfs};
use wire::OpenFlags;

/// Client that the tests start.
const CLIENT: ChildTest = ChildTest(concat!(module_path!(), "::a_client_in_a_process_of_its_own"));
const WHOLE: OpenFlags = OpenFlags { use_extent: true, ..OpenFlags::READ_WRITE };

async fn made(vfs: &Vfs, name: &str) -> (Handle, BackingFd) {
    let (_, handle) = vfs.create(Vfs::root(), name.as_bytes(), 0o600, OWNER, WHOLE).await.unwrap();
    (handle, vfs.backing(handle).expect("a new file is whole, and its descriptor can be had"))
}

#[tokio::test]
async fn what_is_written_to_a_lent_descriptor_is_the_file_and_what_is_written_to_the_file_is_there() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let client = connect(host.server.address()).await;
    let (handle, backing) = made(&client, "f").await;
    let file = host.truth.lookup(Vfs::root(), b"f").await.unwrap().file;
    pwrite(&backing, b"past the node", 0).unwrap();
    assert_eq!(host.truth.read_file(b"f").await.unwrap(), &b"past the node"[..]);
    assert_eq!(client.stat(file).await.unwrap().size, 13, "its size is the extent's");
    client.write(handle, 0, "PAST".into()).await.unwrap();
    let mut bytes = [0; 13];
    assert_eq!(pread(&backing, &mut bytes, 0), Ok(13));
    assert_eq!(&bytes, b"PAST the node");
    // The file is small, and demoted once it is neither open nor leased.
    drop(backing);
    client.close(handle).await.unwrap();
    until_polled("no extent is left", || host.used() == 0).await;
    assert_eq!(host.truth.read_file(b"f").await.unwrap(), &b"PAST the node"[..]);
}

#[tokio::test]
async fn what_is_lent_is_no_other_files_before_it_is_given_back_also_when_the_connection_has_ended() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let mut client = Some(connect(host.server.address()).await);
    let (_, kept) = made(client.as_ref().unwrap(), "kept").await;
    let (_, given_back) = made(client.as_ref().unwrap(), "given back").await;
    pwrite(&kept, b"mine", 0).unwrap();
    for name in ["kept", "given back"] {
        host.truth.unlink(Vfs::root(), name.as_bytes()).await.unwrap();
    }
    drop(given_back);
    drop(client.take());
    until_polled("one extent is left", || host.used() == 1).await;
    // The node has noticed the end of the connection by now: only the liveness pipe is left.
    let other = connect(host.server.address()).await;
    let (_, theirs) = made(&other, "another").await;
    assert_ne!(theirs.id(), kept.id());
    let mut bytes = [0; 4];
    pread(&kept, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"mine");
    drop(kept);
    until_polled("one extent is left", || host.used() == 1).await;
}

#[tokio::test]
async fn a_node_that_was_started_again_lends_other_slots_than_the_one_before() {
    let (mut slots, mut kept) = (std::collections::BTreeSet::new(), Vec::new());
    for _ in 0..3 {
        let Some(host) = Host::with_whole_files(64 << 20) else { return };
        let client = connect(host.server.address()).await;
        for name in ["f", "g"] {
            // Keeps a descriptor open for each slot, as a kernel that knows the slot does.
            let (_, backing) = made(&client, name).await;
            kept.push(backing.as_fd().try_clone_to_owned().unwrap());
            assert!(slots.insert(backing.id()), "{name}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_killed_leaves_nothing_lent() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    for files in [1, 7, 40] {
        let mut child = host.child(CLIENT, "hold files");
        child.send_line(&files.to_string());
        child.expect_line("held");
        host.remove(files).await;
        assert_eq!(host.used(), files);
        child.kill();
        until_polled("no extent is left", || host.used() == 0).await;
    }
}

#[tokio::test]
async fn a_client_whose_child_has_its_socket_open_is_dead_all_the_same() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let mut child = host.child(CLIENT, "leave a child");
    child.send_line("3");
    child.expect_line("held");
    let mut grandchild = String::new();
    child.stdout.read_line(&mut grandchild).unwrap();
    host.remove(3).await;
    assert_eq!(host.used(), 3);
    child.kill();
    until_polled("no extent is left", || host.used() == 0).await;
    let grandchild = Pid::from_raw(grandchild.trim().parse().unwrap()).unwrap();
    kill_process(grandchild, Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_client_that_sleeps_keeps_what_it_was_lent_and_the_node_lives_on() {
    let Some(host) = Host::with_whole_files(64 << 20) else { return };
    let mut child = host.child(CLIENT, "hold files");
    child.send_line("1");
    child.expect_line("held");
    child.signal(Signal::STOP);
    host.truth.unlink(Vfs::root(), b"0").await.unwrap();
    for round in 0..100_u32 {
        let name = format!("other {round}");
        let (handle, backing) = {
            let (_, handle) = host.truth.create(Vfs::root(), name.as_bytes(), 0o600, OWNER, WHOLE).await.unwrap();
            (handle, host.truth.backing(handle).unwrap())
        };
        pwrite(&backing, &[0xff; 10_000], 0).unwrap();
        drop(backing);
        host.truth.close(handle).await.unwrap();
        host.truth.unlink(Vfs::root(), name.as_bytes()).await.unwrap();
    }
    child.signal(Signal::CONT);
    child.send_line("check");
    child.expect_line("as it was");
}

#[tokio::test]
async fn a_mount_in_another_process_passes_through() {
    if mount::availability().is_err() {
        return println!("skipped: no mounts here");
    }
    let Some(host) = Host::with_whole_files(256 << 20) else { return };
    let point = tempfile::tempdir().unwrap();
    let mut child = host.child(CLIENT, "mount");
    child.send_line(point.path().to_str().unwrap());
    child.expect_line("mounted");
    let content: Vec<u8> = (0..5_000_000_u32).map(|at| at.to_le_bytes()[at as usize % 4]).collect();
    let (path, expected) = (point.path().join("large"), content.clone());
    tokio::task::spawn_blocking(move || {
        std::fs::write(&path, &expected).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5_000_000);
        assert!(std::fs::read(&path).unwrap() == expected);
        std::fs::write(path.with_file_name("small"), b"small").unwrap();
    })
    .await
    .unwrap();
    assert!(host.truth.read_file(b"large").await.unwrap() == content);
    assert!(
        host.truth.stat(host.truth.lookup(Vfs::root(), b"large").await.unwrap().file).await.unwrap().extent.is_some()
    );
    child.send_line("unmount");
    child.expect_line("no byte came to us");
    child.expect_line("unmounted");
    until_polled("one extent is left", || host.used() == 1).await;
    assert_eq!(host.truth.read_file(b"small").await.unwrap(), &b"small"[..]);
}

/// Not a test: the client that the tests start.
#[tokio::test]
async fn a_client_in_a_process_of_its_own() {
    let Some((vfs, what, mut orders)) = child_orders().await else { return };
    let order = orders.next().unwrap();
    if what == "mount" {
        return mount(vfs, order, orders).await;
    }
    let mut held = Vec::new();
    for number in 0..order.parse().unwrap() {
        let (handle, backing) = made(&vfs, &number.to_string()).await;
        pwrite(&backing, b"mine", 0).unwrap();
        held.push((handle, backing));
    }
    println!("held");
    if what == "leave a child" {
        println!("{}", leave_a_child());
    }
    for _check in orders {
        for (_, backing) in &held {
            let mut bytes = [0; 5];
            assert_eq!((pread(backing, &mut bytes, 0), &bytes), (Ok(4), b"mine\0"));
        }
        println!("as it was");
    }
}

async fn mount(vfs: Vfs, point: String, mut orders: impl Iterator<Item = String> + Send + 'static) {
    let mounting = vfs.clone();
    let work = move || {
        let mount = mount::Mount::new(&mounting, point.as_ref(), &mount::MountOptions::default()).unwrap();
        println!("mounted");
        orders.next();
        let traffic = mount.traffic();
        println!("{traffic:?}");
        if traffic.read_bytes + traffic.written_bytes == 0 {
            println!("no byte came to us");
        }
        mount.unmount().unwrap();
        println!("unmounted");
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

/// Starts a process that has all our sockets and pipes open, and outlives us.
fn leave_a_child() -> u32 {
    for number in 3..64 {
        // SAFETY: an `fcntl` of this number does no harm, whether it is open or not; it is not
        // closed here.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(descriptor.as_fd(), FdFlags::empty());
    }
    Command::new("sleep").arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap().id()
}
