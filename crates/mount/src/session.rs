//! A mount's own session with the pool.
//!
//! A session is not notified of its own changes, only of those of others. So a mount has a session
//! of its own, beside the one of the process that mounts. It ends with the mount, and closes
//! everything opened through it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use vfs::Vfs;
use wire::Outcome;

use crate::{known::Known, manners::Keeps, park::Parking, recall};

/// Cache lifetime of names and attributes without invalidations: when the pool has more mounts than
/// it supports as subscribers.
const KEEP_FOR: Duration = Duration::from_secs(1);

/// The session of one mount.
pub(crate) struct OwnSession {
    pub(crate) vfs: Vfs,
    /// Session of the mounting process, for which nothing is cached.
    pub(crate) beside: Vfs,
    /// Cache lifetimes for the mount's kernel.
    pub(crate) keeps: Keeps,
    /// Set once there is a kernel that may cache anything.
    known: Arc<OnceLock<Arc<Known>>>,
}

impl OwnSession {
    /// Opens another session of the pool of `vfs`, and subscribes it.
    pub(crate) fn of(vfs: &Vfs, parking: &Parking) -> Outcome<Self> {
        let beside = vfs.clone();
        let vfs = parking.wait(beside.new_session())?;
        let known = Arc::new(OnceLock::<Arc<Known>>::new());
        let hearer = Arc::clone(&known);
        let watched = parking.wait(vfs.subscribe(Arc::new(move |recalls| {
            if let Some(known) = hearer.get() {
                recall::hear(known, recalls);
            }
        })));
        let keeps = match watched {
            Ok(()) => Keeps::UntilRecalled,
            Err(refusal) => {
                tracing::info!("names and attributes are kept for {KEEP_FOR:?}: {refusal}");
                Keeps::For(KEEP_FOR)
            }
        };
        Ok(Self { vfs, beside, keeps, known })
    }

    /// Directs invalidations to `known` from now on; also removals, if its kernel supports prune
    /// notices.
    pub(crate) fn hears(&self, known: Known, pruning: bool) -> Arc<Known> {
        let known = Arc::clone(self.known.get_or_init(|| Arc::new(known)));
        if pruning && self.keeps == Keeps::UntilRecalled && known.lets_go() {
            self.vfs.declare_prune_support();
        }
        known
    }
}
