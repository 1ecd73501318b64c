//! Reports to the node that the kernel has forgotten an inode: those under way, and those that a
//! request in flight may have crossed.
//!
//! ```text
//!   request:  begin ---------- asked ------ counted -- overlaps? --> ask again
//!   report:         begin (unknown?) ------------------- end
//!                                       ^ the pool may forget before or after it answers
//! ```
//!
//! The pool keeps a removed inode for a kernel that was told of it and has not reported it as
//! forgotten. If a report reaches the pool after the answer to a request, the pool takes an inode
//! for forgotten that the request is about to hand to the kernel. So a request counts its lookup
//! first and then looks for reports, and a report is registered first and then looks for lookups:
//! at least one of the two sees the other. A request that sees a report asks the pool again.
//!
//! This module neither sends reports nor asks again.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use placement::FileId;

use crate::lookup_counts::{InFlight, InFlightSet};

/// Reports of one kernel's forgotten inodes.
#[derive(Debug)]
pub(crate) struct ForgetReports {
    in_flight: Arc<InFlightSet>,
    /// Number of files in `reports`, readable without its lock.
    files: AtomicUsize,
    reports: Mutex<ReportTable>,
}

/// Reports by file.
#[derive(Debug, Default)]
struct ReportTable {
    files: HashMap<FileId, FileReports>,
    /// Ends of reports that requests in flight began before, with the moment of each, in order.
    /// The requests that a report waited for are not among these, so there are at most as many as
    /// there were reports due when the oldest request began.
    ended: VecDeque<(u64, FileId)>,
}

/// Reports of one file.
#[derive(Debug, Default)]
struct FileReports {
    /// Number of reports under way.
    active: usize,
    /// Moment when the last of the others ended; `None` if no request in flight began before.
    ended: Option<u64>,
}

/// Guard of a report under way; the report ends when the guard is dropped.
#[derive(Debug)]
pub(crate) struct ActiveReport {
    reports: Arc<ForgetReports>,
    file: FileId,
}

impl ForgetReports {
    /// No reports yet, of the kernel that has these requests in flight.
    pub(crate) fn new(in_flight: Arc<InFlightSet>) -> Self {
        Self { in_flight, files: AtomicUsize::default(), reports: Mutex::default() }
    }

    /// Starts a report of `file`. Returns `None`, as if nothing had been started, if the kernel
    /// knows the inode: `is_known` is called after the report is visible to requests.
    pub(crate) fn begin(self: &Arc<Self>, file: FileId, is_known: impl FnOnce() -> bool) -> Option<ActiveReport> {
        let mut reports = self.reports.lock();
        reports.files.entry(file).or_default().active += 1;
        self.files.store(reports.files.len(), Relaxed);
        if is_known() {
            reports.deactivate(file, None);
            self.prune(&mut reports);
            return None;
        }
        Some(ActiveReport { reports: Arc::clone(self), file })
    }

    /// True if a report of `file` has overlapped with `request`, which is in flight and has counted
    /// its lookup of `file`.
    pub(crate) fn overlaps(&self, file: FileId, request: &InFlight) -> bool {
        // Relaxed suffices. If the report did not see the lookup, then it checked the lookup counts
        // before the request locked them to add it, and it was visible before that. It stays so as
        // long as the request is in flight.
        if self.files.load(Relaxed) == 0 {
            return false;
        }
        let mut reports = self.reports.lock();
        self.prune(&mut reports);
        let of_file = reports.files.get(&file);
        of_file.is_some_and(|of| of.active > 0 || of.ended.is_some_and(|moment| request.began_before(moment)))
    }

    fn end(&self, file: FileId) {
        let mut reports = self.reports.lock();
        let moment = self.in_flight.now();
        reports.deactivate(file, Some(moment));
        reports.ended.push_back((moment, file));
        self.prune(&mut reports);
    }

    /// Removes the ends that no request in flight began before.
    fn prune(&self, reports: &mut ReportTable) {
        if !reports.ended.is_empty() {
            reports.remove_ended(self.in_flight.oldest());
        }
        self.files.store(reports.files.len(), Relaxed);
    }
}

impl ReportTable {
    /// Ends a report at `moment`; or with `None` takes it back, since nothing was sent.
    fn deactivate(&mut self, file: FileId, moment: Option<u64>) {
        let Entry::Occupied(mut of_file) = self.files.entry(file) else { return };
        of_file.get_mut().active -= 1;
        of_file.get_mut().ended = moment.or(of_file.get().ended);
        if of_file.get().is_empty() {
            of_file.remove();
        }
    }

    /// Removes the ends up to the moment `oldest`, at which the oldest request in flight began.
    fn remove_ended(&mut self, oldest: u64) {
        while let Some((_, file)) = self.ended.pop_front_if(|(moment, _)| *moment <= oldest) {
            let Entry::Occupied(mut of_file) = self.files.entry(file) else { continue };
            of_file.get_mut().ended = of_file.get().ended.filter(|moment| *moment > oldest);
            if of_file.get().is_empty() {
                of_file.remove();
            }
        }
    }
}

impl FileReports {
    fn is_empty(&self) -> bool {
        self.active == 0 && self.ended.is_none()
    }
}

impl Drop for ActiveReport {
    fn drop(&mut self) {
        self.reports.end(self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    fn reports() -> (Arc<InFlightSet>, Arc<ForgetReports>) {
        let in_flight = Arc::new(InFlightSet::default());
        (Arc::clone(&in_flight), Arc::new(ForgetReports::new(in_flight)))
    }

    fn is_empty(reports: &ForgetReports) -> bool {
        let table = reports.reports.lock();
        table.files.is_empty() && table.ended.is_empty() && reports.files.load(Relaxed) == 0
    }

    #[test]
    fn a_report_under_way_overlaps_with_every_request_for_its_file_alone() {
        let (requests, reports) = reports();
        let before = requests.begin();
        assert!(!reports.overlaps(FILE, &before));
        let report = reports.begin(FILE, || false);
        assert!(report.is_some() && reports.overlaps(FILE, &before) && reports.overlaps(FILE, &requests.begin()));
        assert!(!reports.overlaps(FileId(8), &before));
    }

    #[test]
    fn a_report_that_has_ended_overlaps_with_the_requests_that_began_before_its_end() {
        let (requests, reports) = reports();
        let before = requests.begin();
        let report = reports.begin(FILE, || false);
        let during = requests.begin();
        drop(report);
        let after = requests.begin();
        assert!(reports.overlaps(FILE, &before) && reports.overlaps(FILE, &during));
        assert!(!reports.overlaps(FILE, &after) && !reports.overlaps(FileId(8), &before));
    }

    #[test]
    fn an_end_is_forgotten_with_the_last_request_that_began_before() {
        let (requests, reports) = reports();
        drop(reports.begin(FILE, || false));
        assert!(is_empty(&reports), "nothing is in flight");
        let (one, other) = (requests.begin(), requests.begin());
        drop(reports.begin(FILE, || false));
        let after = requests.begin();
        drop(one);
        assert!(reports.overlaps(FILE, &other));
        drop(other);
        assert!(!reports.overlaps(FILE, &after) && is_empty(&reports), "one that began after it is in flight");
    }

    #[test]
    fn a_file_that_is_reported_again_and_again_stays_until_its_last_end() {
        let (requests, reports) = reports();
        let first = requests.begin();
        let under_way = reports.begin(FILE, || false);
        drop(reports.begin(FILE, || false));
        assert!(reports.overlaps(FILE, &requests.begin()), "one is under way");
        drop(under_way);
        let second = requests.begin();
        drop(reports.begin(FILE, || false));
        drop(first);
        assert!(reports.overlaps(FILE, &second) && !reports.overlaps(FILE, &requests.begin()));
        drop(second);
        drop(reports.begin(FileId(8), || false));
        assert!(is_empty(&reports));
    }

    #[test]
    fn what_the_kernel_knows_is_not_reported_and_overlaps_with_nothing() {
        let (requests, reports) = reports();
        let request = requests.begin();
        assert!(reports.begin(FILE, || reports.files.load(Relaxed) == 1).is_none(), "visible when that is asked");
        assert!(!reports.overlaps(FILE, &request) && is_empty(&reports));
        drop(reports.begin(FILE, || false));
        assert!(reports.begin(FILE, || true).is_none());
        assert!(reports.overlaps(FILE, &request), "with the one that was sent before");
    }
}
