//! Concurrent clients put, get, swap and delete a few shared objects, while others rename their
//! directories and write to them as files. Their results must be linearizable: there is *some*
//! order in which a single map gives these results, and in which no operation precedes another that
//! had ended before it began.

use crate::{
    clients::{RETRY_WITHOUT_PAUSES, block_on},
    linearizability::*,
    object_model::*,
    pool::{self, *},
};
use bytes::Bytes;
use client::{
    Objects,
    objects::{Condition, Value, Version},
    testing::{CountingConnection, SteppedConnection},
};
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use store::{LateStore, ModelEngine};
use test_support::Random;
use vfs::Vfs;
use wire::{Refusal, RenameMode};

type InFlightCall = Pin<Box<dyn Future<Output = ObjectReply>>>;

struct ObjectClient {
    vfs: Vfs,
    objects: Objects,
    remaining: Vec<ObjectAction>,
    last: [Option<Version>; KEYS.len()],
    in_flight: Option<(usize, InFlightCall)>,
}

/// Value of a put: one byte repeated, for a length that is inline, one stripe, or several stripes.
fn value(fill: u8) -> Bytes {
    let length = [10, STRIPE, 2 * STRIPE + 9][usize::from(fill) % 3];
    filled(fill, length).into()
}

async fn execute_action(vfs: Vfs, objects: Objects, action: ObjectAction, expected: Option<Version>) -> ObjectReply {
    let put = async |key: usize, fill, condition| match objects.put(KEYS[key].as_bytes(), value(fill), condition).await
    {
        Ok(version) => ObjectReply::Done(Some(version)),
        Err(Refusal::VersionMismatch { present, .. }) => ObjectReply::Changed(present),
        Err(refusal) => panic!("{action:?}: {refusal}"),
    };
    match action {
        ObjectAction::Put(key, fill) => put(key, fill, Condition::Always).await,
        ObjectAction::PutAbsent(key, fill) => put(key, fill, Condition::Absent).await,
        ObjectAction::Swap(key, fill) => put(key, fill, expected.map_or(Condition::Absent, Condition::Is)).await,
        ObjectAction::Get(key) => match objects.get(KEYS[key].as_bytes()).await {
            Ok(got) => {
                let version = got.head.version;
                let bytes = got.into_bytes();
                assert!(bytes == value(bytes[0]), "torn: {} bytes of {}", bytes.len(), bytes[0]);
                ObjectReply::Value(bytes[0], version)
            }
            Err(Refusal::NotFound(_)) => ObjectReply::Missing,
            Err(refusal) => panic!("{action:?}: {refusal}"),
        },
        ObjectAction::Delete(key) => match objects.delete(KEYS[key].as_bytes(), Condition::Always).await {
            Ok(()) => ObjectReply::Done(None),
            Err(Refusal::NotFound(_)) => ObjectReply::Missing,
            Err(refusal) => panic!("{action:?}: {refusal}"),
        },
        ObjectAction::Move(source, target) => moved(&vfs, source, target).await,
    }
}

async fn moved(vfs: &Vfs, source: usize, target: usize) -> ObjectReply {
    let above = async |key: usize| match KEYS[key].split_once('/') {
        Some((directory, _)) => vfs.lookup(Vfs::root(), directory.as_bytes()).await.unwrap().file,
        None => Vfs::root(),
    };
    let (old, new) = (above(source).await, above(target).await);
    match vfs.rename(from(old, "k"), to(new, "k"), RenameMode::Replace).await {
        Ok(()) => ObjectReply::Done(None),
        Err(Refusal::NotFound(_)) => ObjectReply::Missing,
        Err(refusal) => panic!("move: {refusal}"),
    }
}

fn random_action(rng: &mut Random, fill: u8) -> ObjectAction {
    let key = rng.below(KEYS.len());
    match rng.below(12) {
        0..=2 => ObjectAction::Put(key, fill),
        3 => ObjectAction::PutAbsent(key, fill),
        4 | 5 => ObjectAction::Swap(key, fill),
        6..=8 => ObjectAction::Get(key),
        9 => ObjectAction::Delete(key),
        _ => ObjectAction::Move(key, (key + 1) % KEYS.len()),
    }
}

fn interleave(clients: &mut Vec<ObjectClient>, rng: &mut Random, dies: bool) -> (Vec<ObjectEvent>, Vec<wire::Session>) {
    let (mut history, mut dead, mut clock): (Vec<ObjectEvent>, _, usize) = (Vec::new(), Vec::new(), 0);
    let death = if dies { rng.below(150) } else { usize::MAX };
    while !clients.is_empty() {
        clock += 1;
        assert!(clock < 200_000, "clients wait for each other for ever: {history:?}");
        let at = rng.below(clients.len());
        if clock == death {
            dead.push(clients.swap_remove(at).vfs.client().session());
            continue;
        }
        let client = &mut clients[at];
        let Some((event, in_flight)) = &mut client.in_flight else {
            let Some(action) = client.remaining.pop() else {
                drop(clients.swap_remove(at));
                continue;
            };
            let expected = if let ObjectAction::Swap(key, _) = action { client.last[key] } else { None };
            let action = match action {
                ObjectAction::Swap(key, fill) if expected.is_none() => ObjectAction::PutAbsent(key, fill),
                action => action,
            };
            history.push(Event { operation: ObjectOperation { action, expected }, began: clock, ended: None });
            let in_flight = execute_action(client.vfs.clone(), client.objects.clone(), action, expected);
            client.in_flight = Some((history.len() - 1, Box::pin(in_flight)));
            continue;
        };
        if let Poll::Ready(reply) = in_flight.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let event = &mut history[*event];
            event.ended = Some((clock, reply));
            match (event.operation.action, reply) {
                (
                    ObjectAction::Put(key, _) | ObjectAction::PutAbsent(key, _) | ObjectAction::Swap(key, _),
                    ObjectReply::Done(version),
                ) => {
                    client.last[key] = version;
                }
                (ObjectAction::Get(key), ObjectReply::Value(_, version)) => client.last[key] = Some(version),
                _ => {}
            }
            client.in_flight = None;
        }
    }
    (history, dead)
}

/// Settings of one history.
#[derive(Clone, Copy, Default)]
struct HistorySettings {
    /// Drops one client at a random point.
    dies: bool,
    /// The engines answer late and out of order.
    is_late: bool,
}

fn try_seed(seed: u64, clients: usize, operations: usize, settings: HistorySettings) {
    let HistorySettings { dies, is_late } = settings;
    let nodes = if seed.is_multiple_of(4) { 4 } else { 1 };
    let settings = node::NodeSettings { partitions: 16, space_wait: Duration::ZERO, ..pool::settings() };
    let late_stores = Mutex::new(Vec::new());
    let pool = Pool::start(nodes, &settings, || {
        let model = ModelEngine::new(64 << 20, STRIPE);
        if !is_late {
            return Arc::new(model);
        }
        let late = Arc::new(LateStore::new(model, seed));
        late_stores.lock().push(late.clone());
        late
    });
    let healthy = block_on(pool.over(|node| node, RETRY_WITHOUT_PAUSES));
    for directory in ["a", "b"] {
        block_on(healthy.make_directories(directory.as_bytes())).unwrap();
    }
    let (before, mut rng, mut fill) = (healthy.usage(), Random::new(seed), 0);
    let mut client = |rng: &mut Random| {
        let vfs = block_on(pool.over(SteppedConnection::new, RETRY_WITHOUT_PAUSES));
        let mut next_action = || {
            fill += 1;
            random_action(rng, fill)
        };
        let remaining = (0..operations).map(|_| next_action()).collect();
        ObjectClient {
            objects: Objects::new(vfs.client().clone()),
            vfs,
            remaining,
            last: [None; KEYS.len()],
            in_flight: None,
        }
    };
    let mut clients: Vec<ObjectClient> = (0..clients).map(|_| client(&mut rng)).collect();
    let sessions: Vec<wire::Session> = clients.iter().map(|client| client.vfs.client().session()).collect();
    let (mut history, _) = interleave(&mut clients, &mut rng, dies);
    let objects = Objects::new(healthy.client().clone());
    for key in 0..KEYS.len() {
        let action = ObjectAction::Get(key);
        let reply = block_on(execute_action(healthy.clone(), objects.clone(), action, None));
        history.push(Event {
            operation: ObjectOperation { action, expected: None },
            began: usize::MAX - 1,
            ended: Some((usize::MAX, reply)),
        });
    }
    assert!(
        is_linearizable(&ObjectMap::default(), &history),
        "seed {seed}: in no order it is so:\n{}",
        format_history(&history)
    );
    for key in KEYS {
        drop(block_on(objects.delete(key.as_bytes(), Condition::Always)));
    }
    for session in sessions {
        block_on(healthy.client().recover(session)).unwrap();
    }
    late_stores.lock().iter().for_each(|late| late.settle());
    let after = healthy.usage();
    assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, 0), "seed {seed}: space was left");
}

#[test]
fn whatever_clients_do_with_objects_at_once_has_an_order() {
    (0..400).for_each(|seed| try_seed(seed, 2, 5, HistorySettings::default()));
    (400..800).for_each(|seed| try_seed(seed, 3, 4, HistorySettings::default()));
}

#[test]
fn a_client_that_dies_among_others_has_done_its_last_put_or_not() {
    (0..600).for_each(|seed| try_seed(seed, 3, 4, HistorySettings { dies: true, is_late: false }));
}

#[test]
fn it_has_an_order_over_engines_that_answer_late_too() {
    (0..300).for_each(|seed| try_seed(seed, 3, 4, HistorySettings { dies: false, is_late: true }));
    (300..600).for_each(|seed| try_seed(seed, 3, 4, HistorySettings { dies: true, is_late: true }));
}

#[test]
fn an_object_of_several_stripes_is_got_with_a_message_for_each_and_one_more() {
    for nodes in FEW_NODES {
        let calls = Arc::new(AtomicU64::new(0));
        let vfs = block_on(Pool::of(nodes).over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT));
        let objects = Objects::new(vfs.client().clone());
        block_on(objects.put(b"k", filled(1, 5 * STRIPE).into(), Condition::Always)).unwrap();
        let before = calls.load(Relaxed);
        block_on(objects.get(b"k")).unwrap();
        let messages = calls.load(Relaxed) - before;
        assert!(messages <= if nodes == 1 { 5 } else { 6 }, "{messages} messages over {nodes} nodes");
    }
}

#[test]
fn an_object_that_goes_at_any_moment_of_a_get_is_got_whole_or_is_the_next() {
    let long = |fill, length| Bytes::from(filled(fill, length));
    let length = 12 * STRIPE + 9;
    for (nodes, next) in
        FEW_NODES.into_iter().flat_map(|nodes| [(nodes, Some(length)), (nodes, Some(9)), (nodes, None)])
    {
        for moment in 0.. {
            let pool = Pool::of(nodes);
            let (other, getter) = (block_on(pool.client()), block_on(pool.over(SteppedConnection::new, IMPATIENT)));
            let (other, getter) = (Objects::new(other.client().clone()), Objects::new(getter.client().clone()));
            block_on(other.put(b"k", long(1, length), Condition::Always)).unwrap();
            let mut get = pin!(getter.get(b"k"));
            let mut context = Context::from_waker(Waker::noop());
            let early = (0..moment).find_map(|_| match get.as_mut().poll(&mut context) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            });
            if early.is_some() {
                break;
            }
            match next {
                Some(length) => assert!(block_on(other.put(b"k", long(2, length), Condition::Always)).is_ok()),
                None => block_on(other.delete(b"k", Condition::Always)).unwrap(),
            }
            let got = block_on(get).map(Value::into_bytes);
            let whole = |value: &Bytes| *value == long(1, length) || next.is_some_and(|next| *value == long(2, next));
            let right =
                got.as_ref().map_or_else(|refusal| matches!(refusal, Refusal::NotFound(_)) && next.is_none(), whole);
            assert!(right, "moment {moment}, {nodes} nodes, then {next:?}: {:?}", got.map(|value| value.len()));
        }
    }
}

#[test]
fn a_history_that_cannot_be_is_found_out() {
    let version = |change| Version { file: placement::FileId(1), change };
    let event = |action, began, reply| Event {
        operation: ObjectOperation { action, expected: None },
        began,
        ended: Some((began + 1, reply)),
    };
    let put = event(ObjectAction::Put(0, 1), 1, ObjectReply::Done(Some(version(1))));
    assert!(is_linearizable(
        &ObjectMap::default(),
        &[put.clone(), event(ObjectAction::Get(0), 3, ObjectReply::Value(1, version(1)))]
    ));
    for lie in [ObjectReply::Missing, ObjectReply::Value(2, version(1)), ObjectReply::Value(1, version(2))] {
        assert!(!is_linearizable(&ObjectMap::default(), &[put.clone(), event(ObjectAction::Get(0), 3, lie)]));
    }
    let both = [1, 2].map(|fill| event(ObjectAction::PutAbsent(1, fill), fill.into(), ObjectReply::Done(None)));
    assert!(!is_linearizable(&ObjectMap::default(), &both), "two that both found nothing");
}
