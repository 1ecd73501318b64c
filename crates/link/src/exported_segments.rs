//! Segments of the node's memory that were exported to a client of this host, and which of them it
//! has mapped.

use crate::framed::Pipe;
use std::{collections::BTreeMap, fmt, sync::Arc};
use store::{Place, Segments};
use wire::codec::{Segment, encode_hidden, encode_segment};

/// Most segments exported to one client; bytes in others are sent. Far more than there are clients
/// that write.
const SHOWN_MAX: usize = 4096;

/// Segments exported to one client.
pub struct Shown {
    segments: Arc<dyn Segments>,
    /// Exported segments by number: true if the client has mapped it.
    known: BTreeMap<u32, bool>,
    /// Number of removed segments at the last check.
    gone: u64,
    /// True if the permanent segments were exported.
    all: bool,
}

impl Shown {
    /// Exports the permanent segments, but not yet to a short-lived client.
    pub fn new(segments: &Arc<dyn Segments>, brief: bool, pipe: &mut Pipe) -> Self {
        let mut shown = Self { segments: segments.clone(), known: BTreeMap::new(), gone: segments.gone(), all: false };
        if !brief {
            shown.show_all(pipe);
        }
        shown
    }

    /// Exports the permanent segments: at the start, or, to a short-lived client, when it first
    /// asks for bytes.
    fn show_all(&mut self, pipe: &mut Pipe) {
        self.all = true;
        for (number, _) in (0..).zip(self.segments.clone().lengths()) {
            self.show(number, pipe);
        }
    }

    /// Memory of the node.
    pub fn segments(&self) -> &dyn Segments {
        &*self.segments
    }

    /// Notes that the client has mapped a segment.
    pub fn mapped(&mut self, number: u64) {
        if let Some(mapped) = u32::try_from(number).ok().and_then(|number| self.known.get_mut(&number)) {
            *mapped = true;
        }
    }

    /// Place of bytes for the client; `None` if it has not mapped their segment. An unknown segment
    /// is exported for the next time.
    pub fn place(&mut self, bytes: &[u8], pipe: &mut Pipe) -> Option<Place> {
        self.hide_gone(pipe);
        let place = self.segments.place(bytes)?;
        if !self.all {
            self.show_all(pipe);
        }
        if let Some(mapped) = self.known.get(&place.segment) {
            return mapped.then_some(place);
        }
        if self.known.len() < SHOWN_MAX && pipe.has_room() {
            self.show(place.segment, pipe);
        }
        None
    }

    fn show(&mut self, number: u32, pipe: &mut Pipe) {
        let Some(length) = self.segments.length(number) else { return };
        self.known.insert(number, false);
        match self.segments.open(number) {
            Ok(descriptor) => pipe.push_with(descriptor, |out| encode_segment(Segment { length }, number, out)),
            Err(error) => tracing::warn!(%error, "a client of this host cannot look at some of the node's memory"),
        }
    }

    /// Tells the client which segments were removed; their numbers are never used again.
    fn hide_gone(&mut self, pipe: &mut Pipe) {
        let gone = self.segments.gone();
        if std::mem::replace(&mut self.gone, gone) == gone {
            return;
        }
        let segments = &self.segments;
        self.known.retain(|number, _| {
            let is_there = segments.length(*number).is_some();
            if !is_there {
                encode_hidden(*number, pipe.out.short());
            }
            is_there
        });
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shown").field("known", &self.known).finish_non_exhaustive()
    }
}
