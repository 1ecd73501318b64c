//! A value as trees have it: the bytes, or where they are in the log.

/// Longest value that is in a leaf: longer ones are in the log alone.
const INLINE_BYTES_MAX: usize = 256;

/// True if a value of this length is in the leaf.
pub fn is_inline(length: usize) -> bool {
    length <= INLINE_BYTES_MAX
}

/// The place of a value in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogSpan {
    /// The segment, by its slot in the table of segments.
    pub slot: u32,
    /// The offset in the segment at which its bytes begin.
    pub offset: u32,
    /// The number of its bytes.
    pub length: u32,
}

/// A value, as an entry of a tree has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// The bytes.
    Inline(&'a [u8]),
    /// They are in the log.
    Logged(LogSpan),
}
