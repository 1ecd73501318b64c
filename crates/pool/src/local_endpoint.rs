//! Local endpoint of an embedded pool: a socket and a pool file, by which programs of this host
//! connect as to any other pool.

use crate::{
    NodeEntry, PoolFile,
    process::Process,
    start::{ID_BYTES, TOKEN_BYTES, random_text},
};
use base::Problem;
use node::Node;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use transport::{Address, Listener, Server, ServerLimits, serve};
use wire::handshake::Token;

/// Open local endpoint. Dropping it closes it as [`LocalEndpoint::close`] does, but does not wait
/// for its connections to end.
#[derive(Debug)]
pub struct LocalEndpoint {
    /// `None` only while closing.
    server: Option<Server>,
    file: PathBuf,
}

impl LocalEndpoint {
    /// Serves a node that holds a whole pool at a socket in `directory`, which must exist, and
    /// writes the pool file beside the socket. Only the owner may use either.
    ///
    /// # Errors
    /// The directory's path is too long for a socket ([`LocalEndpoint::fits`]), a file cannot be
    /// created in it, or no thread can be started.
    pub fn open(node: &Arc<Node>, directory: &Path) -> Result<Self, Problem> {
        let cannot =
            |error: &dyn std::fmt::Display| Problem::new(format!("the pool cannot be served to programs: {error}"));
        let address = address(directory).map_err(|error| cannot(&error))?;
        let (id, token) = (random_text(ID_BYTES)?, random_text(TOKEN_BYTES)?);
        let key = Token::new(token.as_bytes()).map_err(|error| cannot(&error))?.of_node(&id, node.id());
        let listener = Listener::bind(&address).map_err(|error| cannot(&error))?;
        let server = serve(node.clone(), listener, &key, ServerLimits::default()).map_err(|error| cannot(&error))?;
        let endpoint = Self { server: Some(server), file: directory.join("pool") };
        let process = Process::current().map_err(|error| cannot(&error))?;
        let settings = node.settings();
        let entry = NodeEntry {
            id: node.id().0,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            process,
            addresses: vec![address],
            memory: settings.memory.0,
            slots: 0,
            log: PathBuf::new(),
            name: None,
            certificate: None,
            metrics: None,
        };
        let started = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let file = PoolFile::new(started, (id, token), None, settings.partitions, 1, vec![entry]);
        file.write(&endpoint.file).map_err(|error| cannot(&format_args!("{}: {error}", endpoint.file.display())))?;
        Ok(endpoint)
    }

    /// True if the directory's path is short enough for a socket in it; the system limits its
    /// length.
    pub fn fits(directory: &Path) -> bool {
        address(directory).is_ok()
    }

    /// The pool file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Closes the endpoint: ends all its connections and what they have open, and removes the
    /// socket and the pool file.
    pub async fn close(mut self) {
        self.remove_file();
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    fn remove_file(&self) {
        // A failure is harmless: the directory is removed too.
        let _ = fs::remove_file(&self.file);
    }
}

impl Drop for LocalEndpoint {
    fn drop(&mut self) {
        self.remove_file();
    }
}

fn address(directory: &Path) -> Result<Address, transport::AddressError> {
    format!("unix:{}", directory.join("socket").display()).parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connect, embedded_node};
    use base::ByteSize;
    use client::{Client, RetryPolicy};
    use std::{os::unix::fs::PermissionsExt, time::Duration};
    use vfs::Vfs;

    #[tokio::test]
    async fn a_process_with_the_file_sees_the_same_pool_until_the_endpoint_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let node = embedded_node(ByteSize::mib(32), Duration::ZERO).unwrap();
        let inside = Vfs::new(Client::embedded(node.clone()));
        let endpoint = LocalEndpoint::open(&node, directory.path()).unwrap();
        for name in ["pool", "socket"] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let outside = Vfs::new(connect(endpoint.file(), RetryPolicy::default()).await.unwrap());
        outside.write_file(b"tide", b"high").await.unwrap();
        assert_eq!(inside.read_file(b"tide").await.unwrap(), b"high");
        endpoint.close().await;
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(outside.read_file(b"tide").await.is_err());
        assert_eq!(inside.read_file(b"tide").await.unwrap(), b"high");
    }

    #[test]
    fn a_directory_whose_path_is_too_long_for_a_socket_is_told_before() {
        assert!(LocalEndpoint::fits(Path::new("/run/user/1000/tidemill/run")));
        assert!(!LocalEndpoint::fits(Path::new(&format!("/{}", "x".repeat(101)))));
    }
}
