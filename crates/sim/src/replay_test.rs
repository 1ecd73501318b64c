//! A partition can be saved and restored between any two commands, and its commands replayed, with
//! equal answers.

use crate::{clients::*, names_model::NameTree, pool::*};
use client::{Connection, testing::SteppedConnection};
use node::ReplyFuture;
use parking_lot::Mutex;
use partition::{Partition, Settings};
use placement::{FileId, NodeId, PartitionId, PartitionMap};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use test_support::Random;
use wire::{
    Answer, Body, Command, Failure, HelloReply, Object, Outcome, Owner, Refusal, Request, RequestId, Session,
    SpaceUsage, Timestamp,
};

const PARTITIONS: u16 = 8;

/// A command of a partition, and its answer.
struct JournalEntry {
    request_id: Option<RequestId>,
    command: Command,
    now: Timestamp,
    answer: Outcome<Answer>,
}

#[derive(Default)]
struct Journal(Vec<JournalEntry>);

/// Partitions without a node. Each is serialized and restored before every command.
struct BarePartitions {
    partitions: Vec<Mutex<(Partition, Journal)>>,
    settings: Settings,
    sessions: AtomicU64,
    clock: AtomicU64,
}

impl BarePartitions {
    fn new(split_entries: u32) -> Arc<Self> {
        let settings = Settings { split_entries, ..Settings::new(7, STRIPE) };
        let partitions =
            (0..PARTITIONS).map(|id| Mutex::new((empty_partition(id, settings), Journal::default()))).collect();
        Arc::new(Self { partitions, settings, sessions: AtomicU64::new(0), clock: AtomicU64::new(0) })
    }

    fn meta(&self, partition: PartitionId, request_id: Option<RequestId>, command: Command) -> Outcome<Answer> {
        let secs = self.clock.fetch_add(1, Relaxed).cast_signed();
        let now = Timestamp { secs, nanos: 0 };
        let mut guard = self.partitions[usize::from(partition.0)].lock();
        let (partition, journal) = &mut *guard;
        let mut copy = round_trip(partition);
        let answer = partition.apply(request_id, command.clone(), now);
        assert_eq!(
            copy.apply(request_id, command.clone(), now),
            answer,
            "what was written down answers the same: {command:?}"
        );
        *partition = copy;
        journal.0.push(JournalEntry { request_id, command, now, answer: answer.clone() });
        answer
    }

    fn end_session(&self, session: Session) -> Outcome<Answer> {
        let request_id = Some(RequestId { session, number: u64::MAX, settled: u64::MAX });
        let end = |id| self.meta(PartitionId(id), request_id, Command::CloseSession { session })?.closed();
        let deleted = (0..PARTITIONS).map(end).collect::<Outcome<Vec<_>>>()?.concat();
        Ok(Answer::Closed(deleted))
    }

    /// Replays all commands from the start.
    fn check_replay(&self) {
        for (id, guard) in (0..PARTITIONS).zip(&self.partitions) {
            let (partition, journal) = &*guard.lock();
            let mut again = empty_partition(id, self.settings);
            for JournalEntry { request_id, command, now, answer } in &journal.0 {
                assert_eq!(again.apply(*request_id, command.clone(), *now), *answer, "{command:?}");
            }
            assert_eq!((again.bytes(), again.files()), (partition.bytes(), partition.files()));
        }
    }
}

fn empty_partition(id: u16, settings: Settings) -> Partition {
    match id {
        0 => Partition::with_root(settings, Owner::default(), 0o755, Timestamp::default()),
        id => Partition::new(PartitionId(id), settings),
    }
}

fn round_trip(partition: &Partition) -> Partition {
    serde_json::from_str(&serde_json::to_string(partition).unwrap()).unwrap()
}

#[derive(Clone)]
struct BareConnection(Arc<BarePartitions>);

impl std::fmt::Debug for BareConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BareConnection")
    }
}

impl Connection for BareConnection {
    fn call(&self, request: Request) -> ReplyFuture {
        let answer = match request.body {
            Body::Hello => Ok(Answer::Hello(HelloReply {
                node: NodeId(1),
                session: Session(self.0.sessions.fetch_add(1, Relaxed) + 1),
                map: Arc::new(PartitionMap::one_node(NodeId(1), PARTITIONS.into()).unwrap()),
                seed: self.0.settings.seed,
                stripe_bytes: STRIPE,
            })),
            Body::Usage => Ok(Answer::Usage(SpaceUsage::default())),
            Body::Stop => Ok(Answer::Done),
            Body::Meta { request_id, command, .. } => self.0.meta(request.partition, request_id, command),
            Body::EndSession { session } => self.0.end_session(session),
            _ => Err(Refusal::invalid(Object::Pool, "there are only names here")),
        };
        ReplyFuture::ready(answer.map_err(Failure::Refused))
    }
}

fn try_seed(seed: u64, split_entries: u32) {
    let partitions = BarePartitions::new(split_entries);
    let healthy = block_on(over(BareConnection(partitions.clone()), RETRY_WITHOUT_PAUSES));
    let (mut tree, mut rng) = (NameTree::new(), Random::new(seed));
    block_on(create_initial_tree(&healthy, &mut tree));
    let client = |rng: &mut Random| InterleavedClient {
        vfs: block_on(over(SteppedConnection::new(BareConnection(partitions.clone())), RETRY_WITHOUT_PAUSES)),
        remaining: (0..6).map(|_| random_operation(rng, &tree)).collect(),
        in_flight: None,
    };
    let mut clients: Vec<InterleavedClient> = (0..3).map(|_| client(&mut rng)).collect();
    let (mut history, dead) = interleave(&mut clients, &mut rng, true);
    read_back(&healthy, &tree, &mut history);
    for session in dead {
        block_on(healthy.client().recover(session)).unwrap();
    }
    assert!(block_on(healthy.lookup(FileId::ROOT, b"nothing")).is_err());
    partitions.check_replay();
}

#[test]
fn partitions_that_are_saved_and_restored_between_all_messages_answer_the_same() {
    (0..40).for_each(|seed| try_seed(seed, 4096));
    (40..60).for_each(|seed| try_seed(seed, 2));
}
