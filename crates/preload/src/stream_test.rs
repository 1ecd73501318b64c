//! C streams over files of the pool: what is buffered, read and written is as on the host.

use super::*;
use crate::call::errno;
use crate::pool_test::{Place, TestDir, answer, in_child, number, same_everywhere};
use std::fs::{self, File};

#[test]
fn a_mode_of_fopen_means_the_flags_that_its_letters_name() {
    use libc::{O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
    for (mode, wanted) in [
        ("r", Some(O_RDONLY)),
        ("rb", Some(O_RDONLY)),
        ("r+", Some(O_RDWR)),
        ("rb+", Some(O_RDWR)),
        ("w", Some(O_WRONLY | O_CREAT | O_TRUNC)),
        ("w+", Some(O_RDWR | O_CREAT | O_TRUNC)),
        ("wx", Some(O_WRONLY | O_CREAT | O_TRUNC | O_EXCL)),
        ("w+xe", Some(O_RDWR | O_CREAT | O_TRUNC | O_EXCL | O_CLOEXEC)),
        ("a", Some(O_WRONLY | O_CREAT | O_APPEND)),
        ("a+e", Some(O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC)),
        ("rm", Some(O_RDONLY)),
        ("r,ccs=exe", Some(O_RDONLY)),
        ("re,ccs=x", Some(O_RDONLY | O_CLOEXEC)),
        ("", None),
        ("+r", None),
        ("x", None),
        ("R", None),
    ] {
        assert_eq!(flags(mode.as_bytes()), wanted, "{mode}");
    }
}

/// Opens a stream.
fn open(test_dir: &TestDir, name: &str, mode: &CStr) -> *mut FILE {
    // SAFETY: nul-terminated strings.
    let stream = unsafe { libc::fopen(test_dir.c(name).as_ptr(), mode.as_ptr()) };
    assert!(!stream.is_null(), "{name} {mode:?}: {:?}", errno());
    stream
}

/// Writes a text.
fn put(stream: *mut FILE, text: &CStr) -> c_int {
    // SAFETY: an open stream, and a nul-terminated string.
    unsafe { libc::fputs(text.as_ptr(), stream) }.min(1)
}

/// Reads up to `most` bytes.
fn get(stream: *mut FILE, most: usize) -> String {
    let mut bytes = vec![0; most];
    // SAFETY: an open stream, and a buffer of that many bytes.
    let length = unsafe { libc::fread(bytes.as_mut_ptr().cast(), 1, most, stream) };
    bytes.truncate(length);
    String::from_utf8(bytes).unwrap()
}

fn close_stream(stream: *mut FILE) -> c_int {
    // SAFETY: an open stream.
    unsafe { libc::fclose(stream) }
}

#[test]
fn only_a_stream_over_a_placeholder_is_of_this_library() {
    for (place, ours) in [(Place::Host, false), (Place::Striped, true)] {
        let test_dir = TestDir::new(place);
        let stream = open(&test_dir, "f", c"w");
        // SAFETY: an open stream.
        let descriptor = unsafe { libc::fileno(stream) };
        assert_eq!(
            (is_library_stream(stream), super::descriptor(stream)),
            (ours, ours.then_some(descriptor)),
            "{place:?}"
        );
        assert_eq!(close_stream(stream), 0);
        assert!(!is_library_stream(stream), "it is forgotten");
    }
}

#[test]
fn each_mode_reads_and_writes_what_it_permits_where_it_permits_it() {
    same_everywhere(|test_dir| {
        [c"r", c"r+", c"w", c"w+", c"a", c"a+"].map(|mode| {
            fs::write(test_dir.path("f"), "0123456789").unwrap();
            let stream = open(test_dir, "f", mode);
            // SAFETY: an open stream.
            let output = unsafe {
                let start = libc::ftell(stream);
                let read = get(stream, 4);
                let failed = libc::ferror(stream) != 0;
                libc::clearerr(stream);
                libc::fseek(stream, 2, libc::SEEK_SET);
                (start, read, failed, put(stream, c"xy"), libc::fflush(stream), libc::ftell(stream))
            };
            (output, close_stream(stream), test_dir.bytes("f"))
        })
    });
}

#[test]
fn bytes_are_buffered_until_they_are_flushed_or_the_stream_is_closed() {
    same_everywhere(|test_dir| {
        let stream = open(test_dir, "f", c"w");
        let mut seen = vec![(put(stream, c"one "), test_dir.bytes("f"))];
        // SAFETY: an open stream.
        seen.push((unsafe { libc::fflush(stream) }, test_dir.bytes("f")));
        seen.push((put(stream, c"two "), test_dir.bytes("f")));
        // SAFETY: an open stream.
        seen.push((unsafe { libc::fseek(stream, 1, libc::SEEK_SET) }, test_dir.bytes("f")));
        seen.push((put(stream, c"N"), test_dir.bytes("f")));
        seen.push((close_stream(stream), test_dir.bytes("f")));
        seen
    });
}

#[test]
fn lines_and_pushed_back_letters_are_read_in_order() {
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("f"), "first\nsecond\nlast").unwrap();
        let stream = open(test_dir, "f", c"r");
        let mut output = Vec::new();
        // SAFETY: an open stream, and a buffer of 20 bytes.
        unsafe {
            for _ in 0..4 {
                let mut line: [c_char; 20] = [0; 20];
                let got = !libc::fgets(line.as_mut_ptr(), 20, stream).is_null();
                output.push((
                    got,
                    CStr::from_ptr(line.as_ptr()).to_owned(),
                    libc::feof(stream) != 0,
                    libc::ftell(stream),
                ));
            }
            libc::rewind(stream);
            let first = libc::fgetc(stream);
            libc::ungetc(c_int::from(b'F'), stream);
            (output, first, get(stream, 7), close_stream(stream))
        }
    });
}

#[test]
fn an_appending_stream_writes_at_the_end_though_another_has_written_there() {
    same_everywhere(|test_dir| {
        let (first, second) = (open(test_dir, "f", c"a"), open(test_dir, "f", c"a+"));
        for (stream, text) in [(first, c"one "), (second, c"two "), (first, c"three ")] {
            put(stream, text);
            // SAFETY: open streams.
            unsafe { libc::fflush(stream) };
        }
        // SAFETY: an open stream.
        unsafe { libc::rewind(second) };
        (get(second, 100), close_stream(first), close_stream(second))
    });
}

#[test]
fn a_stream_is_not_opened_with_a_wrong_mode_or_at_a_wrong_path() {
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("f"), "").unwrap();
        [("f", c"x"), ("f", c""), ("f", c"wx"), ("missing", c"r"), (".", c"w"), ("f/x", c"w")].map(|(name, mode)| {
            // SAFETY: nul-terminated strings.
            let stream = unsafe { libc::fopen(test_dir.c(name).as_ptr(), mode.as_ptr()) };
            (stream, errno())
        })
    });
}

#[test]
fn a_descriptor_gets_a_stream_if_its_access_permits_the_mode() {
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("f"), "0123").unwrap();
        [
            (libc::O_RDONLY, c"r"),
            (libc::O_RDONLY, c"w"),
            (libc::O_WRONLY, c"r+"),
            (libc::O_RDWR, c"a"),
            (libc::O_RDWR, c"q"),
        ]
        .map(|(access, mode)| {
            // SAFETY: nul-terminated strings; the stream owns the descriptor.
            unsafe {
                let descriptor = libc::open(test_dir.c("f").as_ptr(), access);
                let stream = libc::fdopen(descriptor, mode.as_ptr());
                if stream.is_null() {
                    let why = errno();
                    libc::close(descriptor);
                    return (why, 0, false);
                }
                let at = (libc::ftell(stream), libc::fileno(stream) == descriptor);
                close_stream(stream);
                (None, at.0, at.1)
            }
        })
    });
}

#[test]
fn a_stream_that_is_reopened_keeps_its_descriptor_and_drops_nothing_that_was_written() {
    for place in [Place::Host, Place::Striped] {
        let test_dir = TestDir::new(place);
        fs::write(test_dir.path("g"), "of g").unwrap();
        let stream = open(&test_dir, "f", c"w");
        put(stream, c"of f");
        // SAFETY: an open stream, and nul-terminated strings.
        unsafe {
            let descriptor = libc::fileno(stream);
            assert_eq!(libc::freopen(test_dir.c("g").as_ptr(), c"r+".as_ptr(), stream), stream, "{place:?}");
            assert_eq!((libc::fileno(stream), libc::ftell(stream)), (descriptor, 0));
            assert_eq!(get(stream, 9), "of g");
            assert_eq!(libc::freopen(test_dir.c("g").as_ptr(), c"a".as_ptr(), stream), stream);
            assert_eq!((put(stream, c"!"), close_stream(stream)), (1, 0));
        }
        assert_eq!((test_dir.bytes("f"), test_dir.bytes("g")), (b"of f".to_vec(), b"of g!".to_vec()), "{place:?}");
    }
}

#[test]
fn a_stream_of_the_c_library_is_not_reopened_over_a_placeholder() {
    let (host, pool) = (TestDir::new(Place::Host), TestDir::new(Place::Striped));
    fs::write(pool.path("f"), "").unwrap();
    let stream = open(&host, "f", c"w");
    // SAFETY: an open stream, and nul-terminated strings.
    let again = unsafe { libc::freopen(pool.c("f").as_ptr(), c"w".as_ptr(), stream) };
    assert_eq!((again, errno()), (null_mut(), Some(Errno::OPNOTSUPP)));
    let (own, closed) = (open(&pool, "f", c"r"), open(&host, "f", c"r"));
    close_stream(closed);
    // SAFETY: an open stream, and nul-terminated strings.
    let again = unsafe { libc::freopen(pool.c("missing").as_ptr(), c"r".as_ptr(), own) };
    assert_eq!((again, errno()), (null_mut(), Some(Errno::NOENT)));
    close_stream(own);
}

unsafe extern "C" {
    static mut stdout: *mut FILE;
    fn dprintf(descriptor: c_int, format: *const c_char, ...) -> c_int;
}

#[test]
fn what_a_program_prints_goes_to_the_file_that_its_standard_output_becomes() {
    same_everywhere(|test_dir| {
        let (first, second) = (test_dir.file("first", b""), test_dir.file("second", b""));
        let output = in_child(|| {
            // SAFETY: a child of its own; the C library's variable and nul-terminated strings.
            unsafe {
                let original = stdout;
                let kept = libc::dup(1);
                libc::dup2(number(&first), 1);
                put(stdout, c"to the first, ");
                libc::printf(c"%d of %s\n".as_ptr(), 7, c"eight".as_ptr());
                let is_number = libc::fileno(stdout);
                libc::fflush(stdout);
                libc::dup2(number(&second), 1);
                put(stdout, c"to the second");
                libc::fflush(stdout);
                libc::dup2(kept, 1);
                format!("{is_number} {}", stdout == original)
            }
        });
        (output, test_dir.bytes("first"), test_dir.bytes("second"))
    });
}

#[test]
fn what_was_buffered_before_standard_output_became_another_file_goes_there() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"");
        in_child(|| {
            // SAFETY: a child of its own; the C library's variable and nul-terminated strings.
            unsafe {
                libc::setvbuf(stdout, null_mut(), libc::_IOFBF, 4096);
                put(stdout, c"before, ");
                libc::dup2(number(&file), 1);
                put(stdout, c"after");
                libc::fflush(stdout);
            }
            String::new()
        });
        test_dir.bytes("f")
    });
}

#[test]
fn standard_output_can_be_reopened_over_a_file() {
    same_everywhere(|test_dir| {
        let output = in_child(|| {
            // SAFETY: a child of its own; the C library's variable and nul-terminated strings.
            unsafe {
                let again = libc::freopen(test_dir.c("f").as_ptr(), c"w".as_ptr(), stdout);
                put(stdout, c"one line\n");
                let ended = (again == stdout, libc::fileno(stdout), libc::fclose(stdout));
                format!("{ended:?} {}", test_dir.bytes("f").len())
            }
        });
        (output, test_dir.bytes("f"))
    });
}

#[cfg(target_arch = "x86_64")] // on other processors it is refused
#[test]
fn a_printed_text_is_formatted_by_the_c_library_and_written_to_the_file() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"");
        // SAFETY: formats with their arguments.
        let lengths = unsafe {
            [
                answer(dprintf(number(&file), c"%d %s %c|".as_ptr(), 42, c"text".as_ptr(), c_int::from(b'x'))),
                answer(dprintf(number(&file), c"%.3f %g %e|".as_ptr(), 1.5_f64, 2.25_f64, 1e9_f64)),
                answer(dprintf(number(&file), c"%d%d%d%d%d%d %ld|".as_ptr(), 1, 2, 3, 4, 5, 6, i64::MAX)),
                answer(dprintf(number(&file), c"%*d %5000s|".as_ptr(), 6, 7, c"far".as_ptr())),
                answer(dprintf(number(&file), c"".as_ptr())),
                answer(dprintf(number(&File::open(test_dir.path("f")).unwrap()), c"x".as_ptr())),
            ]
        };
        (lengths, test_dir.bytes("f"))
    });
}

#[test]
fn a_child_writes_what_its_parent_has_buffered_only_if_it_flushes_it() {
    same_everywhere(|test_dir| {
        let stream = open(test_dir, "f", c"w");
        put(stream, c"of the parent, ");
        // SAFETY: an open stream.
        unsafe { libc::fflush(stream) };
        in_child(|| {
            put(stream, c"of the child, ");
            // SAFETY: an open stream.
            unsafe { libc::fflush(stream) }.to_string()
        });
        put(stream, c"again of the parent");
        (close_stream(stream), test_dir.bytes("f"))
    });
}
