//! Members whose content the source of the plan reads: the text decides how the script goes on.

use super::EventLoop;
use crate::export::ChunkSource;
use crate::plan_source::READ_BYTES_MAX;
use crate::run_files::PoolAccess;
use flow::{DataId, TaskId};
use report::Status;
use sched::SchedulerEvent;
use std::path::Path;
use std::time::Instant;

/// Bytes that are read from the pool at a time.
const CHUNK_BYTES: u32 = 1 << 20;

/// A read that has ended.
pub struct MemberRead {
    pub data: DataId,
    pub ended: Instant,
    content: Result<Vec<u8>, String>,
}

impl EventLoop<'_> {
    /// Reads a member for the source of the plan. One that is lost is read when it was written
    /// again.
    pub(super) fn read(&mut self, data: DataId) {
        self.reads.insert(data);
        if self.context.flow.writer_of(data).is_some() && !self.scheduler.exists(data) {
            // It is read when it was written again.
            return self.send_event(SchedulerEvent::LostData { data, needed: true });
        }
        let Some(files) = &self.context.files else {
            return self.tell_content(data, Err("there is no pool, and so no data".to_owned()));
        };
        let (access, place) = (files.reader(), files.place_of(data));
        self.reading.spawn(async move {
            let content = read_one(&access, &place).await;
            MemberRead { data, ended: Instant::now(), content }
        });
    }

    pub(super) fn read_ended(&mut self, read: MemberRead) {
        if read.content.is_err() {
            if self.is_doubtful_at(read.data, read.ended) {
                return self.held_reads.push(read);
            }
            let writer = self.context.flow.writer_of(read.data);
            let runs_again = |task: TaskId| self.recorder.run.tasks[task.0 as usize].status != Status::Done;
            if writer.is_some_and(runs_again) {
                return;
            }
        }
        self.tell_content(read.data, read.content);
    }

    /// Reads a member again that was lost and is there again.
    pub(super) fn read_again(&mut self, data: DataId) {
        if self.reads.contains(&data) {
            self.read(data);
        }
    }

    /// Members that a failed task should have written again are not read any more.
    pub(super) fn fail_reads(&mut self, task: TaskId) {
        let flow = self.context.flow.clone();
        for data in flow.outputs(task) {
            if self.reads.contains(&data) {
                self.tell_content(data, Err("it is lost, and the task that makes it again has failed".to_owned()));
            }
        }
    }

    fn tell_content(&mut self, data: DataId, content: Result<Vec<u8>, String>) {
        self.reads.remove(&data);
        if let Some(grower) = &mut self.context.grower {
            grower.source.content(data, content);
        }
    }
}

async fn read_one(access: &PoolAccess, place: &Path) -> Result<Vec<u8>, String> {
    let mut source = access.open(place).await.map_err(|error| error.to_string())?;
    let read = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        loop {
            let chunk = source.chunk(content.len() as u64, CHUNK_BYTES).map_err(|error| error.to_string())?;
            if chunk.is_empty() {
                return Ok(content);
            }
            content.extend_from_slice(&chunk);
            if content.len() > READ_BYTES_MAX {
                return Err(format!("it has more than {} MiB, the most that a script reads", READ_BYTES_MAX >> 20));
            }
        }
    });
    read.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
