//! Frame header: 32 bytes, verified before any announced length is used.

use super::{DecodeError, FrameKind, TooLong};
use xxhash_rust::xxh3::xxh3_64;

/// The length of a header, bytes.
pub const HEADER_BYTES: usize = 32;
/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"tide";

/// Frame header. All numbers are little-endian:
///
/// | offset | bytes | content |
/// |---|---|---|
/// | 0 | 4 | `tide` |
/// | 4 | 1 | kind |
/// | 5 | 3 | flags, all 0 |
/// | 8 | 4 | length of the meta |
/// | 12 | 4 | length of the payload |
/// | 16 | 8 | id |
/// | 24 | 4 | checksum of the meta |
/// | 28 | 4 | checksum of the first 28 bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Id: the client's number for a request, that number again for its answer, 0 for kinds without
    /// an id.
    pub id: u64,
    /// Length of the meta, bytes.
    pub meta: u32,
    /// Length of the payload, bytes.
    pub payload: u32,
    /// Checksum of the meta.
    pub meta_check: u32,
}

/// Computes the checksum of a header or meta: the low 32 bits of its XXH3 (64 bits, no seed). It
/// detects damage, not forgery.
fn check(bytes: &[u8]) -> u32 {
    u32::try_from(xxh3_64(bytes) & u64::from(u32::MAX)).expect("masked")
}

impl Header {
    /// Creates the header of a frame with this meta.
    pub fn new(kind: FrameKind, id: u64, meta: &[u8], payload: usize) -> Result<Self, TooLong> {
        let bounded = |part, bytes: usize, max| {
            u32::try_from(bytes).ok().filter(|bytes| *bytes <= max).ok_or(TooLong { kind, part, max })
        };
        let payload = bounded("payload", payload, kind.payload_bytes_max())?;
        let length = bounded("meta", meta.len(), kind.meta_bytes_max())?;
        Ok(Self { kind, id, meta: length, payload, meta_check: check(meta) })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind.number();
        bytes[8..12].copy_from_slice(&self.meta.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.meta_check.to_le_bytes());
        let own = check(&bytes[..28]);
        bytes[28..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Decodes the output of [`Header::encode`]. The announced lengths are within the bounds of the
    /// kind.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC {
            return Err(DecodeError::Magic([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        if word(28) != check(&bytes[..28]) {
            return Err(DecodeError::HeaderCheck);
        }
        let kind = FrameKind::from_number(bytes[4]).ok_or(DecodeError::Kind(bytes[4]))?;
        if bytes[5..8] != [0; 3] {
            return Err(DecodeError::Flags(bytes[4]));
        }
        let id = u64::from(word(16)) | u64::from(word(20)) << 32;
        let header = Self { kind, id, meta: word(8), payload: word(12), meta_check: word(24) };
        header.bounded("meta", header.meta, kind.meta_bytes_max())?;
        header.bounded("payload", header.payload, kind.payload_bytes_max())?;
        Ok(header)
    }

    fn bounded(&self, part: &'static str, bytes: u32, max: u32) -> Result<(), DecodeError> {
        if bytes <= max { Ok(()) } else { Err(DecodeError::TooLong { kind: self.kind, part, bytes, max }) }
    }

    /// Verifies that this is the meta of the header.
    pub fn check_meta(&self, meta: &[u8]) -> Result<(), DecodeError> {
        let same = meta.len() == self.meta as usize && check(meta) == self.meta_check;
        if same { Ok(()) } else { Err(DecodeError::MetaCheck { kind: self.kind, id: self.id }) }
    }
}
