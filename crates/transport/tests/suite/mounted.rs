//! Mount over a socket whose connection breaks.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, or says why it is skipped"
)]

use super::common::*;
use mount::{Mount, MountOptions};
use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{FileExt, PermissionsExt},
};
use test_support::until_polled;
use vfs::Vfs;
use wire::{Changes, SpaceUsage};

#[tokio::test]
async fn a_mount_survives_a_broken_connection_and_shows_what_others_changed_meanwhile() {
    if let Err(reason) = mount::availability() {
        println!("skipped: {reason}; {}", reason.hint());
        return;
    }
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let mut server = serve(&node, &any_port());
    let relay = Relay::to(&mut server);
    let (vfs, truth) = (vfs(&relay.address).await, Vfs::new(client::Client::embedded(node.clone())));
    let mount = Mount::new(&vfs, directory.path(), &MountOptions::default()).unwrap();
    let path = directory.path().join("f");
    fs::write(&path, "as it was").unwrap();
    let file = truth.lookup(Vfs::root(), b"f").await.unwrap().file;
    for round in 0..3 {
        let open = File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), fs::read(&path).unwrap());
        relay.cut();
        let text = format!("changed, {round}");
        truth.write_file(b"f", text.as_bytes()).await.unwrap();
        truth.change(file, Changes { mode: Some(0o600 + round), ..Changes::default() }).await.unwrap();
        // The kernel may show cached data until the break is noticed, but never after that.
        until_polled("the kernel shows the new content", || fs::read_to_string(&path).unwrap() == text).await;
        until_polled("the kernel shows the new mode", || {
            fs::metadata(&path).unwrap().permissions().mode() & 0o777 == 0o600 + round
        })
        .await;
        assert_eq!(open.write_at(b"lost", 0).unwrap_err().kind(), ErrorKind::StaleNetworkFileHandle);
        drop(open);
        fs::write(&path, "as it was").unwrap();
        assert_eq!(truth.read_file(b"f").await.unwrap(), &b"as it was"[..]);
        truth.change(file, Changes { mode: Some(0o644), ..Changes::default() }).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644, "it is told again");
    }
    drop(mount);
    server.stop().await;
}

#[tokio::test]
async fn df_of_a_mount_over_a_socket_shows_what_the_pool_holds() {
    if let Err(reason) = mount::availability() {
        println!("skipped: {reason}; {}", reason.hint());
        return;
    }
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let server = serve(&node, &any_port());
    let mount = Mount::new(&vfs(server.address()).await, directory.path(), &MountOptions::default()).unwrap();
    fs::write(directory.path().join("f"), vec![7; 8 << 20]).unwrap();
    let shown = rustix::fs::statvfs(directory.path()).unwrap();
    let SpaceUsage { capacity, used, .. } = node.usage();
    assert_eq!(shown.f_blocks * shown.f_frsize, capacity);
    let free = shown.f_bfree * shown.f_frsize;
    assert!(capacity - free <= used + 4096 && capacity - free >= 8 << 20, "{free} of {capacity} free, {used} used");
    drop(mount);
    server.stop().await;
}
