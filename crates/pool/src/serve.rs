//! A node's side of a start, and its life: it takes its seat, serves, and ends when it is asked to.

use crate::{
    connect::connection,
    embedded::engine,
    file::NodeEntry,
    order::{Memory, Order, Said, Seat, Told, VERSION, hear, map_of, say},
    process::Process,
};
use base::{ByteSize, Problem};
use client::Connection;
use link::{Address, Limits, Listener, Server, serve_on};
use node::{Node, Settings};
use placement::NodeId;
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
    /// How much of what was asked for it may take, one of so many nodes on this host.
    pub memory: &'a dyn Fn(Option<ByteSize>, u32) -> Result<ByteSize, Problem>,
}

/// A node that serves.
#[derive(Debug)]
pub struct Member {
    runtime: runtime::Runtime,
    server: Option<Server>,
    end: Arc<watch::Sender<bool>>,
}

/// Takes the seat of node `id`, or of the `place`th if none is given, as the starter at the other end of `input` and `output` says. What cannot be is
/// told there and here. The end of `input` before all is done ends it too.
pub fn attend(seat: Pick, ground: &Ground, mut input: impl BufRead, mut output: impl Write) -> Result<Member, Problem> {
    let order: Order = heard(hear(&mut input), "order")?;
    let mine = seat.of(&order)?.clone();
    let attended = sit(&order, &mine, ground, &mut input, &mut output);
    if let Err(problem) = &attended {
        let refused = Said::Refused(mine.id, problem.message.clone(), problem.hint.clone());
        // Who does not hear it any more has gone.
        let _ = say(&mut output, &refused);
    }
    attended
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
    let listeners = listen(seat, ground.folder)?;
    let entry = NodeEntry {
        id: seat.id,
        host: seat.host.clone().unwrap_or_else(host_name),
        process: Process::this().map_err(|error| Problem::new(format!("this process is not known: {error}")))?,
        addresses: listeners.iter().map(|listener| listener.address().clone()).collect(),
        memory: memory.0,
        slots: seat.slots.unwrap_or_else(processors),
        log: ground.log.to_owned(),
    };
    said(say(output, &Said::Here(entry)))?;
    let Told::Deal(deal) = heard(hear(input), "deal")? else { return Err(gone("deal")) };
    let settings = Settings {
        partitions: order.partitions,
        space_wait: order.space_wait,
        ..Settings::new(ByteSize(memory.0.max(ENGINE_BYTES_MIN)))
    };
    let map = map_of(&deal, order.partitions)?;
    let node = node::member(NodeId(seat.id), map, settings.clone(), engine(&settings)?);
    let others: Vec<(NodeId, Arc<dyn Connection>)> =
        deal.iter().filter(|other| other.id != seat.id).filter_map(|other| connection(other, &token)).collect();
    let member = Member::serve(&node, listeners, &token, &others)?;
    said(say(output, &Said::Ready(seat.id)))?;
    let Told::Keep = heard(hear(input), "leave to stay")? else { return Err(gone("leave to stay")) };
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
        let mut server: Option<Server> = None;
        for listener in listeners {
            let served = match &mut server {
                Some(server) => server.also_at(listener),
                None => serve_on(runtime.handle(), node.clone(), listener, token, Limits::default(), others)
                    .map(|first| server = Some(first)),
            };
            served.map_err(|error| cannot(&error))?;
        }
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
            if let Some(server) = server {
                server.stop().await;
            }
        });
    }
}

/// A socket of the host and one for others. The first is the better way, for who can take it.
fn listen(seat: &Seat, folder: &Path) -> Result<Vec<Listener>, Problem> {
    let host = seat.host.clone().unwrap_or_else(|| IpAddr::V4(Ipv4Addr::LOCALHOST).to_string());
    let addresses = [Address::Unix(folder.join("socket")), Address::Tcp { host, port: seat.port }];
    // Other hosts reach it plainly: who comes in proves the token, but what is said is not hidden.
    let bind = if seat.host.is_some() { Listener::bind_plain } else { Listener::bind };
    addresses.iter().map(|address| bind(address).map_err(|error| Problem::new(error.to_string()))).collect()
}

/// Nothing of the starter is held any more: what is logged from here on is in a file.
fn let_go(log: &Path) -> Result<(), Problem> {
    let changed = || -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
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
