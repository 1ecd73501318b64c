//! Node process: takes part in the bootstrap of a pool, serves, and ends when it is asked to.

use crate::{
    PoolFile,
    connect::Key,
    embedded::engine,
    file::NodeEntry,
    order::{Memory, Order, Reach, Said, Seat, Told, VERSION, hear, map_of, say},
    process::Process,
};
use base::{ByteSize, Problem};
use client::Connection;
use node::{Node, NodeSettings};
use placement::NodeId;
use rustix::fs::OFlags;
use std::{
    fs::OpenOptions,
    io::{self, BufRead, Write},
    net::{IpAddr, Ipv4Addr},
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    thread,
};
use tokio::{runtime, sync::watch};
use transport::{Address, Identity, ListenError, Listener, Server, ServerLimits, serve_on};
use wire::handshake::Token;

/// Upper limit of the threads that serve connections; below it, one for each processor.
const THREADS_MAX: usize = 16;
/// Engine size of a node that only computes: the minimum, and none of it is ever touched.
const ENGINE_BYTES_MIN: u64 = 16 << 20;

/// Environment of a node on its host.
pub struct Ground<'a> {
    /// The node's own directory, removed when it ends.
    pub folder: &'a Path,
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
pub struct Member {
    runtime: runtime::Runtime,
    server: Server,
    end: Arc<watch::Sender<bool>>,
}

/// Reason why a node does not serve.
#[derive(Debug)]
pub enum Unseated {
    /// The starter was told the reason, and reports it.
    Told,
    /// The starter is not reachable; the caller must report the problem.
    Alone(Problem),
}

/// Bootstraps a node and reports a failure to its starter. `seat` selects the node's settings, and
/// `input` and `output` lead to the starter. If `input` ends before the bootstrap is complete, the
/// node ends too.
pub fn attend(
    seat: Pick,
    ground: &Ground,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<Member, Unseated> {
    let order: Order = heard(hear(&mut input), "order").map_err(Unseated::Alone)?;
    let mine = seat.of(&order).map_err(Unseated::Alone)?.clone();
    sit(&order, &mine, ground, &mut input, &mut output).map_err(|problem| {
        let refused = Said::Refused(mine.id, problem.message.clone(), problem.hint.clone());
        match say(&mut output, &refused) {
            Ok(()) => Unseated::Told,
            // The starter has gone.
            Err(_) => Unseated::Alone(problem),
        }
    })
}

/// Selects one node's settings in the bootstrap plan.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// The node with this id.
    Id(u32),
    /// The node at this index, from 0: the rank that `srun` gives.
    Place(usize),
}

impl Pick {
    fn of(self, order: &Order) -> Result<&Seat, Problem> {
        let seat = match self {
            Self::Id(id) => order.seats.iter().find(|seat| seat.id == id),
            Self::Place(place) => order.seats.get(place),
        };
        seat.ok_or_else(|| Problem::new(format!("the starter has no seat for {self:?} among {}", order.seats.len())))
    }
}

fn sit(
    order: &Order,
    seat: &Seat,
    ground: &Ground,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<Member, Problem> {
    if order.version != VERSION {
        return Err(Problem::new(format!("the starter is Tidemill {}, this is {VERSION}", order.version))
            .hint("install one version on all hosts"));
    }
    let token = Token::new(order.token.as_bytes()).map_err(|error| Problem::new(error.to_string()))?;
    let memory = match seat.memory {
        Memory::Bytes(0) => ByteSize(0),
        Memory::Bytes(bytes) => (ground.memory)(Some(ByteSize(bytes)), seat.nodes_here)?,
        Memory::Usual => (ground.memory)(None, seat.nodes_here)?,
    };
    let identity = order.identity.as_deref().map(Identity::from_pem).transpose();
    let identity = identity.map_err(|error| Problem::new(error.to_string()))?;
    let (listeners, addresses) = listen(seat, ground.folder, identity.as_ref())?;
    let entry = NodeEntry {
        id: seat.id,
        host: match &seat.reach {
            Reach::Named(host) => host.clone(),
            Reach::Here | Reach::OwnName => host_name(),
        },
        process: Process::this().map_err(|error| Problem::new(format!("this process is not known: {error}")))?,
        addresses,
        memory: memory.0,
        slots: seat.slots.unwrap_or_else(processors),
        log: ground.log.to_owned(),
    };
    said(say(output, &Said::Here(entry.clone())))?;
    let Told::Deal(deal) = heard(hear(input), "deal")? else { return Err(gone("deal")) };
    let settings = NodeSettings {
        partitions: order.partitions,
        space_wait: order.space_wait,
        ..NodeSettings::new(ByteSize(memory.0.max(ENGINE_BYTES_MIN)))
    };
    let map = map_of(&deal, order.partitions)?;
    let node = Node::in_pool(NodeId(seat.id), map, settings.clone(), engine(&settings)?);
    let key =
        Key { token, pool: order.pool.clone(), certificate: identity.map(|identity| identity.certificate().clone()) };
    let others = deal.iter().filter(|other| other.id != seat.id).map(|other| key.connection(other));
    let member = Member::serve(&node, listeners, &key.token_of(node.id()), &others.collect::<Result<Vec<_>, _>>()?)?;
    said(say(output, &Said::Ready(seat.id)))?;
    match hear(input) {
        Ok(Some(Told::Keep)) => {}
        // The starter was killed while it sent `Keep`: the pool file exists, and other nodes may
        // have received the message.
        Ok(None) if is_told_of(ground.pool, &entry) => {}
        other => return Err(heard::<Told>(other, "leave to stay").err().unwrap_or_else(|| gone("leave to stay"))),
    }
    let_go(ground.log)?;
    Ok(member)
}

impl Member {
    fn serve(
        node: &Arc<Node>,
        listeners: Vec<Listener>,
        token: &Token,
        others: &[(NodeId, Arc<dyn Connection>)],
    ) -> Result<Self, Problem> {
        let cannot = |error: &dyn std::fmt::Display| Problem::new(format!("the node cannot serve: {error}"));
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).clamp(2, THREADS_MAX);
        let made = runtime::Builder::new_multi_thread()
            .worker_threads(threads)
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
        let served = serve_on(runtime.handle(), node.clone(), first, token, ServerLimits::default(), others);
        let mut server = served.map_err(|error| cannot(&error))?;
        listeners.try_for_each(|listener| server.add_listener(listener)).map_err(|error| cannot(&error))?;
        Ok(Self { runtime, server, end })
    }

    /// Returns a function that stops the node from another thread.
    pub fn ender(&self) -> impl Fn() + Send + 'static + use<> {
        let end = self.end.clone();
        move || {
            end.send_replace(true);
        }
    }

    /// Serves until the node is asked to stop; then ends all connections and stops listening.
    pub fn wait(self) {
        let Self { runtime, server, end } = self;
        runtime.block_on(async {
            // This function owns the sender, so waiting cannot fail.
            let _ = end.subscribe().wait_for(|end| *end).await;
            server.stop().await;
        });
    }
}

/// Listens on a Unix socket for this host and on the network for others. Returns the listeners and
/// their addresses, the preferred address first.
fn listen(seat: &Seat, folder: &Path, identity: Option<&Identity>) -> Result<(Vec<Listener>, Vec<Address>), Problem> {
    let host = match &seat.reach {
        Reach::Here => Ipv4Addr::LOCALHOST.to_string(),
        Reach::Named(host) => host.clone(),
        Reach::OwnName => host_name(),
    };
    // On its own host a name may resolve to loopback, so a node that others reach by name listens
    // at every address.
    let is_name = seat.reach.is_open() && host.parse::<IpAddr>().is_err();
    let at = if is_name { Ipv4Addr::UNSPECIFIED.to_string() } else { host.clone() };
    let bound = match identity.filter(|_| seat.reach.is_open()) {
        Some(identity) => Listener::bind_tls(&Address::Tls { host: at, port: seat.port }, identity),
        None => Listener::bind_plain(&Address::Tcp { host: at, port: seat.port }),
    };
    let failed = |error: ListenError| Problem::new(error.to_string());
    let far = bound.map_err(failed)?;
    let called = match far.address().clone() {
        Address::Tcp { port, .. } => Address::Tcp { host, port },
        Address::Tls { port, .. } => Address::Tls { host, port },
        path @ Address::Unix(_) => path,
    };
    match format!("unix:{}", folder.join("socket").display()).parse::<Address>() {
        Ok(address) => {
            let near = Listener::bind(&address).map_err(failed)?;
            Ok((vec![near, far.advertise(called.clone())], vec![address, called]))
        }
        // The path is too long for a socket: clients of this host use the network too.
        Err(error) => {
            tracing::warn!("clients of this host come by the network too: {error}");
            Ok((vec![far.advertise(called.clone())], vec![called]))
        }
    }
}

/// True if this host's pool file has exactly this entry.
fn is_told_of(pool: &Path, entry: &NodeEntry) -> bool {
    PoolFile::read(pool).is_ok_and(|file| file.nodes.contains(entry))
}

/// Detaches from the starter: standard error goes to the log, standard input and output to
/// `/dev/null`.
fn let_go(log: &Path) -> Result<(), Problem> {
    let changed = || -> io::Result<()> {
        let no_links = OFlags::NOFOLLOW.bits().cast_signed();
        let log = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_links).open(log)?;
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stderr(&log)?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        Ok(())
    };
    changed().map_err(|error| Problem::new(format!("the log {} cannot be begun: {error}", log.display())))
}

fn heard<T>(line: io::Result<Option<T>>, what: &str) -> Result<T, Problem> {
    match line {
        Ok(Some(line)) => Ok(line),
        Ok(None) => Err(gone(what)),
        Err(error) => Err(Problem::new(format!("the starter's {what} cannot be read: {error}"))
            .hint("`tidemill pool start` starts nodes; this command is for it")),
    }
}

fn said(said: io::Result<()>) -> Result<(), Problem> {
    said.map_err(|error| Problem::new(format!("the starter does not listen any more: {error}")))
}

fn gone(what: &str) -> Problem {
    Problem::new(format!("the starter has gone before its {what} came"))
        .hint("`tidemill pool start` starts nodes; this command is for it")
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}
