//! Pointers of programs: what is accessible is used, and all else gives `EFAULT`.

use crate::call::{clear_errno, errno, set_errno};
use crate::cstr::{bytes, checked, copy_or_allocate, copy_out};
use crate::memory::{is_readable, is_writable, length, load, readable, store, writable};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

const PAGE: usize = 4096;

/// Pages of which some are inaccessible.
struct Pages {
    start: *mut c_void,
    count: usize,
    /// Page that is not mapped any more.
    hole: Option<usize>,
}

impl Pages {
    /// Maps writable pages.
    fn new(count: usize) -> Self {
        let (may, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new map.
        Self { start: unsafe { mmap_anonymous(null_mut(), count * PAGE, may, flags) }.unwrap(), count, hole: None }
    }

    /// Address of a byte.
    fn at(&self, offset: usize) -> *mut c_void {
        self.start.wrapping_byte_add(offset)
    }

    /// Protects a page.
    fn protect(&self, page: usize, flags: MprotectFlags) {
        // SAFETY: the test's own page, to which it has no reference.
        unsafe { mprotect(self.at(page * PAGE), PAGE, flags) }.unwrap();
    }

    /// Unmaps a page. No other test maps a single page, so the hole stays one.
    fn unmap(&mut self, page: usize) {
        // SAFETY: as above.
        unsafe { munmap(self.at(page * PAGE), PAGE) }.unwrap();
        self.hole = Some(page);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for page in (0..self.count).filter(|page| self.hole != Some(*page)) {
            // SAFETY: the test's own page, to which it has no reference.
            unsafe { munmap(self.at(page * PAGE), PAGE) }.unwrap();
        }
    }
}

/// Number of readable bytes of a range.
fn readable_bytes(from: *const c_void, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: the test's own memory, which nothing else writes.
    unsafe { readable(from, bytes) }.map(<[u8]>::len)
}

/// Number of writable bytes of a range.
fn writable_bytes(into: *mut c_void, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: as above.
    unsafe { writable(into, bytes) }.map(|found| found.len())
}

#[test]
fn a_range_is_accessible_up_to_the_first_page_that_is_not() {
    let pages = Pages::new(4);
    pages.protect(2, MprotectFlags::empty());
    for (at, wanted, usable) in [
        (0, 1, Ok(1)),
        (0, PAGE, Ok(PAGE)),
        (0, 2 * PAGE, Ok(2 * PAGE)),
        (0, 2 * PAGE + 1, Ok(2 * PAGE)),
        (0, 3 * PAGE, Ok(2 * PAGE)),
        (PAGE + 7, PAGE, Ok(PAGE - 7)),
        (2 * PAGE - 1, 1, Ok(1)),
        (2 * PAGE - 1, 2, Ok(1)),
        (2 * PAGE, 1, Err(Errno::FAULT)),
        (3 * PAGE - 1, PAGE, Err(Errno::FAULT)),
        (3 * PAGE, PAGE, Ok(PAGE)),
    ] {
        assert_eq!(readable_bytes(pages.at(at), wanted), usable, "{wanted} bytes from {at}");
        assert_eq!(writable_bytes(pages.at(at), wanted), usable, "{wanted} bytes from {at}");
    }
}

#[test]
fn a_hole_in_a_long_range_ends_it() {
    let mut pages = Pages::new(6);
    pages.unmap(3);
    assert_eq!(readable_bytes(pages.at(5), 6 * PAGE - 5), Ok(3 * PAGE - 5));
    assert_eq!(writable_bytes(pages.at(5), 6 * PAGE - 5), Ok(3 * PAGE - 5));
}

#[test]
fn memory_that_may_only_be_read_is_not_written() {
    let pages = Pages::new(2);
    pages.protect(1, MprotectFlags::READ);
    let at = pages.at(PAGE);
    assert!(is_readable(at.addr()) && !is_writable(at.addr()));
    assert_eq!((readable_bytes(at, 8), writable_bytes(at, 8)), (Ok(8), Err(Errno::FAULT)));
    // SAFETY: addresses of the test's own pages.
    unsafe {
        assert_eq!(store(7_u64, at.cast()), Err(Errno::FAULT));
        assert_eq!(load::<u64>(at.cast()), Ok(0));
        let across = pages.at(PAGE - 4).cast::<u64>();
        assert_eq!(store(u64::MAX, across), Err(Errno::FAULT), "half of it is writable");
        assert_eq!(load(across), Ok(0), "and stays as it was");
    }
}

#[test]
fn a_value_is_read_and_written_at_any_address() {
    let pages = Pages::new(2);
    for at in [0, 1, 3, PAGE - 1, PAGE, 2 * PAGE - 8] {
        let place = pages.at(at).cast::<u64>();
        // SAFETY: eight bytes of the test's own pages.
        unsafe {
            assert_eq!(store(0x0102_0304_0506_0708 + at as u64, place), Ok(()));
            assert_eq!(load(place), Ok(0x0102_0304_0506_0708 + at as u64), "at {at}");
        }
    }
}

#[test]
fn null_and_the_ends_of_the_address_space_are_inaccessible_unless_nothing_is_wanted() {
    for at in [0, 8, PAGE - 1, usize::MAX, usize::MAX - 7, usize::MAX & !(PAGE - 1)] {
        let at = std::ptr::without_provenance_mut::<c_void>(at);
        assert_eq!(readable_bytes(at, 1), Err(Errno::FAULT), "{at:?}");
        assert_eq!(readable_bytes(at, usize::MAX), Err(Errno::FAULT), "{at:?}");
        assert_eq!(writable_bytes(at, 16), Err(Errno::FAULT), "{at:?}");
        assert_eq!((readable_bytes(at, 0), writable_bytes(at, 0)), (Ok(0), Ok(0)), "{at:?}");
        assert_eq!(length(at.cast()), Err(Errno::FAULT), "{at:?}");
    }
}

#[test]
fn the_heap_the_stack_and_constants_are_readable() {
    let (heap, stack) = (vec![1_u8; 3 * PAGE], [2_u8; 100]);
    for text in [&heap[..], &stack, b"a constant"] {
        assert_eq!(readable_bytes(text.as_ptr().cast(), text.len()), Ok(text.len()));
    }
    assert_eq!(writable_bytes(b"a constant".as_ptr().cast_mut().cast(), 4), Err(Errno::FAULT));
}

#[test]
fn a_probe_leaves_errno_as_it_was() {
    set_errno(Errno::DOM);
    assert!(!is_readable(0) && !is_writable(0) && !is_readable(usize::MAX));
    assert_eq!(errno(), Some(Errno::DOM));
    clear_errno();
    assert!(!is_writable(usize::MAX));
    assert_eq!(errno(), None);
}

#[test]
fn a_probe_of_a_word_does_not_change_it() {
    let pages = Pages::new(2);
    // SAFETY: the test's own page.
    unsafe { pages.at(0).cast::<u32>().write(0xdead_beef) };
    assert!(is_writable(pages.at(2).addr()));
    // SAFETY: as above.
    assert_eq!(unsafe { load::<u32>(pages.at(0).cast()) }, Ok(0xdead_beef));
}

#[test]
fn the_length_of_a_text_is_found_up_to_the_last_readable_byte_and_no_further() {
    let pages = Pages::new(3);
    pages.protect(2, MprotectFlags::empty());
    let fill = |from: usize, to: usize| {
        // SAFETY: within the writable pages.
        unsafe {
            pages.at(0).cast::<u8>().write_bytes(0, 2 * PAGE);
            pages.at(from).cast::<u8>().write_bytes(b'x', to - from);
        }
    };
    for (from, to, found) in [
        (0, 0, Ok(0)),
        (0, 1, Ok(1)),
        (10, PAGE, Ok(PAGE - 10)),
        (10, PAGE + 1, Ok(PAGE - 9)),
        (PAGE, 2 * PAGE - 1, Ok(PAGE - 1)),
        (PAGE + 1, 2 * PAGE, Err(Errno::FAULT)),
        (0, PAGE - 1, Ok(PAGE - 1)),
        (0, PAGE, Err(Errno::NAMETOOLONG)),
        (1, 2 * PAGE, Err(Errno::NAMETOOLONG)),
        (PAGE, 2 * PAGE, Err(Errno::NAMETOOLONG)),
    ] {
        fill(from, to);
        let text: *const c_char = pages.at(from).cast();
        assert_eq!(length(text), found, "from {from} to {to}");
        // SAFETY: the test's own pages, which stay.
        let text = unsafe { checked(text) };
        assert_eq!(text.map(<[u8]>::len), found, "from {from} to {to}");
    }
}

#[test]
fn a_null_text_is_empty() {
    // SAFETY: null, or nul-terminated.
    unsafe {
        assert_eq!(bytes(null()), b"");
        assert_eq!(bytes(c"text".as_ptr()), b"text");
    }
}

#[test]
fn as_much_of_a_text_is_copied_out_as_fits() {
    for (room, copied) in [(0, ""), (2, "ab"), (3, "abc"), (9, "abc")] {
        let mut into = [b'-'.cast_signed(); 9];
        // SAFETY: the buffer has at least `room` bytes.
        assert_eq!(unsafe { copy_out(b"abc", into.as_mut_ptr(), room) }, copied.len());
        let text: Vec<u8> = into.iter().map(|letter| letter.cast_unsigned()).collect();
        assert_eq!(text, format!("{copied:-<9}").as_bytes(), "{room}");
    }
}

#[test]
fn a_result_fits_the_callers_buffer_with_its_nul_or_is_refused() {
    let mut into = [b'-'.cast_signed(); 8];
    for (room, outcome) in
        [(0, Err(Errno::INVAL)), (1, Err(Errno::RANGE)), (3, Err(Errno::RANGE)), (4, Ok(c"abc")), (8, Ok(c"abc"))]
    {
        // SAFETY: the buffer has at least `room` bytes.
        let given = unsafe { copy_or_allocate(b"abc", into.as_mut_ptr(), room) };
        // SAFETY: nul-terminated if the call succeeded.
        assert_eq!(given.map(|text| unsafe { CStr::from_ptr(text) }), outcome, "{room}");
    }
    assert!(into[4..].iter().all(|letter| *letter == b'-'.cast_signed()), "no byte after the nul is written");
    let pages = Pages::new(2);
    pages.protect(0, MprotectFlags::READ);
    // SAFETY: only checked for access.
    assert_eq!(unsafe { copy_or_allocate(b"abc", pages.at(0).cast(), 10) }, Err(Errno::FAULT));
}

#[test]
fn without_a_buffer_a_result_gets_one_of_the_wanted_size_or_as_large_as_needed() {
    for (room, outcome) in [(0, Ok(c"abc")), (4, Ok(c"abc")), (100, Ok(c"abc")), (3, Err(Errno::RANGE))] {
        // SAFETY: a null buffer.
        let given = unsafe { copy_or_allocate(b"abc", null_mut(), room) };
        // SAFETY: a block of malloc(3) of at least `room` bytes, which is freed once.
        let text = given.map(|text| unsafe {
            assert!(libc::malloc_usable_size(text.cast()) >= room);
            let copy = CStr::from_ptr(text).to_owned();
            libc::free(text.cast());
            copy
        });
        assert_eq!(text.as_deref().map_err(|errno| *errno), outcome, "{room}");
    }
    // SAFETY: a null buffer.
    assert_eq!(unsafe { copy_or_allocate(b"abc", null_mut(), usize::MAX) }, Err(Errno::NOMEM));
}
