//! Parser from received bytes, in pieces of any size, to frames.

use super::{
    DecodeError, FrameKind, HEADER_BYTES, Header, Phase, Side,
    payload_buffers::{IncomingPayload, allocate},
};
use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};
use std::sync::Arc;
use store::SharedMemory;

/// Size of a read if no longer frame is announced, bytes: many small frames in one system call.
const READ_BYTES: usize = 64 << 10;
/// Minimum free space for a read, bytes. A buffer with less is replaced first.
const SPACE_BYTES_MIN: usize = 4 << 10;

/// A complete frame, whose meta has the right checksum.
#[derive(Debug, PartialEq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// The meta, for [`codec`](crate::codec).
    pub meta: &'a [u8],
    /// The bulk bytes, in memory of their own or in a receive buffer of the node's engine.
    pub payload: Bytes,
}

/// Parser for one direction of a connection.
///
/// ```text
///   loop:  read into frames.space()          short frames together; a long payload in place
///          while let Some(frame) = frames.next()?   decode it before the next call
/// ```
///
/// It holds no more than the buffer for short frames (64 KiB), and the meta and payload that a
/// checked header announced. Before [`Frames::open`] it holds a few KiB. After an error it returns
/// no more frames.
#[derive(Debug)]
pub struct Frames {
    side: Side,
    phase: Phase,
    /// Unused bytes: the meta of the current frame, then any bytes after it.
    buffer: BytesMut,
    /// Number of bytes at the front of the buffer that belong to the last returned frame.
    spent: usize,
    current: Option<Header>,
    /// The received part of the payload, once the meta is complete.
    payload: Option<IncomingPayload>,
    /// The engine's memory for payloads of requests, if there is any.
    segments: Option<Arc<dyn SharedMemory>>,
    failed: Option<DecodeError>,
}

impl Frames {
    /// Creates the parser for frames that `side` receives, starting with the handshake.
    pub fn new(side: Side) -> Self {
        let buffer = BytesMut::new();
        let (current, payload, segments, failed) = (None, None, None, None);
        Self { side, phase: Phase::Handshake, buffer, spent: 0, current, payload, segments, failed }
    }

    /// From now on receives payloads of requests into this memory, as far as it has space.
    pub fn receive_into(&mut self, segments: Arc<dyn SharedMemory>) {
        self.segments = Some(segments);
    }

    /// Ends the handshake phase.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// Returns the destination of the next read if the current payload goes to a receive buffer of
    /// the engine; it replaces [`Frames::space`]. Report the bytes that were read with
    /// [`Frames::advance_recv`].
    pub fn recv_space(&mut self) -> Option<&mut [u8]> {
        match &mut self.payload {
            Some(IncomingPayload::InEngine(landing, received)) => Some(&mut landing.bytes_mut()[*received..]),
            _ => None,
        }
    }

    /// Reports that this many bytes were read into [`Frames::recv_space`].
    pub fn advance_recv(&mut self, bytes: usize) {
        if let Some(IncomingPayload::InEngine(_, received)) = &mut self.payload {
            *received += bytes;
        }
    }

    /// Returns the destination of the next read, if [`Frames::recv_space`] has none. It has space
    /// for at least one byte.
    pub fn space(&mut self) -> Limit<&mut BytesMut> {
        self.drop_spent();
        if self.payload.is_none() {
            let missing = match self.current {
                Some(header) => (header.meta as usize).saturating_sub(self.buffer.len()),
                None => HEADER_BYTES,
            };
            self.reserve_space(missing.max(SPACE_BYTES_MIN));
        }
        match (&mut self.payload, self.current) {
            (Some(IncomingPayload::Owned(payload)), Some(header)) => {
                let left = header.payload as usize - payload.len();
                payload.limit(left)
            }
            (Some(landing), _) => panic!("{landing:?} is read into by itself"),
            (None, _) => {
                let room = self.buffer.capacity() - self.buffer.len();
                (&mut self.buffer).limit(room)
            }
        }
    }

    fn reserve_space(&mut self, least: usize) {
        // Reserving in an empty buffer moves it to the front of its memory at no cost.
        if self.buffer.is_empty() || self.buffer.capacity() - self.buffer.len() < least {
            // Before the handshake is done, a peer gets only as much as that needs.
            let most = if self.phase == Phase::Open { READ_BYTES } else { SPACE_BYTES_MIN };
            self.buffer.reserve(least.max(most));
        }
    }

    /// Returns true if [`Frames::space`] now takes only bytes of a payload: up to its end, and none
    /// of the next frame.
    pub fn is_in_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// Returns the announced bytes of the current frame that need memory of their own: the payload,
    /// unless it goes to a receive buffer of the engine, and a meta that is longer than the buffer
    /// for short frames. While such a meta arrives, the payload counts too: otherwise a frame could
    /// get memory for its meta and then wait for memory for its payload.
    pub fn arriving_bytes(&self) -> usize {
        let Some(header) = self.current else { return 0 };
        let (meta, payload) = (header.meta as usize, header.payload as usize);
        let is_long = meta > READ_BYTES;
        let payload = match &self.payload {
            Some(IncomingPayload::Owned(_)) => payload,
            Some(IncomingPayload::InEngine(..)) => 0,
            None => {
                if is_long {
                    payload
                } else {
                    0
                }
            }
        };
        payload + if is_long { meta } else { 0 }
    }

    /// Frees the memory of the last returned frame if it was long: the next call may come much
    /// later.
    pub fn release(&mut self) {
        if self.spent > READ_BYTES {
            self.drop_spent();
        }
    }

    /// Takes as many bytes as fit. Call [`Frames::next`] before feeding the rest.
    pub fn feed(&mut self, bytes: &mut &[u8]) {
        if let Some(landing) = self.recv_space() {
            let fits = landing.len().min(bytes.len());
            landing[..fits].copy_from_slice(&bytes[..fits]);
            bytes.advance(fits);
            return self.advance_recv(fits);
        }
        let mut space = self.space();
        let fits = space.remaining_mut().min(bytes.len());
        space.put_slice(&bytes[..fits]);
        bytes.advance(fits);
    }

    /// Returns the next frame, if it is complete.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows from here, so this is no iterator")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        match self.advance() {
            Ok(None) => Ok(None),
            Ok(Some((header, payload))) => {
                let meta = &self.buffer[..header.meta as usize];
                Ok(Some(Frame { header, meta, payload }))
            }
            Err(error) => {
                *self = Self { failed: Some(error.clone()), phase: self.phase, ..Self::new(self.side) };
                Err(error)
            }
        }
    }

    /// Returns true if no part of an unreturned frame has been received: here the peer may close
    /// the connection.
    pub fn is_between(&self) -> bool {
        self.current.is_none() && self.buffer.len() == self.spent
    }

    fn advance(&mut self) -> Result<Option<(Header, Bytes)>, DecodeError> {
        self.drop_spent();
        let Some(header) = self.header()? else { return Ok(None) };
        let meta = header.meta as usize;
        if self.payload.is_none() {
            if self.buffer.len() < meta {
                return Ok(None);
            }
            header.check_meta(&self.buffer[..meta])?;
        }
        let Some(payload) = self.payload_of(header) else { return Ok(None) };
        (self.current, self.payload) = (None, None);
        self.spent += meta;
        Ok(Some((header, payload)))
    }

    fn header(&mut self) -> Result<Option<Header>, DecodeError> {
        if self.current.is_none() {
            let Some(bytes) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let header = Header::decode(bytes)?;
            if !header.kind.may_arrive(self.side, self.phase) {
                return Err(DecodeError::Unexpected { kind: header.kind, side: self.side, phase: self.phase });
            }
            self.buffer.advance(HEADER_BYTES);
            self.current = Some(header);
        }
        Ok(self.current)
    }

    /// Returns the payload once it is complete.
    fn payload_of(&mut self, header: Header) -> Option<Bytes> {
        if header.payload == 0 {
            return Some(Bytes::new());
        }
        if self.payload.is_none() {
            self.payload = Some(self.start_payload(header));
        }
        let payload = self.payload.take_if(|payload| payload.len() == header.payload as usize)?;
        Some(payload.finish())
    }

    /// Allocates memory for the payload, and copies the bytes there that were read together with
    /// the meta.
    fn start_payload(&mut self, header: Header) -> IncomingPayload {
        let (meta, whole) = (header.meta as usize, header.payload as usize);
        let segments = self.segments.as_ref().filter(|_| header.kind == FrameKind::Request);
        let landing = segments.and_then(|segments| segments.recv_buffer(header.payload));
        let mut payload = landing
            .map_or_else(|| IncomingPayload::Owned(allocate(whole)), |landing| IncomingPayload::InEngine(landing, 0));
        let behind = &self.buffer[meta..];
        let received = &behind[..behind.len().min(whole)];
        payload.put(received);
        if received.len() < whole {
            self.buffer.truncate(meta);
        } else {
            self.spent = whole;
        }
        payload
    }

    fn drop_spent(&mut self) {
        let spent = std::mem::take(&mut self.spent);
        if spent > READ_BYTES {
            // Do not keep the memory of a long meta.
            self.buffer = BytesMut::from(&self.buffer[spent..]);
        } else {
            self.buffer.advance(spent);
        }
    }
}
