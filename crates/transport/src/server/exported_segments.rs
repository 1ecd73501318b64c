//! Segments of the node's memory that were exported to a client of this host, and which of them it
//! has mapped.

use crate::socket::framed::Framed;
use std::{collections::BTreeMap, fmt, sync::Arc};
use store::{SegmentPosition, SharedMemory};
use wire::codec::{Segment, encode_segment, encode_segment_removed};

/// Most segments exported to one client; bytes in others are sent. Far more than there are clients
/// that write.
const EXPORTED_MAX: usize = 4096;

/// Segments exported to one client.
pub struct ExportedSegments {
    segments: Arc<dyn SharedMemory>,
    /// Exported segments by number: true if the client has mapped it.
    known: BTreeMap<u32, bool>,
    /// Number of removed segments at the last check.
    removed_seen: u64,
    /// True if the permanent segments were exported.
    permanent_exported: bool,
}

impl ExportedSegments {
    /// Exports the permanent segments, but not yet to a short-lived client.
    pub fn new(segments: &Arc<dyn SharedMemory>, short_lived: bool, framed: &mut Framed) -> Self {
        let mut exported = Self {
            segments: segments.clone(),
            known: BTreeMap::new(),
            removed_seen: segments.closed_segments(),
            permanent_exported: false,
        };
        if !short_lived {
            exported.export_permanent(framed);
        }
        exported
    }

    /// Exports the permanent segments: at the start, or, to a short-lived client, when it first
    /// asks for bytes.
    fn export_permanent(&mut self, framed: &mut Framed) {
        self.permanent_exported = true;
        for (number, _) in (0..).zip(self.segments.clone().lengths()) {
            self.export(number, framed);
        }
    }

    /// Memory of the node.
    pub fn segments(&self) -> &dyn SharedMemory {
        &*self.segments
    }

    /// Notes that the client has mapped a segment.
    pub fn mark_mapped(&mut self, number: u64) {
        if let Some(mapped) = u32::try_from(number).ok().and_then(|number| self.known.get_mut(&number)) {
            *mapped = true;
        }
    }

    /// Place of bytes for the client; `None` if it has not mapped their segment. An unknown segment
    /// is exported for the next time.
    pub fn locate(&mut self, bytes: &[u8], framed: &mut Framed) -> Option<SegmentPosition> {
        self.retract_removed(framed);
        let place = self.segments.locate(bytes)?;
        if !self.permanent_exported {
            self.export_permanent(framed);
        }
        if let Some(mapped) = self.known.get(&place.segment) {
            return mapped.then_some(place);
        }
        if self.known.len() < EXPORTED_MAX && framed.may_push_fd() {
            self.export(place.segment, framed);
        }
        None
    }

    fn export(&mut self, number: u32, framed: &mut Framed) {
        let Some(length) = self.segments.length(number) else { return };
        self.known.insert(number, false);
        match self.segments.open(number) {
            Ok(descriptor) => framed.push_with_fd(descriptor, |out| encode_segment(Segment { length }, number, out)),
            Err(error) => tracing::warn!(%error, "a segment could not be exported to a client of this host"),
        }
    }

    /// Tells the client which segments were removed; their numbers are never used again.
    fn retract_removed(&mut self, framed: &mut Framed) {
        let gone = self.segments.closed_segments();
        if std::mem::replace(&mut self.removed_seen, gone) == gone {
            return;
        }
        let segments = &self.segments;
        self.known.retain(|number, _| {
            let exists = segments.length(*number).is_some();
            if !exists {
                encode_segment_removed(*number, framed.out.short());
            }
            exists
        });
    }
}

impl fmt::Debug for ExportedSegments {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ExportedSegments").field("known", &self.known).finish_non_exhaustive()
    }
}
