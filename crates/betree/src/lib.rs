//! Layer 0: a persistent, ordered key-value store for fast devices.
//!
//! The design is in `docs/design/2026-11-30-betree.md`, the format in `docs/formats/betree.md`. The
//! crate stands alone: it knows no pool, no network and no runtime.
//!
//! ```no_run
//! # use betree::{Options, Store, StoreError};
//! # use std::{ops::Bound, path::Path};
//! # fn main() -> Result<(), StoreError> {
//! let store = Store::open(Path::new("counts"), Options::default())?;
//! let words = store.database("words")?;
//! words.put(b"tide", b"7")?; // survives `kill -9` from now on
//! store.commit()?; // and now the loss of power
//! assert_eq!(words.get(b"tide").as_deref(), Some(&b"7"[..]));
//! for (word, count) in words.scan(Bound::Included(b"t"), 100) {
//!     println!("{word:?} {count:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All leaves are in memory, and all segments of the log are mapped. What is to come is in the
//! design.
//!
//! Modules:
//! - `store`, `database`, `store_error`: what users see
//! - `recovery`: opening a store
//! - `checkpoint`, `catalog`: the state of all databases on the device
//! - `tree`, `separators`, `leaf`, `leaf_page`, `stored_value`: a database in memory
//! - `log`, `log_record`, `sequencer`: the log of changes and long values
//! - `space`, `device`: where bytes are
#![deny(unsafe_code)]

mod bytes_at;
mod catalog;
mod checkpoint;
mod database;
mod device;
mod leaf;
mod leaf_page;
mod log;
mod log_record;
mod page_error;
mod recovery;
mod separators;
mod sequencer;
mod space;
mod store;
mod store_error;
mod stored_value;
mod tree;

pub use database::{Database, Entries, KEY_BYTES_MAX, VALUE_BYTES_MAX, ValueBytes};
pub use store::{Acknowledged, Options, Store, StoreStats};
pub use store_error::StoreError;
