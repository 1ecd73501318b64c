//! Connects a client to the pool of a pool file.

use crate::{NodeEntry, PoolFile};
use base::Problem;
use client::{Client, Connection, Connector, Nodes, RetryPolicy};
use placement::NodeId;
use rustix::io::Errno;
use std::{fs, io::ErrorKind, net::IpAddr, num::NonZeroUsize, path::Path, sync::Arc, thread};
use tokio::runtime::{Builder, Handle, Runtime};
use transport::{Address, Certificate, IdentityError, Reactor, Remote};
use wire::{Refusal, handshake::Token};

/// Upper limit of the I/O threads; more do not speed up the connections of a mount.
const IO_THREADS_MAX: usize = 4;

/// Credentials of a pool, and the identity of its nodes.
#[derive(Clone, Debug)]
pub struct PoolSecret {
    pub token: Token,
    /// The pool's id.
    pub pool: String,
    pub certificate: Option<Certificate>,
}

impl PoolSecret {
    /// Token for one node; it authenticates the client and the node to each other.
    pub fn node_token(&self, node: NodeId) -> Token {
        self.token.of_node(&self.pool, node)
    }

    /// Client end of a connection to a node.
    pub fn remote(&self, node: &NodeEntry) -> Result<Remote, Problem> {
        let (address, token) = (address(node)?, self.node_token(NodeId(node.id)));
        match self.certificate_of(node)? {
            None => Ok(Remote::new(address, &token)),
            Some(certificate) => Remote::with_certificate(address, &token, &certificate).map_err(identity_problem),
        }
    }

    /// The certificate of a node: that of the pool, unless it has its own.
    fn certificate_of(&self, node: &NodeEntry) -> Result<Option<Certificate>, Problem> {
        match &node.certificate {
            Some(own) => Certificate::from_pem(own).map(Some).map_err(identity_problem),
            None => Ok(self.certificate.clone()),
        }
    }

    /// Like [`Self::remote`], but driven by the thread that waits with this reactor.
    fn remote_with_reactor(&self, reactor: &Reactor, node: &NodeEntry) -> Result<Remote, Problem> {
        let token = self.node_token(NodeId(node.id));
        let certificate = self.certificate_of(node)?;
        Remote::with_reactor(reactor, address(node)?, &token, certificate.as_ref()).map_err(identity_problem)
    }
}

/// Connects to the nodes of a pool. The map has the entry of each node as in the pool file, so that
/// an older copy of that file leads to nodes that it does not name.
#[derive(Debug)]
pub struct PoolConnector {
    secret: PoolSecret,
    /// The reactor of the connections, if the thread that waits drives them.
    reactor: Option<Reactor>,
    /// True for a process that may be [short-lived](Remote::short_lived).
    short_lived: bool,
}

impl PoolConnector {
    /// A connector whose connections are driven by the threads of this process.
    pub fn new(secret: PoolSecret) -> Self {
        Self { secret, reactor: None, short_lived: false }
    }

    /// These nodes, and all that the map of their pool names.
    pub(crate) fn nodes(self, entries: &[NodeEntry]) -> Result<Nodes, Problem> {
        let links = entries.iter().map(|node| Ok((NodeId(node.id), self.connection(node)?)));
        let links = links.collect::<Result<Vec<_>, Problem>>()?;
        Ok(Nodes::with_connector(Arc::new(self), links))
    }

    fn connection(&self, node: &NodeEntry) -> Result<Arc<dyn Connection>, Problem> {
        let remote = match &self.reactor {
            None => self.secret.remote(node)?,
            Some(reactor) => self.secret.remote_with_reactor(reactor, node)?,
        };
        Ok(Arc::new(if self.short_lived { remote.short_lived() } else { remote }))
    }
}

/// The entry of a node, from its address in the map. A node that has joined later did not know its
/// id when it made the entry.
pub fn parse_entry(node: NodeId, address: &str) -> Result<NodeEntry, String> {
    let mut entry: NodeEntry = serde_json::from_str(address).map_err(|error| format!("its entry: {error}"))?;
    if entry.id == 0 {
        entry.id = node.0;
    }
    if NodeId(entry.id) == node { Ok(entry) } else { Err(format!("its entry is that of node {}", entry.id)) }
}

impl Connector for PoolConnector {
    fn connect(&self, node: NodeId, address: &str) -> Result<Arc<dyn Connection>, String> {
        let entry = parse_entry(node, address)?;
        self.connection(&entry).map_err(|problem| problem.message)
    }
}

fn address(node: &NodeEntry) -> Result<Address, Problem> {
    let no_address =
        || Problem::new(format!("the pool file has no address of node {} that leads there from this host", node.id));
    best_address(node).ok_or_else(no_address).cloned()
}

#[expect(clippy::needless_pass_by_value, reason = "where errors are mapped")]
fn identity_problem(refused: IdentityError) -> Problem {
    Problem::new(format!("the pool file: {refused}"))
}

/// Runtime of one thread, in which the caller waits for nodes.
pub fn runtime() -> Result<Runtime, Problem> {
    let none = |error| Problem::new(format!("the connections cannot be polled: {error}"));
    Builder::new_current_thread().enable_all().build().map_err(none)
}

/// Runtime with the I/O threads for the connections of this process, for callers that wait on it.
/// Call this before the connections are made. The runtime has half as many threads as processors,
/// from one to four: on two processors two threads would wake each other for every answer.
pub fn io_runtime() -> Result<Handle, Problem> {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = (processors / 2).clamp(1, IO_THREADS_MAX);
    transport::runtime(threads).map_err(|error| Problem::new(format!("no thread for connections: {error}")))
}

/// Connects to the pool of a pool file.
pub async fn connect(path: &Path, retry_policy: RetryPolicy) -> Result<Client, Problem> {
    let file = PoolFile::read(path)?;
    let nodes = PoolConnector::new(file.secret(path)?).nodes(&file.nodes)?;
    Client::connect_all(nodes, retry_policy).await.map_err(|refusal| connect_problem(path, &refusal))
}

/// Like [`connect`], but the thread that waits for a call drives the connections; see [`Reactor`].
/// So no thread is started, and the process may fork. For a process that may be short-lived
/// ([`Remote::short_lived`]).
pub fn connect_short_lived(path: &Path, retry_policy: RetryPolicy) -> Result<(Client, Reactor), ConnectError> {
    let reactor = Reactor::new().map_err(|error| ConnectError {
        errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        problem: Problem::new(format!("the connections cannot be polled: {error}")),
    })?;
    Ok((connect_to(&reactor, path, retry_policy, true)?, reactor))
}

/// Like [`connect_short_lived`] with an existing reactor, for a long-lived process that may use
/// several pools.
pub fn connect_with_reactor(reactor: &Reactor, path: &Path, retry_policy: RetryPolicy) -> Result<Client, ConnectError> {
    connect_to(reactor, path, retry_policy, false)
}

fn connect_to(
    reactor: &Reactor,
    path: &Path,
    retry_policy: RetryPolicy,
    short_lived: bool,
) -> Result<Client, ConnectError> {
    let file = PoolFile::load(path)?;
    let nodes = || {
        let secret = file.secret(path)?;
        PoolConnector { secret, reactor: Some(reactor.clone()), short_lived }.nodes(&file.nodes)
    };
    let nodes = nodes().map_err(|problem| ConnectError { errno: Errno::INVAL, problem })?;
    reactor.block_on(Client::connect_all(nodes, retry_policy)).map_err(|refusal| {
        let errno = match &refusal {
            Refusal::Unavailable { .. } => Errno::NOTCONN,
            other => wire::errno(other),
        };
        ConnectError { errno, problem: connect_problem(path, &refusal) }
    })
}

/// Reason why a client cannot connect to a pool.
#[derive(Clone, Debug)]
pub struct ConnectError {
    /// The problem in words, with a remedy.
    pub problem: Problem,
    /// Errno for a program: `ENOENT` if the pool file does not exist, `EACCES` if it may not be
    /// read or the pool refuses its credentials, `EINVAL` if it is not a pool file, `EPROTO` if the
    /// file or the pool has another version, `ENOTCONN` if no node answers.
    pub errno: Errno,
}

impl From<ConnectError> for Problem {
    fn from(error: ConnectError) -> Self {
        error.problem
    }
}

fn connect_problem(path: &Path, refusal: &Refusal) -> Problem {
    let pool = path.display();
    let why = match refusal {
        Refusal::Unavailable { why, .. } => format!("no node of the pool of {pool} answers; the first: {why}"),
        other => format!("the pool of {pool} refuses this client: {other}"),
    };
    Problem::new(why)
        .hint("`tidemill pool status` shows which nodes answer; `tidemill pool start` replaces a pool that has ended")
}

/// Selects the best address of a node: its Unix socket if the node is on this host and the path
/// exists here, else the network. In a container the path may not exist.
///
/// A socket that refuses the connection never leads to the network instead. Another host's loopback
/// address is never used, since any process may listen at that port here.
pub fn best_address(node: &NodeEntry) -> Option<&Address> {
    let is_local = node.process.is_of_this_host();
    let can = |address: &&Address| match address {
        Address::Unix(path) => is_local && !is_missing(path),
        Address::Tcp { host, .. } => is_local || !is_loopback(host),
        Address::Tls { .. } => true,
    };
    let socket = || node.addresses.iter().find(|address| matches!(address, Address::Unix(_)));
    node.addresses.iter().find(can).or_else(socket)
}

/// True only if the path is known not to exist; a path that cannot be examined counts as existing.
fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file::tests::sample, process::Process};
    use std::os::unix::fs::symlink;

    #[test]
    fn the_network_is_the_way_only_where_no_path_is_and_never_anothers_loopback() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let addresses = [format!("unix:{}", socket.display()), "tcp:127.0.0.1:7000".to_owned()];
        let addresses = addresses.map(|address| address.parse::<Address>().unwrap());
        let entry = |process, addresses: &[Address]| {
            let mut entry = sample().nodes.remove(0);
            (entry.process, entry.addresses) = (process, addresses.to_vec());
            entry
        };
        let local = entry(Process::current().unwrap(), &addresses);
        assert_eq!(best_address(&local), Some(&addresses[1]), "no such path is seen here");
        symlink("/nowhere", &socket).unwrap();
        assert_eq!(best_address(&local), Some(&addresses[0]), "it leads nowhere: that is a refusal");
        let elsewhere = Process { net: 0, ..Process::current().unwrap() };
        assert_eq!(best_address(&entry(elsewhere.clone(), &addresses)), Some(&addresses[0]));
        assert_eq!(best_address(&entry(elsewhere.clone(), &addresses[1..])), None, "its loopback is not ours");
        let far = ["tcp:10.0.0.1:7000".parse().unwrap()];
        assert_eq!(best_address(&entry(elsewhere, &far)), Some(&far[0]));
    }
}
