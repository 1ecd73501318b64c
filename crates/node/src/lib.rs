//! Layer 3: a node: partitions and an engine behind requests.
//!
//! A [`Node`] takes [`wire::Request`]s and answers each with a [`Reply`]. Its partitions are pure
//! state machines. The node adds what they lack: a lock for each partition, the clock, the engine's
//! space, waiting, and files of the host.
//!
//! Invariants:
//! - A request is answered at once, unless it must wait for space, for a file lock or for
//!   cache-invalidation acks. A request that waits for space is woken when space is freed, and is
//!   refused with [`wire::Refusal::NoSpace`] after [`Settings::space_wait`]. Dropping its future
//!   leaves nothing behind.
//! - Commands that remove something never wait for space.
//! - No lock of a partition is held while bytes are copied, host files are read, or the engine
//!   frees space.
//!
//! A node knows neither paths nor open files: `vfs` does. It needs no async runtime.
#![forbid(unsafe_code)]

mod backing;
mod clock;
mod fold;
mod grants;
mod held;
mod host;
mod lane;
mod locks;
mod marks;
mod meta;
mod node;
mod object;
mod owners;
mod reply;
mod settings;
mod space;
mod strays;
mod sync;
mod thinning;
mod timer;
mod touched;
mod watch;
mod whole;
mod whole_calls;

pub use backing::{Backing, Loan};
pub use node::{Node, StopHook, embedded, member};
pub use reply::Reply;
pub use settings::Settings;
pub use strays::Question;
pub use timer::{Entered, LocalTime, SimulatedTime, Sleep, now, sleep_until};
pub use watch::Hear;

#[cfg(test)]
mod node_test;
