//! Bytes that were read, however they were cut, to frames.

use super::{
    Garbled, HEADER_BYTES, Header, Phase, Side,
    room::{filled, room},
};
use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};

/// So much is read at once where nothing longer is announced, bytes: many small frames in one call of the system.
const READ_BYTES: usize = 64 << 10;
/// A buffer with less room than this is renewed before the next read, bytes.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// A frame that came whole, with meta as it was sent.
#[derive(Debug, PartialEq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// What [`codec`](crate::codec) understands.
    pub meta: &'a [u8],
    /// The bulk bytes, in memory of their own.
    pub payload: Bytes,
}

/// The frames of one direction of a connection.
///
/// ```text
///   loop:  read into frames.space()          short frames together; a long payload straight into its place
///          while let Some(frame) = frames.next()?   decode it, before the next is asked for
/// ```
///
/// It never holds more than the buffer for short frames (64 KiB), the meta and the payload that a checked header announced; of a
/// stranger (before [`Frames::open`]) a few KiB. After an error there are no more frames.
#[derive(Debug)]
pub struct Frames {
    side: Side,
    phase: Phase,
    /// What was read and not used: the meta of the frame that is coming, then whatever came behind it.
    buffer: BytesMut,
    /// So much at the front of the buffer belongs to the frame that was given last, bytes.
    spent: usize,
    coming: Option<Header>,
    /// Once the meta is there: the payload, so far. It has the room that it needs, and takes what is read first.
    payload: Option<BytesMut>,
    failed: Option<Garbled>,
}

impl Frames {
    /// Those that come to `side`, from the handshake on.
    pub fn new(side: Side) -> Self {
        let buffer = BytesMut::new();
        Self { side, phase: Phase::Handshake, buffer, spent: 0, coming: None, payload: None, failed: None }
    }

    /// The handshake is done.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// Where the next bytes are to be read to; it has room for at least one.
    pub fn space(&mut self) -> Limit<&mut BytesMut> {
        self.drop_spent();
        if let Some(header) = self.coming.filter(|_| self.payload.is_some()) {
            let payload = self.payload.get_or_insert_default();
            let left = header.payload as usize - payload.len();
            return payload.limit(left);
        }
        let missing = match self.coming {
            Some(header) => (header.meta as usize).saturating_sub(self.buffer.len()),
            None => HEADER_BYTES,
        };
        self.make_room(missing.max(ROOM_BYTES_MIN));
        let room = self.buffer.capacity() - self.buffer.len();
        (&mut self.buffer).limit(room)
    }

    fn make_room(&mut self, least: usize) {
        // An empty buffer moves to the front of its memory for nothing.
        if self.buffer.is_empty() || self.buffer.capacity() - self.buffer.len() < least {
            // A stranger gets no more than the handshake needs.
            let most = if self.phase == Phase::Open { READ_BYTES } else { ROOM_BYTES_MIN };
            self.buffer.reserve(least.max(most));
        }
    }

    /// Whether only bytes of a payload go into [`Frames::space`] now: up to its end, and not into the next frame.
    pub fn is_in_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// Takes what fits of `bytes`; frames are to be asked for, then it takes more.
    pub fn feed(&mut self, bytes: &mut &[u8]) {
        let mut space = self.space();
        let fits = space.remaining_mut().min(bytes.len());
        space.put_slice(&bytes[..fits]);
        bytes.advance(fits);
    }

    /// The next frame, if it is whole.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows from here, so this is no iterator")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, Garbled> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        match self.advance() {
            Ok(None) => Ok(None),
            Ok(Some((header, payload))) => {
                let meta = &self.buffer[..header.meta as usize];
                Ok(Some(Frame { header, meta, payload }))
            }
            Err(garbled) => {
                *self = Self { failed: Some(garbled.clone()), phase: self.phase, ..Self::new(self.side) };
                Err(garbled)
            }
        }
    }

    /// Whether nothing of a frame is there that has not been given: the other side may close here.
    pub fn is_between(&self) -> bool {
        self.coming.is_none() && self.buffer.len() == self.spent
    }

    fn advance(&mut self) -> Result<Option<(Header, Bytes)>, Garbled> {
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
        (self.coming, self.payload) = (None, None);
        self.spent += meta;
        Ok(Some((header, payload)))
    }

    fn header(&mut self) -> Result<Option<Header>, Garbled> {
        if self.coming.is_none() {
            let Some(bytes) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let header = Header::decode(bytes)?;
            if !header.kind.may_come(self.side, self.phase) {
                return Err(Garbled::Unexpected { kind: header.kind, side: self.side, phase: self.phase });
            }
            self.buffer.advance(HEADER_BYTES);
            self.coming = Some(header);
        }
        Ok(self.coming)
    }

    /// The payload, once it is whole.
    fn payload_of(&mut self, header: Header) -> Option<Bytes> {
        if header.payload == 0 {
            return Some(Bytes::new());
        }
        if self.payload.is_none() {
            self.payload = Some(self.begin_payload(header));
        }
        let payload = self.payload.take_if(|payload| payload.len() == header.payload as usize)?;
        Some(filled(payload))
    }

    /// Room for the payload. What of it was read together with the meta is copied there.
    fn begin_payload(&mut self, header: Header) -> BytesMut {
        let (meta, whole) = (header.meta as usize, header.payload as usize);
        let mut payload = room(whole);
        let behind = &self.buffer[meta..];
        let here = &behind[..behind.len().min(whole)];
        payload.extend_from_slice(here);
        if here.len() < whole {
            self.buffer.truncate(meta);
        } else {
            self.spent = whole;
        }
        payload
    }

    fn drop_spent(&mut self) {
        let spent = std::mem::take(&mut self.spent);
        if spent > READ_BYTES {
            // A long meta has gone through: its memory is not kept for ever.
            self.buffer = BytesMut::from(&self.buffer[spent..]);
        } else {
            self.buffer.advance(spent);
        }
    }
}
