//! The journal as a whole: what is written is read back, also after a crash.

use crate::*;
use flow::{DataId, TaskId};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

const HASH: &str = "af1349b9f5f9a1a6a0404dea36dcc949";

fn header(tasks: u32) -> JournalHeader {
    let workflow = JournalWorkflow { name: "f".into(), tasks, data: 9, ..JournalWorkflow::default() };
    JournalHeader {
        tidemill_journal: JOURNAL_VERSION,
        run: "f-1".into(),
        started_unix_ms: unix_ms(),
        process: 4711,
        host: "here".into(),
        workflow,
        ..JournalHeader::default()
    }
}

fn started(task: u32, attempt: u32) -> JournalRecord {
    let reason = "first-in-queue".to_owned();
    JournalRecord::Started { task: TaskId(task), attempt, worker: 0, slot: 1, reason, near: 10, far: 0, node: None }
}

fn done(task: u32, wrote: &[(u32, u64)]) -> JournalRecord {
    let wrote = wrote.iter().map(|(data, bytes)| (DataId(*data), *bytes)).collect();
    JournalRecord::Done { task: TaskId(task), attempt: 1, prepared_ms: 1, ran_ms: 2, wrote }
}

fn failed(task: u32, attempt: u32) -> JournalRecord {
    let why = "exit code 3".to_owned();
    JournalRecord::AttemptFailed { task: TaskId(task), attempt, prepared_ms: 1, ran_ms: 2, why }
}

fn exported(data: u32) -> JournalRecord {
    JournalRecord::Exported { data: DataId(data), path: "/out/A".into(), bytes: 5, hash: HASH.into() }
}

fn worker(worker: u32, name: &str) -> JournalRecord {
    JournalRecord::WorkerJoined { worker, name: name.into(), slots: 2, agent: None }
}

/// A journal of the records; the directory goes with the first value.
fn journal(records: &[JournalRecord]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join(JOURNAL_FILE);
    let mut writer = JournalWriter::create(&path, &header(4)).expect("begun");
    for record in records {
        writer.append(record.clone()).expect("written");
    }
    (directory, path)
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).expect("there").write_all(text.as_bytes()).expect("written");
}

fn phases(state: &JournalState) -> Vec<TaskPhase> {
    state.tasks.iter().map(|task| task.phase).collect()
}

#[test]
fn every_record_is_read_back_as_it_was_written() {
    let file = FileIdentity { bytes: 7, changed_ns: -3 };
    let records = [
        JournalRecord::Input { data: DataId(0), file },
        JournalRecord::Program { tool: "t".into(), path: "/bin/t".into(), file },
        JournalRecord::InputHashed { data: DataId(0), hash: HASH.into() },
        JournalRecord::ToolHashed { tool: "t".into(), hash: HASH.into() },
        JournalRecord::Reused { task: TaskId(3), from: "f-0".into(), wrote: vec![(DataId(8), 3)] },
        worker(0, "here"),
        started(0, 1),
        done(0, &[(1, 5), (2, 0)]),
        JournalRecord::Dropped { data: DataId(2) },
        JournalRecord::Lost { data: DataId(2) },
        JournalRecord::Again { task: TaskId(0) },
        failed(1, 1),
        JournalRecord::Retried { task: TaskId(1) },
        JournalRecord::Failed { task: TaskId(1), why: "no\nway \u{1b}".into() },
        exported(1),
        JournalRecord::Pool { used: 1, capacity: u64::MAX },
        JournalRecord::Warning { text: "w".into() },
        JournalRecord::WorkerLost { worker: 0 },
        JournalRecord::Resumed { process: 1, host: "there".into(), version: "0".into() },
        JournalRecord::Ended { outcome: "done".into() },
    ];
    let (_directory, path) = journal(&records);
    let mut reader = JournalReader::open(&path).expect("opened");
    assert_eq!(reader.header().run, "f-1");
    let read: Vec<JournalRecord> =
        std::iter::from_fn(|| reader.next_record().expect("whole")).map(|timed| timed.record).collect();
    assert_eq!(read, records);
    assert_eq!(fs::read_to_string(&path).expect("text").lines().count(), records.len() + 1, "one line each");
}

#[test]
fn a_run_that_was_killed_leaves_what_is_done_and_what_ran() {
    let (_directory, path) = journal(&[
        worker(0, "here"),
        started(0, 1),
        started(1, 1),
        done(0, &[(1, 5)]),
        exported(1),
        failed(1, 1),
        JournalRecord::Retried { task: TaskId(1) },
        started(1, 2),
    ]);
    append(&path, "{\"t\":900,\"event\":\"done\",\"task\":1,\"att");
    let state = JournalState::read(&path).expect("a torn line is no damage");
    assert_eq!(phases(&state), [TaskPhase::Done, TaskPhase::Running, TaskPhase::Waiting, TaskPhase::Waiting]);
    assert_eq!(state.exported(DataId(1)).map(|export| export.path.as_str()), Some("/out/A"));
    assert_eq!(state.data[&DataId(1)].bytes, 5);
    let attempts = &state.task(TaskId(1)).expect("there").attempts;
    assert_eq!((attempts.len(), attempts[0].failure.as_deref()), (2, Some("exit code 3")));
    assert_eq!(state.ended, None);
    assert_eq!(state.process(), (4711, "here".to_owned()));
}

#[test]
fn a_resume_cuts_the_torn_line_and_goes_on_with_the_times() {
    let (_directory, path) = journal(&[worker(0, "here"), started(0, 1), started(1, 1), done(0, &[])]);
    append(&path, "{\"t\":99999999,\"event\":\"war");
    let (mut writer, before) = JournalWriter::resume(&path).expect("free");
    writer.append(JournalRecord::Resumed { process: 5, host: "there".into(), version: "0".into() }).expect("written");
    writer.append(JournalRecord::Again { task: TaskId(0) }).expect("written");
    let state = JournalState::read(&path).expect("whole");
    assert_eq!(phases(&state)[..2], [TaskPhase::Waiting; 2]);
    let attempt = &state.tasks[1].attempts[0];
    assert!(attempt.ended_ms.is_some() && attempt.failure.as_deref().is_some_and(|why| why.contains("was ended")));
    assert_eq!(state.process(), (5, "there".to_owned()));
    assert!(state.last_ms >= before.last_ms);
}

#[test]
fn damage_is_refused_with_its_line() {
    for (text, what) in [("nonsense\n", "line 3"), ("{\"t\":1}\n", "line 3"), ("\0\0\n", "line 3")] {
        let (_directory, path) = journal(&[started(0, 1)]);
        append(&path, text);
        append(&path, "{\"t\":2,\"event\":\"again\",\"task\":0}\n");
        let error = JournalState::read(&path).expect_err("damaged").to_string();
        assert!(error.contains(what) && error.contains("damaged") && error.contains(JOURNAL_FILE), "{error}");
    }
}

#[test]
fn a_journal_of_another_version_and_one_without_a_header_are_refused_and_new_records_are_skipped() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join(JOURNAL_FILE);
    assert!(matches!(JournalReader::open(&path), Err(JournalError::Missing(_))));
    File::create(&path).expect("made");
    assert!(JournalReader::open(&path).expect_err("empty").to_string().contains("no header"));
    fs::write(&path, "{\"tidemill_journal\":2}\n").expect("written");
    assert!(matches!(JournalReader::open(&path), Err(JournalError::Version { found: 2, .. })));
    let (_directory, path) = journal(&[]);
    append(&path, "{\"t\":1,\"event\":\"of_tomorrow\",\"x\":[1]}\n");
    assert_eq!(JournalState::read(&path).expect("skipped").last_ms, 1);
}

#[test]
fn only_one_process_writes_a_journal() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join(JOURNAL_FILE);
    let mut writer = JournalWriter::create(&path, &header(1)).expect("begun");
    assert!(is_live(&path));
    let refused = JournalWriter::resume(&path).map(|_| ()).expect_err("it goes on");
    assert!(matches!(refused, JournalError::Live { process: 4711, resumed: false, .. }), "{refused}");
    assert!(matches!(JournalWriter::create(&path, &header(1)), Err(JournalError::Live { .. })));
    writer.append(JournalRecord::Ended { outcome: "done".into() }).expect("nothing was lost");
    drop(writer);
    assert!(!is_live(&path));
    assert_eq!(JournalState::read(&path).expect("whole").ended.map(|(_, outcome)| outcome).as_deref(), Some("done"));
    JournalWriter::create(&path, &header(1)).expect("an old journal is replaced");
    assert_eq!(JournalState::read(&path).expect("whole").ended, None);
}

#[test]
fn a_reader_follows_a_run_that_goes_on() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join(JOURNAL_FILE);
    let mut writer = JournalWriter::create(&path, &header(2)).expect("begun");
    let mut reader = JournalReader::open(&path).expect("opened");
    let mut state = JournalState::new(reader.header().clone());
    assert!(!state.follow(&mut reader).expect("nothing yet"));
    writer.append(started(1, 1)).expect("written");
    assert!(state.follow(&mut reader).expect("one"));
    assert_eq!(state.tasks[1].phase, TaskPhase::Running);
    append(&path, "{\"t\":5,\"event\":\"again\"");
    assert!(!state.follow(&mut reader).expect("half a line"));
    append(&path, ",\"task\":1}\n");
    assert!(state.follow(&mut reader).expect("the other half"));
    assert!(!reader.is_replaced());
}

#[test]
fn tasks_that_were_added_have_a_history() {
    let growth = |tasks| JournalRecord::Grew { tasks, growth: format!("{tasks} tasks") };
    let (_root, path) = journal(&[growth(2), started(4, 1), growth(1), done(4, &[])]);
    let state = JournalState::read(&path).unwrap();
    assert_eq!(state.growth, ["2 tasks", "1 tasks"]);
    let expected = [TaskPhase::Waiting; 4].into_iter().chain([TaskPhase::Done, TaskPhase::Waiting, TaskPhase::Waiting]);
    assert_eq!(phases(&state), expected.collect::<Vec<_>>());
}

#[test]
fn data_of_a_cluster_is_where_its_attempt_wrote_it_until_another_pool_is_formed() {
    let first = || AgentTrace { socket: "/run/first".into(), node: Some(3) };
    let agent = Some(AgentTrace { socket: "/run/a".into(), node: Some(1) });
    let at_node = JournalRecord::Started {
        task: TaskId(0),
        attempt: 1,
        worker: 0,
        slot: 0,
        reason: "space".into(),
        near: 0,
        far: 0,
        node: Some(2),
    };
    let joined = JournalRecord::WorkerJoined { worker: 0, name: "a".into(), slots: 2, agent: agent.clone() };
    let records = [JournalRecord::PoolFormed { first: first() }, joined, at_node, done(0, &[(1, 5)])];
    let (_directory, path) = journal(&records);
    let state = JournalState::read(&path).expect("read");
    assert_eq!((state.first, &state.workers[&0].agent), (Some(first()), &agent));
    assert_eq!((state.data[&DataId(1)].place, state.data[&DataId(1)].is_gone), (Some((1, 2)), false));
    let (_directory, path) = journal(&[&records[..], &[JournalRecord::PoolFormed { first: first() }]].concat());
    assert!(JournalState::read(&path).expect("read").data[&DataId(1)].is_gone);
}

#[test]
fn a_lost_worker_takes_its_attempts_with_it() {
    let lost = JournalRecord::WorkerLost { worker: 0 };
    let (_directory, path) = journal(&[worker(0, "n1"), worker(1, "n2"), started(0, 1), lost]);
    let state = JournalState::read(&path).expect("whole");
    assert_eq!(state.tasks[0].phase, TaskPhase::Waiting);
    assert_eq!(state.tasks[0].attempts[0].failure.as_deref(), Some("n1 was lost while it ran there"));
    assert!(state.workers[&0].lost_ms.is_some() && state.workers[&1].lost_ms.is_none());
}
