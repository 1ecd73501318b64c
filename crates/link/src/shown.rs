//! What of the node's memory a client of this host has been shown, and what of that it has mapped.

use crate::pipe::Pipe;
use std::{collections::BTreeMap, fmt, sync::Arc};
use store::{Place, Segments};
use wire::codec::{Segment, encode_hidden, encode_segment};

/// More segments are not shown to one client: what is in others is sent. Far more than there are clients that write.
const SHOWN_MAX: usize = 4096;

/// What one client was shown.
pub struct Shown {
    segments: Arc<dyn Segments>,
    /// By numbers: whether it is mapped there.
    known: BTreeMap<u32, bool>,
    /// As many had gone when this was last looked at.
    gone: u64,
    /// What is always there was shown.
    all: bool,
}

impl Shown {
    /// All that is always there; to a client that may be over soon nothing yet.
    pub fn new(segments: &Arc<dyn Segments>, brief: bool, pipe: &mut Pipe) -> Self {
        let mut shown = Self { segments: segments.clone(), known: BTreeMap::new(), gone: segments.gone(), all: false };
        if !brief {
            shown.show_all(pipe);
        }
        shown
    }

    /// Shows all that is always there: at once, or, to a client that may be over before it asks for bytes, when it does.
    fn show_all(&mut self, pipe: &mut Pipe) {
        self.all = true;
        for (number, _) in (0..).zip(self.segments.clone().lengths()) {
            self.show(number, pipe);
        }
    }

    /// The memory itself.
    pub fn segments(&self) -> &dyn Segments {
        &*self.segments
    }

    /// The client has mapped one.
    pub fn mapped(&mut self, number: u64) {
        if let Some(mapped) = u32::try_from(number).ok().and_then(|number| self.known.get_mut(&number)) {
            *mapped = true;
        }
    }

    /// Where the client finds these bytes; none when it does not. What it will find there later it is shown now.
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

    /// Tells which have gone: their numbers come never again.
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
