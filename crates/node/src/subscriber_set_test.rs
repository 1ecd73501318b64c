//! Tests of many subscribers of one node.

use crate::{Node, NodeSettings, OnInvalidate, embedded};
use parking_lot::Mutex;
use partition::SubscriberId;
use placement::{Epoch, FileId, PartitionId};
use std::{mem::take, sync::Arc};
use store::ModelEngine;
use wire::{
    Answer, Body, Changes, Command, ExtentRequest, Name, NewInode, NewKind, OpenedFile, Owner, Recall, Request,
    RequestId, Session,
};

/// A node with subscribers, which note what they are to drop: session 1 is the first, and so on.
struct Crowd {
    node: Arc<Node>,
    heard: Vec<Arc<Mutex<Vec<Recall>>>>,
    number: u64,
}

impl Crowd {
    fn new(subscribers: usize) -> Self {
        let settings = NodeSettings { stripe_bytes: 4096, ..NodeSettings::default() };
        let node = embedded(settings, Arc::new(ModelEngine::new(1 << 24, 4096)));
        let mut crowd = Self { node, heard: Vec::new(), number: 0 };
        for session in 0..subscribers {
            crowd.subscribe(session);
        }
        crowd
    }

    fn subscribe(&mut self, who: usize) {
        let heard = Arc::new(Mutex::new(Vec::new()));
        self.heard.push(heard.clone());
        let on_invalidate: OnInvalidate = Arc::new(move |recalls: &[Recall]| heard.lock().extend_from_slice(recalls));
        self.node.subscribe(session(who), &on_invalidate).unwrap();
    }

    /// Executes a command for a session, and waits for the answer.
    fn ask(&mut self, session: Session, command: Command) -> Answer {
        self.number += 1;
        let request_id = RequestId { session, number: self.number, settled: self.number };
        let body = Body::Meta { request_id: command.is_mutation().then_some(request_id), command };
        let request = Request { epoch: Epoch::FIRST, session, skip_ack: false, partition: PartitionId(0), body };
        let waits = tokio::runtime::Builder::new_current_thread().build().unwrap();
        waits.block_on(self.node.handle(request)).unwrap()
    }

    fn create(&mut self, name: &str) -> FileId {
        let (parent, name) = (FileId::ROOT, Name::new(name.as_bytes()).unwrap());
        let inode = NewInode::new(NewKind::File, 0o600, Owner::default());
        let create = Command::Create { parent, name, inode, open: false, extent: ExtentRequest::None };
        match self.ask(STRANGER, create) {
            Answer::Opened(OpenedFile { attributes, .. }) => attributes.file,
            other => panic!("{other:?}"),
        }
    }

    /// Queries the attributes, which lets the session's kernel cache them.
    fn stat(&mut self, who: usize, file: FileId) {
        let answer = self.ask(session(who), Command::Stat { file });
        assert!(matches!(answer, Answer::Attributes(found) if found.cacheable), "{answer:?}");
    }

    fn change(&mut self, session: Session, file: FileId, mode: u32) {
        self.ask(session, Command::Change { file, changes: Changes { mode: Some(mode), ..Changes::default() } });
    }

    /// The invalidations of each subscriber since the last call.
    fn heard(&self) -> Vec<Vec<Recall>> {
        self.heard.iter().map(|heard| take(&mut *heard.lock())).collect()
    }
}

/// A session that is not subscribed.
const STRANGER: Session = Session(1 << 20);

fn session(who: usize) -> Session {
    Session(who as u64 + 1)
}

#[test]
fn each_of_a_hundred_subscribers_is_told_of_what_it_was_granted_and_of_nothing_else() {
    const MANY: usize = 100;
    let mut crowd = Crowd::new(MANY);
    let files: Vec<FileId> = (0..MANY).map(|number| crowd.create(&format!("f{number}"))).collect();
    for who in 0..MANY {
        crowd.stat(who, files[who]);
        crowd.stat(who, files[(who + 1) % MANY]);
    }
    crowd.heard();
    for file in &files {
        crowd.change(STRANGER, *file, 0o640);
    }
    for (who, mut heard) in crowd.heard().into_iter().enumerate() {
        let mut granted = [files[who], files[(who + 1) % MANY]].map(Recall::Attributes);
        heard.sort();
        granted.sort();
        assert_eq!(heard, granted, "subscriber {who}");
    }
}

#[test]
fn a_subscriber_of_any_number_is_not_told_of_its_own_change_and_all_others_are() {
    const MANY: usize = 100;
    let mut crowd = Crowd::new(MANY);
    let file = crowd.create("f");
    for (mode, changer) in [(0o640, 0), (0o644, 15), (0o660, 16), (0o664, 63), (0o666, 64), (0o600, 99)] {
        (0..MANY).for_each(|who| crowd.stat(who, file));
        crowd.heard();
        crowd.change(session(changer), file, mode);
        let told: Vec<usize> =
            (0..MANY).zip(crowd.heard()).filter(|(_, heard)| !heard.is_empty()).map(|(who, _)| who).collect();
        assert_eq!(told, (0..MANY).filter(|who| *who != changer).collect::<Vec<_>>());
    }
}

#[test]
fn one_subscriber_too_many_is_told_the_limit_and_takes_the_place_of_one_that_ends() {
    let mut crowd = Crowd::new(SubscriberId::MAX);
    let late = session(SubscriberId::MAX);
    let nobody: OnInvalidate = Arc::new(|_: &[Recall]| ());
    let refused = crowd.node.subscribe(late, &nobody).unwrap_err().to_string();
    assert_eq!(refused, "the pool: too many sessions or mounts, at most 128");
    let (file, other) = (crowd.create("f"), crowd.create("g"));
    crowd.stat(77, file);
    crowd.stat(78, file);
    crowd.node.unsubscribe(session(77));
    crowd.subscribe(SubscriberId::MAX);
    crowd.stat(SubscriberId::MAX, other);
    crowd.heard();
    crowd.change(STRANGER, file, 0o640);
    crowd.change(STRANGER, other, 0o640);
    let told = crowd.heard();
    assert_eq!(told[77], [], "it has ended");
    assert_eq!(told[78], [Recall::Attributes(file)]);
    assert_eq!(told[SubscriberId::MAX], [Recall::Attributes(other)], "it was granted nothing of its predecessor's");
}
