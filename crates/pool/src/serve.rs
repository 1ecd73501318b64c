//! A node's side of a start, and its life: it takes its seat, serves, and ends when it is asked to.

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
use link::{Address, Identity, Limits, ListenFailed, Listener, Server, serve_on};
use node::{Node, Settings};
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
use wire::handshake::Token;

/// Threads that carry a node's connections: one for each processor, up to so many.
const THREADS_MAX: usize = 16;
/// A node that only computes has an engine nevertheless: the smallest, of which nothing is ever touched.
const ENGINE_BYTES_MIN: u64 = 16 << 20;

/// What a node finds on its host.
pub struct Ground<'a> {
    /// A folder of its own, which goes with it.
    pub folder: &'a Path,
    /// What it logs once its starter has gone.
    pub log: &'a Path,
    /// The pool file, which its starter writes when all nodes serve.
    pub pool: &'a Path,
    /// How much of what was asked for it may take, one of so many nodes on this host.
    pub memory: &'a dyn Fn(Option<ByteSize>, u32) -> Result<ByteSize, Problem>,
}

/// A node that serves.
#[derive(Debug)]
pub struct Member {
    runtime: runtime::Runtime,
    server: Server,
    end: Arc<watch::Sender<bool>>,
}

/// Why a node does not serve.
#[derive(Debug)]
pub enum Unseated {
    /// Its starter was told, and says so.
    Told,
    /// There is nobody to tell but who runs this.
    Alone(Problem),
}

/// Takes the seat of node `id`, or of the `place`th if none is given, as the starter at the other end of `input` and `output` says, and tells it
/// what cannot be. The end of `input` before all is done ends it too.
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
            // It has gone.
            Err(_) => Unseated::Alone(problem),
        }
    })
}

/// Which seat is a node's.
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// That of the node with this id.
    Id(u32),
    /// The one at this place, from 0: the rank that `srun` gives.
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
    let settings = Settings {
        partitions: order.partitions,
        space_wait: order.space_wait,
        ..Settings::new(ByteSize(memory.0.max(ENGINE_BYTES_MIN)))
    };
    let map = map_of(&deal, order.partitions)?;
    let node = node::member(NodeId(seat.id), map, settings.clone(), engine(&settings)?);
    let key =
        Key { token, pool: order.pool.clone(), certificate: identity.map(|identity| identity.certificate().clone()) };
    let others = deal.iter().filter(|other| other.id != seat.id).map(|other| key.connection(other));
    let member = Member::serve(&node, listeners, &key.token_of(node.id()), &others.collect::<Result<Vec<_>, _>>()?)?;
    said(say(output, &Said::Ready(seat.id)))?;
    match hear(input) {
        Ok(Some(Told::Keep)) => {}
        // The starter was ended between the two: the pool stands, and others of its nodes may have heard.
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
        let served = serve_on(runtime.handle(), node.clone(), first, token, Limits::default(), others);
        let mut server = served.map_err(|error| cannot(&error))?;
        listeners.try_for_each(|listener| server.also_at(listener)).map_err(|error| cannot(&error))?;
        Ok(Self { runtime, server, end })
    }

    /// What ends it from another thread.
    pub fn ender(&self) -> impl Fn() + Send + 'static + use<> {
        let end = self.end.clone();
        move || {
            end.send_replace(true);
        }
    }

    /// Serves until it is asked to end; then all connections are ended, and nobody is reached here.
    pub fn wait(self) {
        let Self { runtime, server, end } = self;
        runtime.block_on(async {
            // The sender is ours: it cannot be gone.
            let _ = end.subscribe().wait_for(|end| *end).await;
            server.stop().await;
        });
    }
}

/// A socket of the host and one for others, and what they are to be called. The first is the better way, for who can take it.
fn listen(seat: &Seat, folder: &Path, identity: Option<&Identity>) -> Result<(Vec<Listener>, Vec<Address>), Problem> {
    let host = match &seat.reach {
        Reach::Here => Ipv4Addr::LOCALHOST.to_string(),
        Reach::Named(host) => host.clone(),
        Reach::OwnName => host_name(),
    };
    // Names are for others: a host's own may lead it to itself alone.
    let is_name = seat.reach.is_open() && host.parse::<IpAddr>().is_err();
    let at = if is_name { Ipv4Addr::UNSPECIFIED.to_string() } else { host.clone() };
    let bound = match identity.filter(|_| seat.reach.is_open()) {
        Some(identity) => Listener::bind_tls(&Address::Tls { host: at, port: seat.port }, identity),
        None => Listener::bind_plain(&Address::Tcp { host: at, port: seat.port }),
    };
    let failed = |error: ListenFailed| Problem::new(error.to_string());
    let far = bound.map_err(failed)?;
    let called = match far.address().clone() {
        Address::Tcp { port, .. } => Address::Tcp { host, port },
        Address::Tls { port, .. } => Address::Tls { host, port },
        path @ Address::Unix(_) => path,
    };
    match format!("unix:{}", folder.join("socket").display()).parse::<Address>() {
        Ok(address) => {
            let near = Listener::bind(&address).map_err(failed)?;
            Ok((vec![near, far.known_as(called.clone())], vec![address, called]))
        }
        // A path may be too long for a socket: then there is the other way.
        Err(error) => {
            tracing::warn!("clients of this host come by the network too: {error}");
            Ok((vec![far.known_as(called.clone())], vec![called]))
        }
    }
}

/// Whether the pool file of this host has this node, and no other, at its place.
fn is_told_of(pool: &Path, entry: &NodeEntry) -> bool {
    PoolFile::read(pool).is_ok_and(|file| file.nodes.contains(entry))
}

/// Nothing of the starter is held any more: what is logged from here on is in a file.
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
