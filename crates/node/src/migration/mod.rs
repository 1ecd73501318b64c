//! The move of a partition to another node, while clients use it.
//!
//! ```text
//!   source (`departure`)                              target (`arrival`)
//!   Reserve {bytes} -------------------------------->  space for all of it, or nothing begins
//!   scan: Stripe {..} ------------------------------>  stripes of the partition
//!   a change of a stripe that was copied is done,
//!     forwarded (`forwarding_store`), and answered
//!     when both have it
//!   takes the partition out: requests wait
//!   what is left, State {..}, Prepare -------------->  is ready, and does not serve yet
//!                         the managers' word: the next entry of the map, or `cancel_move`
//!   learns the entry: what waits is refused as         learns the entry: serves
//!     `Moved`, with the entry
//! ```
//!
//! Clients send what was refused again, under the same request ids, and the cached replies went
//! along: so each change is done once. Opens, locks and intents are durable, so they stay; grants
//! of kernel caches go along as soft state. What belongs to a host stays there (`hosted`).
//!
//! While clients use the source, a move rests between its steps until the pause (`move_pace`).
//!
//! Until `Prepare` is sent, the source may give up by itself. From then on it waits for the
//! managers' word, because the target may serve at any moment.

mod arrival;
mod departure;
mod forwarding_store;
mod loads;
mod move_counters;
mod move_error;
mod move_pace;
mod stripe_copy;

pub use arrival::Arrivals;
pub use departure::{Departures, MoveLink};
pub use forwarding_store::ForwardingStore;
pub use loads::LocalLoad;
pub use move_counters::{MoveCounts, MoveProgress, NodeMoves};
pub use move_error::MoveError;
pub use move_pace::MovePace;
