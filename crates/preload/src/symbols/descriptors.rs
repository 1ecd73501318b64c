//! Descriptors themselves: closed, copied, locked. The kernel has the table; what we know of a number is noted beside what it does.

use super::{held, symbols};
use crate::guard::{Quiet, done, number, waited, zero};
use crate::memory::{fetched, given};
use crate::ours::{self, borrowed, kind, note};
use libc::{F_DUPFD, F_DUPFD_CLOEXEC, c_int, c_uint, c_ulong, c_void, off_t};
use posix::{From, LockKind, Range, Wanted};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, fcntl_getfd};

/// What is noted when the kernel has closed a descriptor of ours: nobody may have found its number free before.
pub fn closed(descriptor: c_int, close: impl FnOnce() -> c_int) -> c_int {
    if !ours::is_noted(descriptor) {
        return close();
    }
    let _quiet = Quiet::begin();
    if ours::is_unasked(descriptor) || kind(descriptor).is_none() {
        note(descriptor, None);
        return close();
    }
    note(descriptor, None);
    let held = done(|process| Ok(process.take(descriptor)));
    let outcome = close();
    if let Ok(Some(held)) = held {
        // Nobody waits for it: a failure of the pool is said by the next call that needs it.
        let _ = done(|process| process.let_go(&held));
    }
    outcome
}

/// The first of these descriptors that is our own.
fn first_own(first: c_uint, last: c_uint) -> Option<c_uint> {
    let known = posix::OWN_NUMBERS;
    let range = known.start.cast_unsigned().max(first)..known.end.cast_unsigned().min(last.saturating_add(1));
    range.into_iter().find(|&descriptor| posix::is_own(descriptor.cast_signed()))
}

/// What is noted when the kernel has copied a descriptor.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0
        && from != to
        && ours::is_noted(from)
        && !ours::note_unasked(from, to)
        && let Some(known) = kind(from)
    {
        let _ = done(|process| {
            process.copied(borrowed(from), to);
            Ok(())
        });
        note(to, Some(known));
    }
    crate::stream::follow(to);
    to
}

/// What is noted when the kernel puts a copy of a descriptor in the place of another. A copy that it refuses closes nothing.
fn put(from: c_int, to: c_int, flags: c_int, copy: impl FnOnce() -> c_int) -> c_int {
    if posix::is_own(to) {
        return number(Err(Errno::BUSY));
    }
    let is_open = from >= 0 && fcntl_getfd(borrowed(from)).is_ok();
    if from == to || !is_open || flags & !libc::O_CLOEXEC != 0 {
        return copy();
    }
    copied(from, closed(to, copy))
}

symbols! {
    /// close(2).
    fn close(descriptor: c_int) -> c_int {
        if posix::is_own(descriptor) {
            return number(Err(Errno::BADF));
        }
        // SAFETY: as the program called us.
        closed(descriptor, || unsafe { next(descriptor) })
    }

    /// `close_range(2)`.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // Around what is ours, which nobody but us may close; it is not handed on anyway.
        if let Some(own) = first_own(first, last) {
            // SAFETY: as the program called us, but for what is ours.
            let before = if own > first { unsafe { close_range(first, own - 1, flags) } } else { 0 };
            // SAFETY: likewise.
            return if before == 0 && own < last { unsafe { close_range(own + 1, last, flags) } } else { before };
        }
        if flags == 0 {
            ours::each(first, last, |descriptor| { closed(descriptor, || 0); });
        }
        // SAFETY: as the program called us.
        unsafe { next(first, last, flags) }
    }

    /// closefrom(3).
    fn closefrom(first: c_int) -> () {
        if first_own(first.max(0).cast_unsigned(), c_uint::MAX).is_some() {
            // SAFETY: as the program called us.
            unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
            return;
        }
        ours::each(first.max(0).cast_unsigned(), c_uint::MAX, |descriptor| { closed(descriptor, || 0); });
        // SAFETY: as the program called us.
        unsafe { next(first) }
    }

    /// dup(2).
    fn dup(descriptor: c_int) -> c_int {
        // SAFETY: as the program called us.
        copied(descriptor, unsafe { next(descriptor) })
    }

    /// dup2(2).
    fn dup2(from: c_int, to: c_int) -> c_int {
        // SAFETY: as the program called us.
        put(from, to, 0, || unsafe { next(from, to) })
    }

    /// dup3(2).
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        // SAFETY: as the program called us.
        put(from, to, flags, || unsafe { next(from, to, flags) })
    }

    /// fcntl(2). The third argument is in a register, said or not.
    fn fcntl(descriptor: c_int, command: c_int, what: c_ulong) -> c_int | fcntl64 {
        let Some(_) = kind(descriptor) else {
            // SAFETY: as the program called us.
            return unsafe { next(descriptor, command, what) };
        };
        let is_place = kind(descriptor) == Some(ours::Kind::Place);
        match command {
            _ if is_place && !OF_PLACES.contains(&command) => number(Err(Errno::BADF)),
            // A lease or a seal would be of memory that the node has, and holds it up; a stand-in hears of nothing.
            libc::F_GETLEASE => libc::F_UNLCK,
            libc::F_SETLEASE => number(Err(unleased(descriptor, what))),
            libc::F_NOTIFY => number(Err(if kind(descriptor) == Some(ours::Kind::Folder) { Errno::INVAL } else { Errno::NOTDIR })),
            libc::F_GET_SEALS => libc::F_SEAL_SEAL,
            libc::F_ADD_SEALS => number(Err(Errno::PERM)),
            // SAFETY: as the program called us.
            F_DUPFD | F_DUPFD_CLOEXEC => copied(descriptor, unsafe { next(descriptor, command, what) }),
            libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
                let lock: *mut libc::flock = std::ptr::with_exposed_provenance_mut(usize::try_from(what).unwrap_or(0));
                // SAFETY: the program's lock.
                zero(unsafe { fetched(lock) }.and_then(|mut asked| {
                    locked(descriptor, command, &mut asked)?;
                    // SAFETY: likewise; only a question has an answer.
                    if [libc::F_GETLK, libc::F_OFD_GETLK].contains(&command) { unsafe { given(asked, lock) } } else { Ok(()) }
                }))
            }
            libc::F_GETFL if ours::is_remote(descriptor) => number(done(|process| process.flags(borrowed(descriptor)).map(|flags| flags.bits().cast_signed()))),
            libc::F_SETFL if ours::is_remote(descriptor) => {
                zero(done(|process| process.set_flags(borrowed(descriptor), OFlags::from_bits_retain(u32::try_from(what).unwrap_or(0)))))
            }
            // SAFETY: as the program called us.
            _ => unsafe { next(descriptor, command, what) },
        }
    }

    /// ioctl(2): files have two questions for it, how much there is to be read, and what flags their inode has: none.
    fn ioctl(descriptor: c_int, request: c_ulong, what: c_ulong) -> c_int {
        if let Some(flags) = Flags::of(request)
            && kind(descriptor).is_some()
        {
            let place: *mut c_void = std::ptr::with_exposed_provenance_mut(usize::try_from(what).unwrap_or(0));
            // SAFETY: the program's structure.
            return zero(done(|process| process.reaches(borrowed(descriptor))).and_then(|()| unsafe { flags.answer(place) }));
        }
        if request == libc::FIONREAD && ours::is_remote(descriptor) {
            let into: *mut c_int = std::ptr::with_exposed_provenance_mut(usize::try_from(what).unwrap_or(0));
            return zero(done(|process| {
                let left = process.left_to_read(borrowed(descriptor))?;
                // SAFETY: the program's number.
                unsafe { given(left, into) }
            }));
        }
        // SAFETY: as the program called us.
        unsafe { next(descriptor, request, what) }
    }
}

held! {
    /// flock(2).
    fn flock(descriptor: c_int, operation: c_int) -> c_int, descriptor => zero(flocking(operation).and_then(|operation| waited(|process, interrupted| process.flock(borrowed(descriptor), operation, interrupted))));
    /// lockf(3), of the bytes from the descriptor's place on.
    fn lockf(descriptor: c_int, command: c_int, bytes: off_t) -> c_int | lockf64, descriptor =>
        zero(lockf_of(descriptor, command, bytes));
}

/// How a lease is refused: somebody else may always have the file open.
fn unleased(descriptor: c_int, wanted: c_ulong) -> Errno {
    let is_lease =
        c_int::try_from(wanted).is_ok_and(|wanted| [libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK].contains(&wanted));
    if is_lease && kind(descriptor) != Some(ours::Kind::Folder) { Errno::AGAIN } else { Errno::INVAL }
}

/// What fcntl(2) does for a place alone (`O_PATH`).
const OF_PLACES: [c_int; 5] = [F_DUPFD, F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];

/// A question about an inode's flags (`FS_IOC_GETFLAGS` and the like), or an order to set them. They would be of the node's own memory.
#[derive(Debug, Clone, Copy)]
enum Flags {
    /// Tells the flags.
    Told,
    /// Tells flags and more (`struct fsxattr`).
    ToldWithMore,
    /// Sets the flags.
    Set,
    /// Sets flags and more.
    SetWithMore,
}

impl Flags {
    fn of(request: c_ulong) -> Option<Self> {
        Some(match request {
            0x8008_6601 => Self::Told,
            0x801c_581f => Self::ToldWithMore,
            0x4008_6602 => Self::Set,
            0x401c_5820 => Self::SetWithMore,
            _ => return None,
        })
    }

    /// # Safety
    /// The program's structure for it, as far as it can be read and written.
    unsafe fn answer(self, place: *mut c_void) -> Result<(), Errno> {
        let none = |is_none: bool| if is_none { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        // SAFETY: the caller says so.
        unsafe {
            match self {
                Self::Told => given(0_u32, place.cast()),
                Self::ToldWithMore => given([0_u32; 7], place.cast()),
                Self::Set => none(fetched::<u32>(place.cast())? == 0),
                Self::SetWithMore => none(fetched::<[u32; 7]>(place.cast())? == [0; 7]),
            }
        }
    }
}

/// A lock of fcntl(2), whose answer is in the program's own structure.
fn locked(descriptor: c_int, command: c_int, lock: &mut libc::flock) -> Result<(), Errno> {
    let (wanted, of_open) = match command {
        libc::F_GETLK => (Wanted::Test, false),
        libc::F_SETLK => (Wanted::Set, false),
        libc::F_SETLKW => (Wanted::Wait, false),
        libc::F_OFD_GETLK => (Wanted::Test, true),
        libc::F_OFD_SETLK => (Wanted::Set, true),
        _ => (Wanted::Wait, true),
    };
    let kind = match c_int::from(lock.l_type) {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK if wanted != Wanted::Test => LockKind::Unlock,
        _ => return Err(Errno::INVAL),
    };
    let from = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => From::Start,
        libc::SEEK_CUR => From::Here,
        libc::SEEK_END => From::End,
        _ => return Err(Errno::INVAL),
    };
    let asked = Range { kind, from, start: lock.l_start, bytes: lock.l_len, process: lock.l_pid };
    let Some(held) =
        waited(|process, interrupted| process.lock(borrowed(descriptor), wanted, of_open, asked, interrupted))?
    else {
        return Ok(());
    };
    let short = |number: c_int| i16::try_from(number).unwrap_or(0);
    if held.kind == LockKind::Unlock {
        // Nobody is in the way: the rest stays as it was asked.
        lock.l_type = short(libc::F_UNLCK);
        return Ok(());
    }
    lock.l_type = short(if held.kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK });
    lock.l_whence = short(libc::SEEK_SET);
    (lock.l_start, lock.l_len, lock.l_pid) = (held.start, held.bytes, held.process);
    Ok(())
}

/// lockf(3) in words of fcntl(2).
fn lockf_of(descriptor: c_int, command: c_int, bytes: off_t) -> Result<(), Errno> {
    let (wanted, kind) = match command {
        libc::F_LOCK => (Wanted::Wait, LockKind::Write),
        libc::F_TLOCK => (Wanted::Set, LockKind::Write),
        libc::F_ULOCK => (Wanted::Set, LockKind::Unlock),
        libc::F_TEST => (Wanted::Test, LockKind::Write),
        _ => return Err(Errno::INVAL),
    };
    let asked = Range { kind, from: From::Here, start: 0, bytes, process: 0 };
    match waited(|process, interrupted| process.lock(borrowed(descriptor), wanted, false, asked, interrupted))? {
        Some(held) if held.kind != LockKind::Unlock => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}

/// What flock(2) is asked for.
fn flocking(operation: c_int) -> Result<FlockOperation, Errno> {
    let waits = operation & libc::LOCK_NB == 0;
    match (operation & !libc::LOCK_NB, waits) {
        (libc::LOCK_SH, true) => Ok(FlockOperation::LockShared),
        (libc::LOCK_SH, false) => Ok(FlockOperation::NonBlockingLockShared),
        (libc::LOCK_EX, true) => Ok(FlockOperation::LockExclusive),
        (libc::LOCK_EX, false) => Ok(FlockOperation::NonBlockingLockExclusive),
        (libc::LOCK_UN, _) => Ok(FlockOperation::Unlock),
        _ => Err(Errno::INVAL),
    }
}

/// Numbers of C's that have the width of a register.
const _: () = assert!(size_of::<c_ulong>() == size_of::<usize>(), "only systems of 64 bits");

/// What [`closed`] does, for functions that close a descriptor beside what they return.
pub fn forgotten<T>(descriptor: c_int, close: impl FnOnce() -> T) -> T {
    let mut close = Some(close);
    let mut outcome = None;
    closed(descriptor, || {
        outcome = close.take().map(|close| close());
        0
    });
    // Called exactly once, ours or not.
    outcome.unwrap_or_else(|| unreachable!("closed calls what it is given"))
}
