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

use crate::{cache_policy::Ttl, deferred::DeferredReplies, invalidate, kernel_state::KernelState};

/// Cache lifetime of names and attributes without invalidations: when the pool has more mounts than
/// it supports as subscribers.
const FIXED_TTL: Duration = Duration::from_secs(1);

/// The session of one mount.
pub(crate) struct MountSession {
    pub(crate) vfs: Vfs,
    /// Session of the mounting process, for which nothing is cached.
    pub(crate) uncached_vfs: Vfs,
    /// Cache lifetimes for the mount's kernel.
    pub(crate) ttl: Ttl,
    /// Set once there is a kernel that may cache anything.
    kernel: Arc<OnceLock<Arc<KernelState>>>,
}

impl MountSession {
    /// Opens another session of the pool of `vfs`, and subscribes it.
    pub(crate) fn open(vfs: &Vfs, deferred: &DeferredReplies) -> Outcome<Self> {
        let uncached_vfs = vfs.clone();
        let vfs = deferred.wait(uncached_vfs.new_session())?;
        let kernel = Arc::new(OnceLock::<Arc<KernelState>>::new());
        let subscriber = Arc::clone(&kernel);
        let subscribed = deferred.wait(vfs.subscribe(Arc::new(move |recalls| {
            if let Some(kernel) = subscriber.get() {
                invalidate::on_invalidate(kernel, recalls);
            }
        })));
        let ttl = match subscribed {
            Ok(()) => Ttl::UntilInvalidated,
            Err(refusal) => {
                tracing::info!("names and attributes are kept for {FIXED_TTL:?}: {refusal}");
                Ttl::Fixed(FIXED_TTL)
            }
        };
        Ok(Self { vfs, uncached_vfs, ttl, kernel })
    }

    /// Directs invalidations to `kernel` from now on; also removals, if it supports prune
    /// notices.
    pub(crate) fn route_invalidations(&self, kernel: KernelState, pruning: bool) -> Arc<KernelState> {
        let kernel = Arc::clone(self.kernel.get_or_init(|| Arc::new(kernel)));
        if pruning && self.ttl == Ttl::UntilInvalidated && kernel.start_pruning() {
            self.vfs.declare_prune_support();
        }
        kernel
    }
}
