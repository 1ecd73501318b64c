//! Members that leave the pool: exported below `--out`, or dropped after their last reader.

use super::EventLoop;
use crate::event::RunEvent;
use crate::export::{self, ExportedFile};
use crate::run_files::{PoolAccess, RunFiles};
use crate::workspace::WorkspaceError;
use flow::DataId;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Members to export, and their target paths.
#[derive(Debug, Default)]
pub struct ExportPlan {
    /// Target path of each member to export.
    pub places: HashMap<DataId, PathBuf>,
    /// Members that no task reads: they leave the pool once they are exported, or written if they
    /// are not exported.
    pub finals: HashSet<DataId>,
}

/// Result of an export.
pub struct ExportResult {
    pub data: DataId,
    place: PathBuf,
    pub ended: Instant,
    pub result: Result<ExportedFile, String>,
}

impl EventLoop<'_> {
    /// Starts the export of a member, if it is one to export.
    pub(super) fn export(&mut self, data: DataId) {
        let goes = self.exports.finals.contains(&data) && !self.context.keep;
        let Some(place) = self.exports.places.get(&data).cloned() else {
            // Nobody needs it.
            if goes {
                self.drop_member(data);
            }
            return;
        };
        self.leaving.insert(data, goes);
        if goes {
            self.announce_removal(data);
        }
        let Some(files) = &self.context.files else { return };
        let (access, source, turns) = (files.reader(), files.place_of(data), self.export_permits.clone());
        self.exporting.spawn(async move {
            let _turn = turns.acquire().await;
            let result = export_one(&access, &source, place.clone()).await;
            ExportResult { data, place, ended: Instant::now(), result }
        });
    }

    pub(super) fn export_ended(&mut self, exported: ExportResult) {
        if exported.result.is_err() && self.is_doubtful_at(exported.data, exported.ended) {
            return self.held_exports.push(exported);
        }
        let ExportResult { data, place, result, .. } = exported;
        // A member that is not leaving any more was lost meanwhile, and will be exported again.
        let Some(drop_now) = self.leaving.remove(&data) else { return };
        match result {
            Ok(written) => {
                let (path, bytes) = (place.display().to_string(), written.bytes);
                self.recorder.exported(data, path.clone(), written);
                let data = self.context.flow.workflow().data_name(data);
                (self.on_event)(&RunEvent::Exported { data, path, bytes });
            }
            Err(error) => {
                let name = self.context.flow.workflow().data_name(data);
                let text = format!("{name} could not be exported: {error}");
                (self.on_event)(&RunEvent::Warning(text.clone()));
                self.recorder.problem(text);
            }
        }
        if drop_now {
            self.remove(data);
        }
    }

    /// Drops a member after its last reader; one that is being exported is dropped after the
    /// export.
    pub(super) fn drop_member(&mut self, data: DataId) {
        self.drop_copies(data);
        self.announce_removal(data);
        match self.leaving.get_mut(&data) {
            Some(drop_after) => *drop_after = !self.context.keep,
            None => self.remove(data),
        }
    }

    /// Counts the member's bytes as ones that will be freed without any task's doing.
    pub(super) fn announce_removal(&self, data: DataId) {
        if let Some(files) = self.files_of(data) {
            files.announce_removal(self.scheduler.bytes_of(data));
        }
    }

    /// The run's files, if a task wrote the member; `None` for inputs. Inputs stay until the end of
    /// the run (docs/SEMANTICS.md): bound ones take no memory.
    pub(super) fn files_of(&self, data: DataId) -> Option<&RunFiles> {
        let files = self.context.files.as_ref().filter(|_| self.context.flow.writer_of(data).is_some());
        files.filter(|files| !files.is_bound_output(data))
    }

    pub(super) fn remove(&mut self, data: DataId) {
        self.context.places.remove(data);
        let Some(files) = self.files_of(data) else { return };
        files.drop_member(data, self.scheduler.bytes_of(data));
        self.recorder.dropped(data);
    }
}

async fn export_one(access: &PoolAccess, source: &Path, place: PathBuf) -> Result<ExportedFile, String> {
    let mut source = access.open(source).await.map_err(|error: WorkspaceError| error.to_string())?;
    let mode = source.mode;
    let written = tokio::task::spawn_blocking(move || export::write(&mut source, &place, mode));
    match written.await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
