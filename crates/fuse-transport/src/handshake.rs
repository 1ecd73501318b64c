//! The INIT handshake: version and flags of a connection.
//!
//! A pure function from the kernel's offer and the configuration to the reply and the negotiated
//! options.

use crate::{
    abi::{MAJOR, MINOR, MINOR_EPOCH, MINOR_MIN, MINOR_PASSTHROUGH, MINOR_PRUNE, init},
    config::{Config, Negotiated, PAGE},
    decode::Fields,
    encode::FixedBuf,
};

/// Length of the reply to INIT.
pub(crate) const INIT_REPLY_BYTES: usize = 64;
/// Time granularity in nanoseconds: times are exact.
const TIME_GRANULARITY: u32 = 1;
/// Maximum stacking depth of backing files; 1 allows file systems on a device or in memory.
const STACK_DEPTH: u32 = 1;

/// Flags that are requested whenever the kernel offers them. `ATOMIC_O_TRUNC` is not among them:
/// with it an open truncates a file before the kernel checks if it is a running program, which
/// would crash.
const ALWAYS: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;
/// Required flags: without them requests have another layout. Kernels since 5.12 have them.
const NEEDED: u64 = init::MAX_PAGES | init::SETXATTR_EXT;

/// The kernel's INIT request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitRequest {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    read_ahead_bytes: u32,
    flags: u64,
}

impl InitRequest {
    /// Decodes an offer; older kernels send a shorter one.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut from = Fields(body);
        let (major, minor) = (from.u32()?, from.u32()?);
        let (read_ahead_bytes, low) = (from.u32().unwrap_or(0), from.u32().unwrap_or(0));
        let high = if u64::from(low) & init::INIT_EXT == 0 { 0 } else { from.u32().unwrap_or(0) };
        Some(Self { major, minor, read_ahead_bytes, flags: u64::from(low) | u64::from(high) << 32 })
    }

    /// Returns true if this kernel's protocol is supported.
    pub(crate) fn is_supported(&self) -> bool {
        self.major == MAJOR && self.minor >= MINOR_MIN && self.flags & NEEDED == NEEDED
    }

    /// Flags that both sides want.
    fn flags(&self, config: &Config) -> u64 {
        let invalidation = if config.explicit_invalidation { init::EXPLICIT_INVAL_DATA } else { init::AUTO_INVAL_DATA };
        let requested = [
            (config.passthrough && self.minor >= MINOR_PASSTHROUGH, init::PASSTHROUGH),
            (config.posix_acl, init::POSIX_ACL),
            (config.locks, init::POSIX_LOCKS | init::FLOCK_LOCKS),
        ];
        requested.iter().filter(|(wanted, _)| *wanted).fold(ALWAYS | invalidation, |all, (_, flag)| all | flag)
            & self.flags
    }

    /// Returns the encoded reply and the negotiated options.
    pub(crate) fn negotiate(&self, config: &Config) -> ([u8; INIT_REPLY_BYTES], Negotiated) {
        let flags = self.flags(config);
        let has = |flag: u64| flags & flag != 0;
        let granted = Negotiated {
            minor: self.minor.min(MINOR),
            request_bytes_max: config.request_bytes(),
            passthrough: has(init::PASSTHROUGH),
            posix_acl: has(init::POSIX_ACL),
            kill_set_id: has(init::HANDLE_KILLPRIV_V2),
            explicit_invalidation: has(init::EXPLICIT_INVAL_DATA),
            direct_mappings: has(init::DIRECT_IO_ALLOW_MMAP),
            epochs: self.minor >= MINOR_EPOCH,
            pruning: self.minor >= MINOR_PRUNE,
        };
        (self.bytes(config, &granted, flags), granted)
    }

    #[expect(clippy::cast_possible_truncation, reason = "flags travel in two halves; at most 256 pages")]
    fn bytes(&self, config: &Config, granted: &Negotiated, flags: u64) -> [u8; INIT_REPLY_BYTES] {
        let background = config.background_max.max(1);
        FixedBuf::new()
            .u32(MAJOR)
            .u32(MINOR)
            .u32(config.read_ahead_bytes.min(self.read_ahead_bytes))
            .u32(flags as u32)
            .u16(background)
            .u16((background - background / 4).max(1))
            .u32(granted.request_bytes_max)
            .u32(TIME_GRANULARITY)
            .u16((granted.request_bytes_max / PAGE) as u16)
            .u16(0)
            .u32((flags >> 32) as u32)
            .u32(if granted.passthrough { STACK_DEPTH } else { 0 })
            .finish()
    }
}

/// The reply to a kernel with a newer major version, which then sends INIT again with ours.
pub(crate) fn version_reply() -> [u8; INIT_REPLY_BYTES] {
    FixedBuf::new().u32(MAJOR).u32(MINOR).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(minor: u32, flags: u64) -> InitRequest {
        let low = u32::try_from(flags & u64::from(u32::MAX)).expect("the low half");
        let high = u32::try_from(flags >> 32).expect("the high half");
        let bytes: [u8; 64] = FixedBuf::new().u32(7).u32(minor).u32(131_072).u32(low).u32(high).finish();
        InitRequest::decode(&bytes).expect("an offer")
    }

    #[test]
    fn only_what_both_want_is_agreed() {
        let all = offer(45, u64::MAX);
        let config = Config { passthrough: false, locks: false, explicit_invalidation: true, ..Config::default() };
        let (bytes, granted) = all.negotiate(&config);
        assert!(!granted.passthrough && granted.explicit_invalidation && granted.posix_acl);
        let low = |flags: u64| u32::try_from(flags & u64::from(u32::MAX)).expect("the low half").to_ne_bytes();
        assert_eq!(bytes[12..16], low(ALWAYS | init::EXPLICIT_INVAL_DATA | init::POSIX_ACL));
        assert_eq!(bytes[32..36], low(init::DIRECT_IO_ALLOW_MMAP >> 32));
        let (_, limited) = offer(28, NEEDED).negotiate(&Config::default());
        assert!(!limited.passthrough && !limited.posix_acl && !limited.kill_set_id && !limited.epochs);
    }

    #[test]
    fn the_answer_lies_where_the_kernel_reads_it() {
        let config = Config { request_bytes_max: 70_000, background_max: 12, ..Config::default() };
        let (bytes, granted) = offer(45, u64::MAX).negotiate(&config);
        let expected: [u8; 28] =
            FixedBuf::new().u32(7).u32(45).u32(131_072).put(&bytes[12..16]).u16(12).u16(9).u32(69_632).u32(1).finish();
        assert_eq!(bytes[..28], expected);
        assert_eq!(bytes[28..32], [17, 0, 0, 0]);
        assert_eq!(bytes[36..40], 1u32.to_ne_bytes(), "one layer below passthrough");
        assert_eq!(granted.request_bytes_max, 69_632);
    }

    #[test]
    fn kernels_that_cannot_be_understood_are_seen() {
        assert!(offer(45, u64::MAX).is_supported());
        assert!(!offer(27, u64::MAX).is_supported());
        assert!(!offer(45, init::MAX_PAGES).is_supported(), "its SETXATTR has another form");
        assert_eq!(InitRequest::decode(&[7, 0, 0]), None);
    }
}
