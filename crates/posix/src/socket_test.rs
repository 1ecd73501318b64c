//! Tests of the pool's sockets and of the kernel's sockets behind them.

use crate::pool_test::{TestPool, at, without_capabilities};
use crate::{Errno, SocketEndpoint};
use rustix::fs::AtFlags;
use std::ffi::{OsStr, c_int};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn path(endpoint: &SocketEndpoint) -> &Path {
    Path::new(OsStr::from_bytes(endpoint.path.to_bytes()))
}

#[test]
fn programs_talk_through_a_socket_of_the_pool() {
    let pool = TestPool::start();
    pool.mkdir("d");
    let bound = pool.process.socket(at("d/s")).unwrap();
    let listener = UnixListener::bind(path(&bound)).unwrap();
    bound.record_name(c"/tidemill/d/s").unwrap();
    let other = pool.another(None);
    let mut client = UnixStream::connect(path(&other.listener(at("d/s")).unwrap())).unwrap();
    client.write_all(b"tide").unwrap();
    drop(client);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "tide");
    assert_eq!(other.bound_name(bound.path.to_bytes()).as_deref(), Ok(c"/tidemill/d/s"));
    assert_eq!(pool.process.stat(at("d/s"), AtFlags::empty()).unwrap().mode, 0o140_755);
}

#[test]
fn an_address_fits_a_socket_and_is_told_from_paths_of_the_host() {
    let pool = TestPool::start();
    let endpoint = pool.process.socket(at("s")).unwrap();
    assert!(endpoint.path.to_bytes_with_nul().len() <= 108, "{endpoint:?}");
    assert!(SocketEndpoint::is_kernel_path(endpoint.path.to_bytes()));
    let digits = "0123456789abcdef";
    for path in [
        "",
        "/proc/self/fd/",
        "/proc/self/fd/7/",
        "/proc/self/fd/x/0123456789abcdef",
        "/proc/self/fd/7/0123456789abcde",
        "/proc/self/fd/7/0123456789abcdefa",
        "/proc/self/fd/7/0123456789abcdeg",
        &format!("/run/{digits}"),
        digits,
    ] {
        assert!(!SocketEndpoint::is_kernel_path(path.as_bytes()), "{path}");
    }
}

#[test]
fn a_bind_is_refused_where_the_name_exists_or_cannot_be() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.process.socket(at("s")).unwrap();
    let cases = [("f", Errno::ADDRINUSE), ("s", Errno::ADDRINUSE), ("none/s", Errno::NOENT), ("new/", Errno::NOENT)];
    for (path, errno) in cases {
        assert_eq!(pool.process.socket(at(path)).map(drop), Err(errno), "{path}");
    }
    pool.process.unlink(at("s"), AtFlags::empty()).unwrap();
    assert!(pool.process.socket(at("s")).is_ok());
}

#[test]
fn a_connect_is_refused_where_no_socket_is_or_the_user_may_not_write_it() {
    let pool = TestPool::start();
    pool.make("f", b"");
    pool.process.socket(at("s")).unwrap();
    for (path, errno) in [("f", Errno::CONNREFUSED), ("none", Errno::NOENT), ("s/", Errno::NOTDIR)] {
        assert_eq!(pool.process.listener(at(path)).map(drop), Err(errno), "{path}");
    }
    let unbound = UnixStream::connect(path(&pool.process.listener(at("s")).unwrap())).unwrap_err();
    assert_eq!(unbound.raw_os_error(), Some(Errno::NOENT.raw_os_error() as c_int), "nobody has bound it");
    pool.process.chmod(at("s"), 0o555, AtFlags::empty()).unwrap();
    without_capabilities(|| assert_eq!(pool.process.listener(at("s")).map(drop), Err(Errno::ACCESS)));
}

#[test]
fn without_a_node_on_this_host_there_is_no_socket() {
    let pool = TestPool::start();
    pool.process.socket(at("s")).unwrap();
    std::fs::remove_file(pool.host.path().join("pool")).unwrap();
    assert_eq!(pool.process.listener(at("s")).map(drop), Err(Errno::CONNREFUSED));
    assert_eq!(pool.process.socket(at("t")).map(drop), Err(Errno::NXIO));
    assert_eq!(pool.process.bound_name(b"/proc/self/fd/7/0123456789abcdef"), Err(Errno::NXIO));
}

#[test]
fn a_symlink_out_of_the_pool_leads_to_a_socket_of_the_host() {
    let pool = TestPool::start();
    let target = pool.host.path().join("host");
    pool.symlink(target.to_str().unwrap(), "out");
    for endpoint in [pool.process.listener(at("out")).unwrap(), pool.process.listener(at("out")).unwrap()] {
        assert_eq!(path(&endpoint), target);
        assert!(endpoint.directory.is_none());
        assert_eq!(endpoint.record_name(c"name"), Ok(()), "the kernel knows its name");
    }
}
