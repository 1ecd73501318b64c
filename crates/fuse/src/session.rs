//! A mount's own session with the pool.
//!
//! What a kernel keeps is recalled when others change it, and changes of the same session are not others'. So a mount has a
//! session of its own, beside that of whoever mounts; it ends with the mount, and with it what was held open through it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use vfs::Vfs;
use wire::Outcome;

use crate::{known::Known, manners::Keeps, park::Parking, recall};

/// How long names and attributes are kept where nobody recalls them (more mounts than a pool can tell apart).
const KEEP_FOR: Duration = Duration::from_secs(1);

/// The session of one mount.
pub(crate) struct OwnSession {
    pub(crate) vfs: Vfs,
    /// The session beside it, which keeps nothing.
    pub(crate) beside: Vfs,
    /// What its kernel may keep.
    pub(crate) keeps: Keeps,
    /// Set when there is a kernel that may have kept something.
    known: Arc<OnceLock<Arc<Known>>>,
}

impl OwnSession {
    /// Another session of the pool of `vfs`.
    pub(crate) fn of(vfs: &Vfs, parking: &Parking) -> Outcome<Self> {
        let beside = vfs.clone();
        let vfs = parking.wait(beside.another())?;
        let known = Arc::new(OnceLock::<Arc<Known>>::new());
        let hearer = Arc::clone(&known);
        let watched = parking.wait(vfs.watch(Arc::new(move |recalls| {
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

    /// From now on `known` is told what to forget; and what others removed, where its kernel can be made to let go of that.
    pub(crate) fn hears(&self, known: Known, pruning: bool) -> Arc<Known> {
        let known = Arc::clone(self.known.get_or_init(|| Arc::new(known)));
        if pruning && self.keeps == Keeps::UntilRecalled && known.lets_go() {
            self.vfs.prunes();
        }
        known
    }
}
