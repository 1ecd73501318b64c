//! Bytes that were read, however they were cut, to frames.

use super::{
    Garbled, HEADER_BYTES, Header, Kind, Phase, Side,
    room::{Coming, room},
};
use bytes::{Buf, BufMut, Bytes, BytesMut, buf::Limit};
use std::sync::Arc;
use store::Segments;

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
    /// The bulk bytes, in memory of their own, or where they may stay.
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
    /// Once the meta is there: the payload, so far, which takes what is read first.
    payload: Option<Coming>,
    /// Memory where payloads of requests may stay; none where there is none.
    segments: Option<Arc<dyn Segments>>,
    failed: Option<Garbled>,
}

impl Frames {
    /// Those that come to `side`, from the handshake on.
    pub fn new(side: Side) -> Self {
        let buffer = BytesMut::new();
        let (coming, payload, segments, failed) = (None, None, None, None);
        Self { side, phase: Phase::Handshake, buffer, spent: 0, coming, payload, segments, failed }
    }

    /// Payloads of requests that come from now on are received into this memory, where it has room for them.
    pub fn land_in(&mut self, segments: Arc<dyn Segments>) {
        self.segments = Some(segments);
    }

    /// The handshake is done.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// Where the next bytes are to be read to, in place of [`Frames::space`], when they are of a payload that is received where it may stay.
    /// So many as were read are to be told to [`Frames::landed`].
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        match &mut self.payload {
            Some(Coming::Landing(landing, came)) => Some(&mut landing.room()[*came..]),
            _ => None,
        }
    }

    /// So many bytes were read into [`Frames::landing`].
    pub fn landed(&mut self, bytes: usize) {
        if let Some(Coming::Landing(_, came)) = &mut self.payload {
            *came += bytes;
        }
    }

    /// Where the next bytes are to be read to, if not to [`Frames::landing`]; it has room for at least one.
    pub fn space(&mut self) -> Limit<&mut BytesMut> {
        self.drop_spent();
        if self.payload.is_none() {
            let missing = match self.coming {
                Some(header) => (header.meta as usize).saturating_sub(self.buffer.len()),
                None => HEADER_BYTES,
            };
            self.make_room(missing.max(ROOM_BYTES_MIN));
        }
        match (&mut self.payload, self.coming) {
            (Some(Coming::Own(payload)), Some(header)) => {
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

    /// How many bytes the frame that is coming needs in memory of its own, as announced: its payload, unless that is received where it may
    /// stay, and a meta that is longer than the buffer for short frames. While such a meta comes, its payload counts too: who has room for
    /// the one would else wait for room for the other.
    pub fn arriving_bytes(&self) -> usize {
        let Some(header) = self.coming else { return 0 };
        let (meta, payload) = (header.meta as usize, header.payload as usize);
        let is_long = meta > READ_BYTES;
        let payload = match &self.payload {
            Some(Coming::Own(_)) => payload,
            Some(Coming::Landing(..)) => 0,
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

    /// Gives back the memory of the frame that was given last, where it is long: the next one may be asked for much later.
    pub fn release(&mut self) {
        if self.spent > READ_BYTES {
            self.drop_spent();
        }
    }

    /// Takes what fits of `bytes`; frames are to be asked for, then it takes more.
    pub fn feed(&mut self, bytes: &mut &[u8]) {
        if let Some(landing) = self.landing() {
            let fits = landing.len().min(bytes.len());
            landing[..fits].copy_from_slice(&bytes[..fits]);
            bytes.advance(fits);
            return self.landed(fits);
        }
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
        Some(payload.whole())
    }

    /// Room for the payload. What of it was read together with the meta is copied there.
    fn begin_payload(&mut self, header: Header) -> Coming {
        let (meta, whole) = (header.meta as usize, header.payload as usize);
        let segments = self.segments.as_ref().filter(|_| header.kind == Kind::Request);
        let landing = segments.and_then(|segments| segments.landing(header.payload));
        let mut payload = landing.map_or_else(|| Coming::Own(room(whole)), |landing| Coming::Landing(landing, 0));
        let behind = &self.buffer[meta..];
        let here = &behind[..behind.len().min(whole)];
        payload.put(here);
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
