//! Write queue of frames: short bytes together in one buffer, payloads without a copy.

use bytes::{Buf, Bytes};
use std::{collections::VecDeque, io::IoSlice};

/// Number of written bytes after which the rest is moved to the front, bytes.
const MOVE_BYTES: usize = 256 << 10;

/// Queued frames in order, as a [`Buf`] for vectored writes. The caller `advance`s over the bytes
/// that were written.
///
/// If a descriptor must be sent with a frame, call [`WriteQueue::mark`] before pushing the frame: a
/// write then starts at that frame, and no other write crosses its start.
///
/// The queue has no bound. Its user watches `remaining()`, and accepts no more requests while that
/// is large.
#[derive(Debug, Default)]
pub struct WriteQueue {
    /// Headers, metas and short payloads.
    short: Vec<u8>,
    /// Number of written bytes at the front of `short`.
    written: usize,
    /// Payloads, each with the offset in `short` before which it goes.
    payloads: VecDeque<(usize, Bytes)>,
    /// Number of payload bytes still to write.
    payload_bytes: usize,
    /// Offsets in `short` at which a write must start.
    marks: VecDeque<usize>,
}

impl WriteQueue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Pushes a frame: the output of an encoder of [`codec`](crate::codec), and the payload that it
    /// returns.
    pub fn push<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<Bytes, E>) -> Result<(), E> {
        self.move_to_front();
        let payload = encode(&mut self.short)?;
        if !payload.is_empty() {
            self.payload_bytes += payload.len();
            self.payloads.push_back((self.short.len(), payload));
        }
        Ok(())
    }

    /// Returns the buffer to append short frames to.
    pub fn short(&mut self) -> &mut Vec<u8> {
        self.move_to_front();
        &mut self.short
    }

    /// Makes the next pushed frame start a write of its own.
    pub fn mark(&mut self) {
        self.move_to_front();
        self.marks.push_back(self.short.len());
    }

    /// Returns true if the next write starts at a mark.
    pub fn is_at_mark(&self) -> bool {
        // A payload that goes before the mark is written first.
        let behind_payloads = self.payloads.front().is_none_or(|(place, _)| *place > self.written);
        self.marks.front() == Some(&self.written) && behind_payloads
    }

    /// Returns the offset at which the next write must end: the first mark at which it does not
    /// start.
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

    /// Returns the unwritten short bytes before the first payload.
    fn before_payload(&self) -> &[u8] {
        let end = self.payloads.front().map_or(self.short.len(), |(place, _)| *place);
        &self.short[self.written..end.min(self.barrier())]
    }
}

impl Buf for WriteQueue {
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
        // A payload at the barrier belongs to the frame before it.
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
        assert!(count <= self.remaining(), "more was written than was queued");
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
