//! The clients that are connected: the process of each, what it has leased, and how much it has
//! sent and got.
//!
//! Each connection counts alone, so that no two threads share a counter. Whoever asks adds up those
//! of all clients, and of those that have ended. Calls within a process are not counted.

use crate::Node;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    ops::AddAssign,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use wire::{Extent, Session};

/// What clients have sent to a node and got from it, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTraffic {
    /// Requests.
    pub requests: u64,
    /// Bytes of files in requests.
    pub received: u64,
    /// Bytes of files in answers.
    pub sent: u64,
}

impl AddAssign for ClientTraffic {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.received += other.received;
        self.sent += other.sent;
    }
}

/// The processes that have each extent, by its slot and generation.
pub type ExtentProcesses = HashMap<(u32, u32), BTreeSet<u32>>;

/// The clients of a node.
#[derive(Debug, Default)]
pub struct ConnectedClients {
    state: Mutex<ClientsState>,
}

#[derive(Debug, Default)]
struct ClientsState {
    issued: u64,
    live: BTreeMap<u64, Arc<ClientRecord>>,
    /// The sum over the clients that have ended.
    ended: ClientTraffic,
}

/// The record of one client.
#[derive(Debug, Default)]
struct ClientRecord {
    /// Its process, if that is of this host and visible here.
    process: Option<u32>,
    requests: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    sessions: Mutex<BTreeSet<Session>>,
    /// The extents of which it has leased descriptors, by the numbers of the leases.
    extents: Mutex<HashMap<u64, Extent>>,
}

/// The place of a client in the list of its node, until this is dropped. One task counts at a time.
pub struct ClientRegistration {
    node: Arc<Node>,
    number: u64,
    record: Arc<ClientRecord>,
}

impl ConnectedClients {
    /// What all clients have sent and got.
    pub fn traffic(&self) -> ClientTraffic {
        let state = self.state.lock();
        let mut sum = state.ended;
        state.live.values().for_each(|record| sum += record.traffic());
        sum
    }

    /// The processes that carry each session.
    pub fn session_processes(&self) -> HashMap<Session, u32> {
        let state = self.state.lock();
        let of_record = |record: &Arc<ClientRecord>| {
            let process = record.process?;
            Some(record.sessions.lock().iter().map(|session| (*session, process)).collect::<Vec<_>>())
        };
        state.live.values().filter_map(of_record).flatten().collect()
    }

    /// The processes that have leased a descriptor of each extent.
    pub fn extent_processes(&self) -> ExtentProcesses {
        let mut found = ExtentProcesses::new();
        for record in self.state.lock().live.values() {
            let Some(process) = record.process else { continue };
            for extent in record.extents.lock().values() {
                found.entry((extent.slot, extent.generation)).or_default().insert(process);
            }
        }
        found
    }
}

impl ClientRecord {
    fn traffic(&self) -> ClientTraffic {
        let [requests, received, sent] =
            [&self.requests, &self.received, &self.sent].map(|counter| counter.load(Relaxed));
        ClientTraffic { requests, received, sent }
    }
}

impl ClientRegistration {
    /// Counts a request with this number of bytes.
    pub fn count_request(&self, bytes: usize) {
        add(&self.record.requests, 1);
        add(&self.record.received, bytes as u64);
    }

    /// Counts the bytes of an answer.
    pub fn count_answer(&self, bytes: usize) {
        add(&self.record.sent, bytes as u64);
    }

    /// Notes that the client carries a session.
    pub fn add_session(&self, session: Session) {
        self.record.sessions.lock().insert(session);
    }

    /// Notes that the client has leased a descriptor of an extent.
    pub fn add_extent(&self, lease: u64, extent: Extent) {
        self.record.extents.lock().insert(lease, extent);
    }

    /// Notes that a lease has ended.
    pub fn end_lease(&self, lease: u64) {
        self.record.extents.lock().remove(&lease);
    }
}

/// Adds to a counter that only this task changes, without the cost of an exchange.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

impl Node {
    /// Registers a client that has connected, with its process if that is of this host.
    pub fn register_client(self: &Arc<Self>, process: Option<u32>) -> ClientRegistration {
        let record = Arc::new(ClientRecord { process, ..ClientRecord::default() });
        let mut state = self.clients.state.lock();
        state.issued += 1;
        let number = state.issued;
        state.live.insert(number, record.clone());
        ClientRegistration { node: self.clone(), number, record }
    }

    /// What clients have sent to this node and got from it.
    pub fn client_traffic(&self) -> ClientTraffic {
        self.clients.traffic()
    }
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        let mut state = self.node.clients.state.lock();
        state.live.remove(&self.number);
        state.ended += self.record.traffic();
    }
}

impl fmt::Debug for ClientRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRegistration").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeSettings, embedded};
    use base::ByteSize;
    use placement::NodeId;
    use store::ModelEngine;

    #[test]
    fn what_clients_have_sent_counts_on_when_they_have_ended_and_what_they_have_leased_does_not() {
        let node = embedded(NodeSettings::new(ByteSize(1 << 24)), Arc::new(ModelEngine::new(1 << 24, 1 << 20)));
        let [one, other] = [Some(7), None].map(|process| node.register_client(process));
        let extent = Extent { node: NodeId(1), slot: 3, generation: 2 };
        for client in [&one, &other] {
            client.count_request(10);
            client.count_answer(5);
            client.add_session(Session(if client.record.process.is_some() { 70 } else { 80 }));
            client.add_extent(1, extent);
        }
        one.count_request(0);
        let all = ClientTraffic { requests: 3, received: 20, sent: 10 };
        assert_eq!(node.client_traffic(), all);
        assert_eq!(node.clients.session_processes(), [(Session(70), 7)].into());
        assert_eq!(node.clients.extent_processes(), [((3, 2), [7].into())].into());
        one.end_lease(1);
        assert_eq!(node.clients.extent_processes(), HashMap::new());
        drop((one, other));
        assert_eq!((node.client_traffic(), node.clients.session_processes()), (all, HashMap::new()));
    }
}
