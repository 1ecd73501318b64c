//! Concurrent clients put, get, swap and delete a few shared objects, while others rename their
//! directories and write to them as files. Their results must be linearizable: there is *some*
//! order in which a single map gives these results, and in which no operation precedes another that
//! had ended before it began.

use crate::{Vfs, linear_test::*, pool_test::*};
use bytes::Bytes;
use client::{
    Objects,
    objects::{Condition, Value, Version},
    testing::{CountingConnection, SteppedConnection},
};
use std::{
    collections::{BTreeSet, HashSet},
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};
use store::ModelEngine;
use wire::{Refusal, RenameMode};

pub fn dice(seed: u64) -> Dice {
    Dice(seed)
}

const KEYS: [&str; 3] = ["k", "a/k", "b/k"];

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Key and bytes of a put. `PutAbsent` and `Swap` have conditions; `Swap` expects the version
    /// that this client saw last.
    Put(usize, u8),
    PutAbsent(usize, u8),
    Swap(usize, u8),
    Get(usize),
    Delete(usize),
    /// Renames the object of one key to another key, as a file.
    Move(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Done(Option<Version>),
    Value(u8, Version),
    Missing,
    /// The condition failed; the version that is present.
    Changed(Option<Version>),
}

#[derive(Clone, Debug)]
struct Event {
    action: Action,
    /// The version that the condition requires.
    asked: Option<Version>,
    began: usize,
    ended: Option<(usize, Seen)>,
}

/// State of the map: bytes of each key, and the version once a client has seen it.
type State = [Option<(u8, Option<Version>)>; KEYS.len()];

fn same(known: Option<Version>, told: Version) -> bool {
    known.is_none_or(|known| known == told)
}

/// Possible states after an event; empty if its reply is not allowed.
fn after(state: &State, event: &Event) -> Vec<State> {
    let put = |key: usize, fill: u8, version: Option<Version>| {
        let mut next = *state;
        next[key] = Some((fill, version));
        next
    };
    let Some((_, seen)) = event.ended else { return unanswered(state, event, put) };
    match (event.action, seen) {
        (Action::Put(key, fill), Seen::Done(version)) => vec![put(key, fill, version)],
        (Action::PutAbsent(key, fill), Seen::Done(version)) if state[key].is_none() => vec![put(key, fill, version)],
        (Action::Swap(key, fill), Seen::Done(version)) => match (state[key], event.asked) {
            (Some((_, known)), Some(asked)) if same(known, asked) => vec![put(key, fill, version)],
            _ => Vec::new(),
        },
        (Action::PutAbsent(key, _) | Action::Swap(key, _), Seen::Changed(present)) => match (state[key], present) {
            (None, None) => vec![*state],
            (Some((fill, known)), Some(present)) if same(known, present) && event.asked != Some(present) => {
                vec![put(key, fill, Some(present))]
            }
            _ => Vec::new(),
        },
        (Action::Get(key), Seen::Value(fill, version)) => match state[key] {
            Some((there, known)) if there == fill && same(known, version) => vec![put(key, fill, Some(version))],
            _ => Vec::new(),
        },
        (Action::Get(key) | Action::Delete(key), Seen::Missing) if state[key].is_none() => vec![*state],
        (Action::Delete(key), Seen::Done(_)) if state[key].is_some() => {
            let mut next = *state;
            next[key] = None;
            vec![next]
        }
        (Action::Move(from, _), Seen::Missing) if state[from].is_none() => vec![*state],
        (Action::Move(from, to), Seen::Done(_)) if state[from].is_some() => {
            let mut next = *state;
            next[to] = next[from].take();
            vec![next]
        }
        _ => Vec::new(),
    }
}

/// Possible states after an operation of a client that died: applied or not.
fn unanswered(state: &State, event: &Event, put: impl Fn(usize, u8, Option<Version>) -> State) -> Vec<State> {
    let mut states = vec![*state];
    match event.action {
        Action::Put(key, fill) => states.push(put(key, fill, None)),
        Action::PutAbsent(key, fill) if state[key].is_none() => states.push(put(key, fill, None)),
        Action::Swap(key, fill) if matches!((state[key], event.asked), (Some((_, known)), Some(asked)) if same(known, asked)) =>
        {
            states.push(put(key, fill, None));
        }
        Action::Delete(key) => {
            let mut next = *state;
            next[key] = None;
            states.push(next);
        }
        Action::Move(from, to) if state[from].is_some() => {
            let mut next = *state;
            next[to] = next[from].take();
            states.push(next);
        }
        _ => {}
    }
    states
}

fn fits(history: &[Event]) -> bool {
    let left = (0..history.len()).collect();
    search([None; KEYS.len()], history, &left, &mut HashSet::new())
}

fn search(
    state: State,
    history: &[Event],
    left: &BTreeSet<usize>,
    failed: &mut HashSet<(State, BTreeSet<usize>)>,
) -> bool {
    let ended = |event: &Event| event.ended.map_or(usize::MAX, |(at, _)| at);
    if left.iter().all(|at| history[*at].ended.is_none()) {
        return true;
    }
    if failed.contains(&(state, left.clone())) {
        return false;
    }
    let first_end = left.iter().map(|at| ended(&history[*at])).min().unwrap_or(usize::MAX);
    for at in left.iter().copied().filter(|at| history[*at].began <= first_end) {
        let mut rest = left.clone();
        rest.remove(&at);
        if after(&state, &history[at]).into_iter().any(|next| search(next, history, &rest, failed)) {
            return true;
        }
    }
    failed.insert((state, left.clone()));
    false
}

type Doing = Pin<Box<dyn Future<Output = Seen>>>;

struct Actor {
    vfs: Vfs,
    objects: Objects,
    todo: Vec<Action>,
    last: [Option<Version>; KEYS.len()],
    doing: Option<(usize, Doing)>,
}

/// Value of a put: one byte repeated, for a length that is inline, one stripe, or several stripes.
fn value(fill: u8) -> Bytes {
    let length = [10, STRIPE, 2 * STRIPE + 9][usize::from(fill) % 3];
    filled(fill, length).into()
}

async fn act(vfs: Vfs, objects: Objects, action: Action, asked: Option<Version>) -> Seen {
    let put = async |key: usize, fill, condition| match objects.put(KEYS[key].as_bytes(), value(fill), condition).await
    {
        Ok(version) => Seen::Done(Some(version)),
        Err(Refusal::VersionMismatch { present, .. }) => Seen::Changed(present),
        Err(refusal) => panic!("{action:?}: {refusal}"),
    };
    match action {
        Action::Put(key, fill) => put(key, fill, Condition::Always).await,
        Action::PutAbsent(key, fill) => put(key, fill, Condition::Absent).await,
        Action::Swap(key, fill) => put(key, fill, asked.map_or(Condition::Absent, Condition::Is)).await,
        Action::Get(key) => match objects.get(KEYS[key].as_bytes()).await {
            Ok(got) => {
                let version = got.head.version;
                let bytes = got.into_bytes();
                assert!(bytes == value(bytes[0]), "torn: {} bytes of {}", bytes.len(), bytes[0]);
                Seen::Value(bytes[0], version)
            }
            Err(Refusal::NotFound(_)) => Seen::Missing,
            Err(refusal) => panic!("{action:?}: {refusal}"),
        },
        Action::Delete(key) => match objects.delete(KEYS[key].as_bytes(), Condition::Always).await {
            Ok(()) => Seen::Done(None),
            Err(Refusal::NotFound(_)) => Seen::Missing,
            Err(refusal) => panic!("{action:?}: {refusal}"),
        },
        Action::Move(source, target) => moved(&vfs, source, target).await,
    }
}

async fn moved(vfs: &Vfs, source: usize, target: usize) -> Seen {
    let above = async |key: usize| match KEYS[key].split_once('/') {
        Some((folder, _)) => vfs.lookup(Vfs::root(), folder.as_bytes()).await.unwrap().file,
        None => Vfs::root(),
    };
    let (old, new) = (above(source).await, above(target).await);
    match vfs.rename(from(old, "k"), to(new, "k"), RenameMode::Replace).await {
        Ok(()) => Seen::Done(None),
        Err(Refusal::NotFound(_)) => Seen::Missing,
        Err(refusal) => panic!("move: {refusal}"),
    }
}

fn draw(dice: &mut Dice, fill: u8) -> Action {
    let key = dice.below(KEYS.len());
    match dice.below(12) {
        0..=2 => Action::Put(key, fill),
        3 => Action::PutAbsent(key, fill),
        4 | 5 => Action::Swap(key, fill),
        6..=8 => Action::Get(key),
        9 => Action::Delete(key),
        _ => Action::Move(key, (key + 1) % KEYS.len()),
    }
}

fn run(actors: &mut Vec<Actor>, dice: &mut Dice, dies: bool) -> (Vec<Event>, Vec<wire::Session>) {
    let (mut history, mut dead, mut clock): (Vec<Event>, _, usize) = (Vec::new(), Vec::new(), 0);
    let death = if dies { dice.below(150) } else { usize::MAX };
    while !actors.is_empty() {
        clock += 1;
        assert!(clock < 200_000, "clients wait for each other for ever: {history:?}");
        let at = dice.below(actors.len());
        if clock == death {
            dead.push(actors.swap_remove(at).vfs.client.session());
            continue;
        }
        let actor = &mut actors[at];
        let Some((event, doing)) = &mut actor.doing else {
            let Some(action) = actor.todo.pop() else {
                drop(actors.swap_remove(at));
                continue;
            };
            let asked = if let Action::Swap(key, _) = action { actor.last[key] } else { None };
            let action = match action {
                Action::Swap(key, fill) if asked.is_none() => Action::PutAbsent(key, fill),
                action => action,
            };
            history.push(Event { action, asked, began: clock, ended: None });
            let doing = act(actor.vfs.clone(), actor.objects.clone(), action, asked);
            actor.doing = Some((history.len() - 1, Box::pin(doing)));
            continue;
        };
        if let Poll::Ready(seen) = doing.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let event = &mut history[*event];
            event.ended = Some((clock, seen));
            match (event.action, seen) {
                (Action::Put(key, _) | Action::PutAbsent(key, _) | Action::Swap(key, _), Seen::Done(version)) => {
                    actor.last[key] = version;
                }
                (Action::Get(key), Seen::Value(_, version)) => actor.last[key] = Some(version),
                _ => {}
            }
            actor.doing = None;
        }
    }
    (history, dead)
}

fn try_seed(seed: u64, clients: usize, operations: usize, dies: bool) {
    let nodes = if seed.is_multiple_of(4) { 4 } else { 1 };
    let settings = node::NodeSettings { partitions: 16, space_wait: Duration::ZERO, ..settings() };
    let pool = Pool::start(nodes, &settings, || Arc::new(ModelEngine::new(64 << 20, STRIPE)));
    let healthy = now(pool.over(|node| node, EAGER));
    for folder in ["a", "b"] {
        now(healthy.make_directories(folder.as_bytes())).unwrap();
    }
    let (before, mut dice, mut fill) = (healthy.usage(), Dice(seed), 0);
    let mut actor = |dice: &mut Dice| {
        let vfs = now(pool.over(SteppedConnection::new, EAGER));
        let mut drawn = || {
            fill += 1;
            draw(dice, fill)
        };
        let todo = (0..operations).map(|_| drawn()).collect();
        Actor { objects: Objects::new(vfs.client.clone()), vfs, todo, last: [None; KEYS.len()], doing: None }
    };
    let mut actors: Vec<Actor> = (0..clients).map(|_| actor(&mut dice)).collect();
    let sessions: Vec<wire::Session> = actors.iter().map(|actor| actor.vfs.client.session()).collect();
    let (mut history, _) = run(&mut actors, &mut dice, dies);
    let objects = Objects::new(healthy.client.clone());
    for key in 0..KEYS.len() {
        let action = Action::Get(key);
        let seen = now(act(healthy.clone(), objects.clone(), action, None));
        history.push(Event { action, asked: None, began: usize::MAX - 1, ended: Some((usize::MAX, seen)) });
    }
    let lines: Vec<String> = history.iter().map(|event| format!("{event:?}")).collect();
    assert!(fits(&history), "seed {seed}: in no order it is so:\n{}", lines.join("\n"));
    for key in KEYS {
        drop(now(objects.delete(key.as_bytes(), Condition::Always)));
    }
    for session in sessions {
        now(healthy.client.recover(session)).unwrap();
    }
    let after = healthy.usage();
    assert_eq!((after.used, after.files, after.stripes), (before.used, before.files, 0), "seed {seed}: space was left");
}

#[test]
fn whatever_clients_do_with_objects_at_once_has_an_order() {
    (0..400).for_each(|seed| try_seed(seed, 2, 5, false));
    (400..800).for_each(|seed| try_seed(seed, 3, 4, false));
}

#[test]
fn a_client_that_dies_among_others_has_done_its_last_put_or_not() {
    (0..600).for_each(|seed| try_seed(seed, 3, 4, true));
}

#[test]
fn an_object_of_several_stripes_is_got_with_a_message_for_each_and_one_more() {
    for nodes in FEW_NODES {
        let calls = Arc::new(AtomicU64::new(0));
        let vfs = now(Pool::of(nodes).over(|node| CountingConnection::new(node, calls.clone()), IMPATIENT));
        let objects = Objects::new(vfs.client.clone());
        now(objects.put(b"k", filled(1, 5 * STRIPE).into(), Condition::Always)).unwrap();
        let before = calls.load(Relaxed);
        now(objects.get(b"k")).unwrap();
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
            let (other, getter) = (now(pool.client()), now(pool.over(SteppedConnection::new, IMPATIENT)));
            let (other, getter) = (Objects::new(other.client.clone()), Objects::new(getter.client.clone()));
            now(other.put(b"k", long(1, length), Condition::Always)).unwrap();
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
                Some(length) => assert!(now(other.put(b"k", long(2, length), Condition::Always)).is_ok()),
                None => now(other.delete(b"k", Condition::Always)).unwrap(),
            }
            let got = now(get).map(Value::into_bytes);
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
    let event = |action, began, seen| Event { action, asked: None, began, ended: Some((began + 1, seen)) };
    let put = event(Action::Put(0, 1), 1, Seen::Done(Some(version(1))));
    assert!(fits(&[put.clone(), event(Action::Get(0), 3, Seen::Value(1, version(1)))]));
    for lie in [Seen::Missing, Seen::Value(2, version(1)), Seen::Value(1, version(2))] {
        assert!(!fits(&[put.clone(), event(Action::Get(0), 3, lie)]));
    }
    let both = [1, 2].map(|fill| event(Action::PutAbsent(1, fill), fill.into(), Seen::Done(None)));
    assert!(!fits(&both), "two that both found nothing");
}
