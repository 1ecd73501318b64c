//! Shared by the tests: served nodes, clients, a relay that can be cut, a raw client.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test uses some of it; processes talk by their output"
)]

pub mod host;

use client::{Client, RetryPolicy};
use node::{Node, NodeSettings};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, LazyLock, Mutex},
    thread,
    time::Duration,
};
use store::ModelEngine;
use transport::{Address, Certificate, Listener, Reactor, Remote, Server, ServerLimits};
use vfs::Vfs;
use wire::{
    Owner,
    codec::ToClient,
    frame::{Frames, Side},
    handshake::{ClientHandshake, HandshakeFailed, ProtocolVersions, Step, Token},
};

pub const OWNER: Owner = Owner { uid: 1000, gid: 100 };
pub const STRIPE: u32 = 64 << 10;
/// Longer than any wait in a test that passes.
pub const LONG: Duration = Duration::from_mins(10);

pub fn token() -> Token {
    Token::new(b"a token of the tests, not guessed").unwrap()
}

pub fn node() -> Arc<Node> {
    node_of(64 << 20)
}

/// Creates a node whose requests wait long for space.
pub fn node_of(memory: u64) -> Arc<Node> {
    let settings = NodeSettings {
        partitions: 16,
        stripe_bytes: STRIPE,
        space_wait: LONG,
        owner: OWNER,
        ..NodeSettings::default()
    };
    node::embedded(settings, Arc::new(ModelEngine::new(memory, STRIPE)))
}

pub fn any_port() -> Address {
    "tcp:127.0.0.1:0".parse().unwrap()
}

pub fn serve(node: &Arc<Node>, address: &Address) -> Server {
    serve_with(node, address, ServerLimits::default())
}

pub fn serve_with(node: &Arc<Node>, address: &Address, limits: ServerLimits) -> Server {
    transport::serve(node.clone(), Listener::bind(address).unwrap(), &token(), limits).unwrap()
}

/// True if a reactor drives the connections instead of a runtime; then subscribing is not possible.
/// So it is in the copy of this module that `with_reactor` has.
pub const WITH_REACTOR: bool = is_same(module_path!(), "suite::with_reactor::common");

/// Reactor that a thread always drives, so that any thread may poll futures over its connections.
static REACTOR: LazyLock<Reactor> = LazyLock::new(|| {
    let reactor = Reactor::new().unwrap();
    let turned = reactor.clone();
    thread::spawn(move || turned.block_on(std::future::pending::<()>()));
    reactor
});

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Connection to a node.
pub fn remote(address: &Address) -> Remote {
    remote_of(address, None)
}

/// Connection to a node, which may be within TLS.
pub fn remote_of(address: &Address, certificate: Option<&Certificate>) -> Remote {
    match certificate {
        certificate if WITH_REACTOR => Remote::with_reactor(&REACTOR, address.clone(), &token(), certificate).unwrap(),
        Some(certificate) => Remote::with_certificate(address.clone(), &token(), certificate).unwrap(),
        None => Remote::new(address.clone(), &token()),
    }
}

pub async fn vfs(address: &Address) -> Vfs {
    Vfs::new(Client::connect(Arc::new(remote(address)), RetryPolicy::default()).await.unwrap())
}

/// Relay to a server, which can be cut like a network.
#[derive(Debug)]
pub struct Relay {
    pub address: Address,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Registers the relay's address with the server, which refuses clients that mean another one.
    pub fn to(server: &mut Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let entrance = Listener::bind(&any_port()).unwrap().advertise(address.clone());
        let target = socket_of(entrance.address());
        server.add_listener(entrance).unwrap();
        Self::start(listener, address, target)
    }

    /// Relays between the clients of `listener` and `target`.
    pub fn start(listener: TcpListener, address: Address, target: String) -> Self {
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let kept = streams.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(&target) else { continue };
                kept.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { address, streams }
    }

    /// Cuts all connections, without a goodbye.
    pub fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub fn socket_of(address: &Address) -> String {
    match address {
        Address::Tcp { host, port } | Address::Tls { host, port } => format!("{host}:{port}"),
        Address::Unix(_) => panic!("not a TCP address"),
    }
}

/// Client that may break the protocol.
pub struct RawClient {
    pub stream: TcpStream,
    address: String,
    pub frames: Frames,
}

impl RawClient {
    pub fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(socket_of(server.address())).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self { stream, address: server.address().to_string(), frames: Frames::new(Side::Client) }
    }

    /// Does the handshake; fails with the node's refusal.
    pub fn shake_hands(&mut self, token: Token, versions: ProtocolVersions) -> Result<(), HandshakeFailed> {
        let mut handshake = ClientHandshake::new(token, versions, [7; 32], "a test").with_address(&self.address);
        loop {
            let step = self.frames.next()?.map(|frame| handshake.on_frame(&frame));
            match step {
                Some(Step::Send(send)) => self.stream.write_all(&send).unwrap(),
                Some(Step::Done { .. }) => {
                    self.frames.open();
                    return Ok(());
                }
                Some(Step::Close { why, .. }) => return Err(why),
                None => assert!(self.fill(), "closed in the middle of the handshake"),
            }
        }
    }

    /// Next message; `None` at the end.
    pub fn next(&mut self) -> Option<ToClient> {
        loop {
            if let Some(frame) = self.frames.next().unwrap() {
                return Some(ToClient::decode(frame).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    fn fill(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let Ok(read @ 1..) = self.stream.read(&mut bytes) else { return false };
        let mut bytes = &bytes[..read];
        while !bytes.is_empty() {
            self.frames.feed(&mut bytes);
            assert!(bytes.is_empty(), "frames of these tests are short");
        }
        true
    }
}

/// Returns whether the bytes are in a read-only mapping of shared memory.
pub fn is_view(bytes: &[u8]) -> bool {
    let at = bytes.as_ptr().addr();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let holds = |line: &str| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        (start..end).contains(&at) && rest.starts_with("r--s")
    };
    maps.lines().any(holds)
}
