//! Asynchronous operations end in the pool as on the host; on placeholders at once.

use crate::pool_test::{Place, TestDir, answer, number, same_everywhere};
use libc::{aiocb, c_int};
use rustix::io::Errno;
use std::mem::zeroed;
use std::os::unix::fs::FileExt;
use std::ptr::{null, null_mut};

/// Operation on a buffer.
fn operation(descriptor: c_int, buffer: &mut [u8], at: i64, kind: c_int) -> aiocb {
    // SAFETY: a structure of plain numbers and pointers, for which zero is valid.
    let mut operation: aiocb = unsafe { zeroed() };
    (operation.aio_fildes, operation.aio_offset, operation.aio_lio_opcode) = (descriptor, at, kind);
    (operation.aio_buf, operation.aio_nbytes) = (buffer.as_mut_ptr().cast(), buffer.len());
    operation.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    operation
}

/// Waits for an operation, and returns its error number and result.
fn ended(operation: &mut aiocb) -> (c_int, isize) {
    // SAFETY: an operation that was started.
    unsafe {
        let list = [&raw const *operation];
        while libc::aio_error(operation) == libc::EINPROGRESS {
            libc::aio_suspend(list.as_ptr(), 1, null());
        }
        (libc::aio_error(operation), libc::aio_return(operation))
    }
}

#[test]
fn bytes_are_read_and_written_at_the_offset_of_the_operation() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let (mut into, mut from) = ([b'-'; 6], *b"wxyz");
        let mut reads = operation(number(&file), &mut into, 7, 0);
        let mut writes = operation(number(&file), &mut from, 2, 0);
        // SAFETY: operations whose buffers outlive them.
        let started = unsafe { [answer(libc::aio_write(&raw mut writes)), answer(libc::aio_read(&raw mut reads))] };
        let ends = [ended(&mut writes), ended(&mut reads)];
        // SAFETY: as above.
        let synced = unsafe {
            [libc::O_SYNC, libc::O_DSYNC, 7]
                .map(|what| answer(libc::aio_fsync(what, &raw mut writes)).map(|_| ended(&mut writes)))
        };
        (started, ends, synced, into, test_dir.bytes("f"))
    });
}

#[test]
fn an_operation_on_a_placeholder_is_complete_when_it_is_started() {
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"0123456789");
    let mut into = [0; 4];
    for (at, priority, outcome) in [
        (3, 0, Ok((0, 4))),
        (20, 0, Ok((0, 0))),
        (-1, 0, Ok((libc::EINVAL, -1))),
        (0, -1, Err(Errno::INVAL)),
        (0, 21, Err(Errno::INVAL)),
    ] {
        let mut reads = operation(number(&file), &mut into, at, 0);
        reads.aio_reqprio = priority;
        // SAFETY: an operation whose buffer outlives it.
        let ended = unsafe {
            answer(libc::aio_read(&raw mut reads))
                .map(|_| (libc::aio_error(&raw const reads), libc::aio_return(&raw mut reads)))
        };
        assert_eq!(ended, outcome, "{at} {priority}");
    }
    assert_eq!(&into, b"3456");
}

#[test]
fn a_list_is_executed_wherever_its_files_are() {
    let host = TestDir::new(Place::Host);
    same_everywhere(|test_dir| {
        let (file, other) = (test_dir.file("f", b"0123456789"), host.file("f", b"of the host"));
        let (mut first, mut second, mut third) = ([0; 3], *b"xy", [0; 6]);
        let mut all = [
            operation(number(&file), &mut first, 5, libc::LIO_READ),
            operation(number(&file), &mut second, 0, libc::LIO_WRITE),
            operation(number(&other), &mut third, 0, libc::LIO_READ),
            operation(number(&file), &mut [], 0, libc::LIO_NOP),
        ];
        let mut list = all.each_mut().map(|operation| &raw mut *operation).to_vec();
        list.push(null_mut());
        // SAFETY: a list of five entries, of which one is null.
        let outcome = answer(unsafe { libc::lio_listio(libc::LIO_WAIT, list.as_ptr(), 5, null_mut()) });
        let ends = all[..3].iter_mut().map(ended).collect::<Vec<_>>();
        let mut failing = [operation(number(&file), &mut first, -1, libc::LIO_READ)];
        // SAFETY: a list of one entry, or of none.
        let refused = unsafe {
            [
                answer(libc::lio_listio(libc::LIO_WAIT, [failing.as_mut_ptr()].as_ptr(), 1, null_mut())),
                answer(libc::lio_listio(9, list.as_ptr(), 5, null_mut())),
                answer(libc::lio_listio(libc::LIO_NOWAIT, null(), 0, null_mut())),
            ]
        };
        let mut start = [0; 2];
        file.read_exact_at(&mut start, 0).unwrap();
        (outcome, ends, refused, first, third, start)
    });
}
