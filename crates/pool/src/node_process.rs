//! Node process: takes part in the bootstrap of a pool, serves, and ends when it is asked to.

use crate::{
    PoolFile,
    bootstrap::{
        AddressSource, BootstrapPlan, Memory, NodeMessage, NodeSpec, StarterMessage, VERSION, partition_map,
        read_message, write_message,
    },
    connect::{PoolConnector, PoolSecret},
    embedded::engine,
    file::NodeEntry,
    metrics_server::{MetricsListener, MetricsServer},
    process::Process,
};
use base::{ByteSize, Problem};
use client::Connector;
use cluster::ClusterState;
use manager::{Manager, RunningManager};
use node::{Node, NodeSettings};
use placement::{NodeId, PartitionMap};
use rustix::fs::OFlags;
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{self, BufRead, Write},
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    thread,
};
use tokio::{runtime, sync::watch};
use transport::{
    Address, Certificate, Identity, ListenError, Listener, Server, ServerLimits, serve_on, server_threads,
};
use wire::handshake::Token;

/// Upper limit of the threads that serve connections.
const THREADS_MAX: usize = 16;
/// Engine size of a node that only computes: the minimum, and none of it is ever touched.
const ENGINE_BYTES_MIN: u64 = 16 << 20;

/// Environment of a node on its host.
pub struct HostEnv<'a> {
    /// The node's own directory, removed when it ends.
    pub directory: &'a Path,
    /// Log file that the node writes to after it has detached from its starter.
    pub log: &'a Path,
    /// The pool file, which the starter writes when all nodes serve.
    pub pool: &'a Path,
    /// Computes the memory that the node may take, from the size that was asked for and the number
    /// of nodes that share this host.
    pub memory: &'a dyn Fn(Option<ByteSize>, u32) -> Result<ByteSize, Problem>,
}

/// A node that serves.
#[derive(Debug)]
pub struct RunningNode {
    runtime: runtime::Runtime,
    server: Server,
    end: Arc<watch::Sender<bool>>,
    /// Serves the metrics, if that was asked for.
    metrics: Option<MetricsServer>,
    manager: RunningManager,
}

/// Reason why a node does not serve.
#[derive(Debug)]
pub enum BootstrapError {
    /// The starter was told the reason, and reports it.
    Reported,
    /// The starter is not reachable; the caller must report the problem.
    Unreported(Problem),
}

/// Bootstraps a node and reports a failure to its starter. `selector` selects the node's settings,
/// and `input` and `output` lead to the starter. If `input` ends before the bootstrap is complete,
/// the node ends too.
pub fn run_node(
    selector: NodeSelector,
    host_env: &HostEnv,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<RunningNode, BootstrapError> {
    let plan: BootstrapPlan = expect_message(read_message(&mut input), "order").map_err(BootstrapError::Unreported)?;
    let spec = selector.select(&plan).map_err(BootstrapError::Unreported)?.clone();
    bootstrap_node(&plan, &spec, host_env, &mut input, &mut output).map_err(|problem| {
        let refused = NodeMessage::Refused(spec.id, problem.message.clone(), problem.hint.clone());
        match write_message(&mut output, &refused) {
            Ok(()) => BootstrapError::Reported,
            // The starter has gone.
            Err(_) => BootstrapError::Unreported(problem),
        }
    })
}

/// Selects one node's settings in the bootstrap plan.
#[derive(Clone, Copy, Debug)]
pub enum NodeSelector {
    /// The node with this id.
    Id(u32),
    /// The node at this index, from 0: the rank that `srun` gives.
    Rank(usize),
}

impl NodeSelector {
    fn select(self, plan: &BootstrapPlan) -> Result<&NodeSpec, Problem> {
        let spec = match self {
            Self::Id(id) => plan.nodes.iter().find(|spec| spec.id == id),
            Self::Rank(rank) => plan.nodes.get(rank),
        };
        spec.ok_or_else(|| {
            Problem::new(format!("the starter has no entry for {self:?} among its {} nodes", plan.nodes.len()))
        })
    }
}

fn bootstrap_node(
    plan: &BootstrapPlan,
    spec: &NodeSpec,
    host_env: &HostEnv,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<RunningNode, Problem> {
    if plan.version != VERSION {
        return Err(Problem::new(format!("the starter is Tidemill {}, this is {VERSION}", plan.version))
            .hint("install one version on all hosts"));
    }
    let mut bound = BoundNode::new(plan, spec, host_env)?;
    check_sent(write_message(output, &NodeMessage::Listening(bound.entry.clone())))?;
    let (map, founds) = match expect_message(read_message(input), "deal")? {
        StarterMessage::NodeEntries(entries) => {
            let map = partition_map(&entries, plan.partitions)?;
            (map.clone(), first_state(map, &entries, spec.id))
        }
        StarterMessage::Joined(ids, map) => {
            bound.entry.id = *ids.get(&spec.id).ok_or_else(|| starter_gone("deal"))?;
            (*map, None)
        }
        StarterMessage::Detach => return Err(starter_gone("deal")),
    };
    let entry = bound.entry.clone();
    let running = bound.start(plan, map, founds)?;
    check_sent(write_message(output, &NodeMessage::Ready(spec.id)))?;
    match read_message(input) {
        Ok(Some(StarterMessage::Detach)) => {}
        // The starter was killed while it sent `Detach`: the pool file exists, and other nodes may
        // have received the message.
        Ok(None) if is_in_pool_file(host_env.pool, &entry) => {}
        other => {
            return Err(expect_message::<StarterMessage>(other, "leave to stay")
                .err()
                .unwrap_or_else(|| starter_gone("leave to stay")));
        }
    }
    detach(host_env.log)?;
    Ok(running)
}

/// A node that listens, and does not know its partitions yet.
struct BoundNode {
    entry: NodeEntry,
    listeners: Vec<Listener>,
    identity: Option<Identity>,
    metrics: Option<MetricsListener>,
}

impl BoundNode {
    fn new(plan: &BootstrapPlan, spec: &NodeSpec, host_env: &HostEnv) -> Result<Self, Problem> {
        let memory = match spec.memory {
            Memory::Bytes(0) => ByteSize(0),
            Memory::Bytes(bytes) => (host_env.memory)(Some(ByteSize(bytes)), spec.nodes_on_host)?,
            Memory::Default => (host_env.memory)(None, spec.nodes_on_host)?,
        };
        let identity = match (&plan.identity, plan.own_identity) {
            (Some(pem), _) => Some(Identity::from_pem(pem)),
            (None, true) if spec.address_source.is_open() => Some(Identity::generate()),
            (None, _) => None,
        };
        let identity = identity.transpose().map_err(|error| Problem::new(error.to_string()))?;
        let own_identity = identity.as_ref().filter(|_| plan.own_identity);
        let (listeners, addresses) = listen(spec, host_env.directory, identity.as_ref())?;
        let metrics = spec.metrics.map(MetricsListener::bind).transpose()?;
        let host = match &spec.address_source {
            AddressSource::Named(host) => host.clone(),
            AddressSource::LocalHost | AddressSource::HostName => host_name(),
        };
        let process =
            Process::current().map_err(|error| Problem::new(format!("this process cannot be identified: {error}")))?;
        let entry = NodeEntry {
            id: spec.id,
            host,
            process,
            addresses,
            memory: memory.0,
            slots: spec.slots.unwrap_or_else(processors),
            log: host_env.log.to_owned(),
            name: spec.name.clone(),
            certificate: own_identity.map(|identity| identity.certificate().to_pem().to_owned()),
            metrics: metrics.as_ref().map(|listener| listener.address),
        };
        Ok(Self { entry, listeners, identity, metrics })
    }

    /// Serves. With `founds` it is the first of the managers.
    fn start(
        self,
        plan: &BootstrapPlan,
        map: PartitionMap,
        founds: Option<ClusterState>,
    ) -> Result<RunningNode, Problem> {
        let Self { entry, listeners, identity, metrics } = self;
        let wrong = |error: &dyn std::fmt::Display| Problem::new(error.to_string());
        let settings = NodeSettings {
            partitions: plan.partitions,
            space_wait: plan.space_wait,
            ..NodeSettings::new(ByteSize(entry.memory.max(ENGINE_BYTES_MIN)))
        };
        let node = Node::in_pool(NodeId(entry.id), map, settings.clone(), engine(&settings)?);
        let certificate = match &plan.certificate {
            Some(pem) => Some(Certificate::from_pem(pem).map_err(|error| wrong(&error))?),
            None => identity.map(|identity| identity.certificate().clone()),
        };
        let token = Token::new(plan.token.as_bytes()).map_err(|error| wrong(&error))?;
        let secret = PoolSecret { token, pool: plan.pool.clone(), certificate };
        let token = secret.node_token(node.id());
        RunningNode::start(&node, listeners, &token, PoolConnector::new(secret), (metrics, founds))
    }
}

/// The state of a pool that begins, for the first of its nodes.
fn first_state(map: PartitionMap, entries: &[NodeEntry], id: u32) -> Option<ClusterState> {
    let is_first = entries.iter().all(|entry| entry.id >= id);
    let addresses: BTreeMap<NodeId, Arc<str>> = map.addresses().map(|(node, text)| (node, text.into())).collect();
    let known = |entry: &NodeEntry| {
        let node = NodeId(entry.id);
        Some((node, addresses.get(&node)?.clone(), entry.memory))
    };
    is_first.then(|| ClusterState::new(map, entries.iter().filter_map(known)))
}

impl RunningNode {
    fn start(
        node: &Arc<Node>,
        listeners: Vec<Listener>,
        token: &Token,
        connector: PoolConnector,
        (metrics, founds): (Option<MetricsListener>, Option<ClusterState>),
    ) -> Result<Self, Problem> {
        let cannot = |error: &dyn std::fmt::Display| Problem::new(format!("the node cannot serve: {error}"));
        let made = runtime::Builder::new_multi_thread()
            .worker_threads(server_threads(THREADS_MAX))
            .thread_name("tidemill-node")
            .enable_all()
            .build();
        let runtime = made.map_err(|error| cannot(&error))?;
        let end = Arc::new(watch::Sender::new(false));
        let hook = end.clone();
        node.on_stop(Box::new(move || {
            hook.send_replace(true);
        }));
        let mut listeners = listeners.into_iter();
        let first = listeners.next().ok_or_else(|| cannot(&"it has no address"))?;
        let (limits, connector) = (ServerLimits::default(), Arc::new(connector) as Arc<dyn Connector>);
        let manager = runtime.block_on(Manager::start(runtime.handle(), node, connector.clone(), founds));
        let manager = manager.map_err(|error| cannot(&error))?;
        let served = serve_on(runtime.handle(), node.clone(), first, token, limits, Some(connector));
        let mut server = served.map_err(|error| cannot(&error))?;
        listeners.try_for_each(|listener| server.add_listener(listener)).map_err(|error| cannot(&error))?;
        let metrics = metrics.map(|listener| MetricsServer::start(listener, node)).transpose()?;
        Ok(Self { runtime, server, end, metrics, manager })
    }

    /// Returns a function that stops the node from another thread.
    pub fn stopper(&self) -> impl Fn() + Send + 'static + use<> {
        let end = self.end.clone();
        move || {
            end.send_replace(true);
        }
    }

    /// Serves until the node is asked to stop; then ends all connections and stops listening.
    pub fn wait(self) {
        let Self { runtime, server, end, metrics, manager } = self;
        runtime.block_on(async {
            // This function owns the sender, so waiting cannot fail.
            let _ = end.subscribe().wait_for(|end| *end).await;
            manager.stop().await;
            server.stop().await;
        });
        drop(metrics);
    }
}

/// Listens on a Unix socket for this host and on the network for others. Returns the listeners and
/// their addresses, the preferred address first.
fn listen(
    spec: &NodeSpec,
    directory: &Path,
    identity: Option<&Identity>,
) -> Result<(Vec<Listener>, Vec<Address>), Problem> {
    let host = match &spec.address_source {
        AddressSource::LocalHost => Ipv4Addr::LOCALHOST.to_string(),
        AddressSource::Named(host) => host.clone(),
        AddressSource::HostName => host_name(),
    };
    // On its own host a name may resolve to loopback, so a node that others reach by name listens
    // at every address.
    let is_name = spec.address_source.is_open() && host.parse::<IpAddr>().is_err();
    let at = if is_name { Ipv4Addr::UNSPECIFIED.to_string() } else { host.clone() };
    let bound = match identity.filter(|_| spec.address_source.is_open()) {
        Some(identity) => Listener::bind_tls(&Address::Tls { host: at, port: spec.port }, identity),
        None => Listener::bind_plain(&Address::Tcp { host: at, port: spec.port }),
    };
    let failed = |error: ListenError| Problem::new(error.to_string());
    let network = bound.map_err(failed)?;
    let advertised = match network.address().clone() {
        Address::Tcp { port, .. } => Address::Tcp { host, port },
        Address::Tls { port, .. } => Address::Tls { host, port },
        path @ Address::Unix(_) => path,
    };
    match format!("unix:{}", directory.join("socket").display()).parse::<Address>() {
        Ok(address) => {
            let local = Listener::bind(&address).map_err(failed)?;
            Ok((vec![local, network.advertise(advertised.clone())], vec![address, advertised]))
        }
        // The path is too long for a socket: clients of this host use the network too.
        Err(error) => {
            tracing::warn!("clients of this host use the network too: {error}");
            Ok((vec![network.advertise(advertised.clone())], vec![advertised]))
        }
    }
}

/// True if this host's pool file has exactly this entry.
fn is_in_pool_file(pool: &Path, entry: &NodeEntry) -> bool {
    PoolFile::read(pool).is_ok_and(|file| file.nodes.contains(entry))
}

/// Detaches from the starter: standard error goes to the log, standard input and output to
/// `/dev/null`.
pub fn detach(log: &Path) -> Result<(), Problem> {
    let changed = || -> io::Result<()> {
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_links).open(log)?;
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&log)?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        Ok(())
    };
    changed().map_err(|error| Problem::new(format!("the log {} cannot be opened: {error}", log.display())))
}

fn expect_message<T>(line: io::Result<Option<T>>, message: &str) -> Result<T, Problem> {
    match line {
        Ok(Some(line)) => Ok(line),
        Ok(None) => Err(starter_gone(message)),
        Err(error) => Err(Problem::new(format!("the starter's {message} cannot be read: {error}"))
            .hint("`tidemill pool start` starts nodes; this command is for it")),
    }
}

fn check_sent(sent: io::Result<()>) -> Result<(), Problem> {
    sent.map_err(|error| Problem::new(format!("the starter has ended: {error}")))
}

fn starter_gone(message: &str) -> Problem {
    Problem::new(format!("the starter ended before it sent its {message}"))
        .hint("`tidemill pool start` starts nodes; this command is for it")
}

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}
