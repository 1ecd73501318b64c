//! Frames that are to be written: short bytes together in one piece, payloads from where they lie.

use bytes::{Buf, Bytes};
use std::{collections::VecDeque, io::IoSlice};

/// Behind so many written bytes, the rest moves to the front, bytes.
const MOVE_BYTES: usize = 256 << 10;

/// What is to be written, in order, as a [`Buf`] for vectored writes: what was written is `advance`d over.
///
/// A frame with which something travels beside the bytes is pushed after [`Outgoing::mark`]: no write reaches over its start, so that it
/// begins one.
///
/// It has no bound of its own: who fills it looks at `remaining()`, and takes no more requests while that is much.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Headers, metas and short payloads.
    short: Vec<u8>,
    /// So much of `short` is written, bytes.
    written: usize,
    /// Payloads, each with the place in `short` before which it goes.
    payloads: VecDeque<(usize, Bytes)>,
    /// What of the payloads is to be written, bytes.
    payload_bytes: usize,
    /// Places in `short` at which a write begins.
    marks: VecDeque<usize>,
}

impl Outgoing {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what an encoder of [`codec`](crate::codec) writes, with the payload that it gives.
    pub fn push<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<Bytes, E>) -> Result<(), E> {
        self.move_to_front();
        let payload = encode(&mut self.short)?;
        if !payload.is_empty() {
            self.payload_bytes += payload.len();
            self.payloads.push_back((self.short.len(), payload));
        }
        Ok(())
    }

    /// Where short frames are added.
    pub fn short(&mut self) -> &mut Vec<u8> {
        self.move_to_front();
        &mut self.short
    }

    /// What is added next begins a write of its own.
    pub fn mark(&mut self) {
        self.move_to_front();
        self.marks.push_back(self.short.len());
    }

    /// Whether the next write begins at a mark.
    pub fn is_at_mark(&self) -> bool {
        // A payload that goes before the mark's place is written first.
        let behind_payloads = self.payloads.front().is_none_or(|(place, _)| *place > self.written);
        self.marks.front() == Some(&self.written) && behind_payloads
    }

    /// Where the next write must end: at the first mark that it does not begin at.
    fn barrier(&self) -> usize {
        let ahead = usize::from(self.is_at_mark());
        self.marks.get(ahead).copied().unwrap_or(usize::MAX)
    }

    fn move_to_front(&mut self) {
        if self.written >= MOVE_BYTES && self.written * 2 >= self.short.len() {
            self.short.drain(..self.written);
            for (place, _) in &mut self.payloads {
                *place -= self.written;
            }
            for mark in &mut self.marks {
                *mark -= self.written;
            }
            self.written = 0;
        }
    }

    /// Short bytes up to the first payload, from the first that is not written.
    fn before_payload(&self) -> &[u8] {
        let end = self.payloads.front().map_or(self.short.len(), |(place, _)| *place);
        &self.short[self.written..end.min(self.barrier())]
    }
}

impl Buf for Outgoing {
    fn remaining(&self) -> usize {
        self.short.len() - self.written + self.payload_bytes
    }

    fn chunk(&self) -> &[u8] {
        match (self.before_payload(), self.payloads.front()) {
            ([], Some((_, payload))) => payload,
            (short, _) => short,
        }
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let (mut from, barrier) = (self.written, self.barrier());
        // A payload that stands at the barrier belongs to the frame before it.
        let ends = self.payloads.iter().map(|(place, payload)| (*place, &payload[..]));
        let ends = ends.take_while(|(place, _)| *place <= barrier);
        let pieces = ends.chain([(self.short.len().min(barrier), &[][..])]).flat_map(|(place, payload)| {
            let short = &self.short[from..place];
            from = place;
            [short, payload]
        });
        let mut filled = 0;
        for (slot, piece) in into.iter_mut().zip(pieces.filter(|piece| !piece.is_empty())) {
            *slot = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining(), "more was written than was there");
        if count > 0 && self.is_at_mark() {
            self.marks.pop_front();
        }
        while count > 0 {
            let short = self.before_payload().len().min(count);
            self.written += short;
            count -= short;
            let Some((place, payload)) = self.payloads.front_mut() else { break };
            if *place != self.written {
                break;
            }
            let part = payload.len().min(count);
            payload.advance(part);
            (self.payload_bytes, count) = (self.payload_bytes - part, count - part);
            if payload.is_empty() {
                self.payloads.pop_front();
            }
        }
        if self.remaining() == 0 {
            self.short.clear();
            self.written = 0;
        }
    }
}
