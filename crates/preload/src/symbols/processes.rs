//! Programs that are started: what stands in the environment for them, and programs that are themselves in the pool.

use super::{named, symbols};
use crate::guard::{done, set_errno, zero};
use crate::launch;
use crate::ours::{self, Said, kind};
use libc::{c_char, c_int, c_long, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rustix::fs::AtFlags;
use rustix::io::Errno;

type Words = *const *const c_char;

symbols! {
    /// umask(2).
    fn umask(mask: libc::mode_t) -> libc::mode_t {
        crate::start::set_umask(mask);
        // SAFETY: as the program called us.
        unsafe { next(mask) }
    }

    /// vfork(2), as a fork: what a child does to descriptors and to its working directory until it runs a program would be noted in memory
    /// that is its parent's, who has others.
    fn vfork() -> pid_t | __vfork {
        // SAFETY: a fork is all that callers of vfork(2) may count on.
        unsafe { libc::fork() }
    }

    /// execve(2).
    fn execve(path: *const c_char, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's path, words and variables.
        unsafe {
            let variables = launch::completed(variables);
            match ours::path(path) {
                Some(said) => zero(launch::replace(said, words, variables.as_ptr())),
                None => next(path, words, variables.as_ptr()),
            }
        }
    }

    /// execv(3).
    fn execv(path: *const c_char, words: Words) -> c_int {
        // SAFETY: as the program called us.
        unsafe { execve(path, words, launch::variables()) }
    }

    /// execvp(3).
    fn execvp(program: *const c_char, words: Words) -> c_int {
        // SAFETY: as the program called us.
        unsafe { execvpe(program, words, launch::variables()) }
    }

    /// execvpe(3).
    fn execvpe(program: *const c_char, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's name, words and variables.
        unsafe {
            let completed = launch::completed(variables);
            if !launch::may_be_found_in_the_pool(crate::text::bytes(program)) {
                return next(program, words, completed.as_ptr());
            }
            launch::found(crate::text::bytes(program), |path| {
                execve(path.as_ptr(), words, completed.as_ptr());
            })
        }
    }

    /// fexecve(3).
    fn fexecve(descriptor: c_int, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's words and variables.
        unsafe {
            let variables = launch::completed(variables);
            match kind(descriptor) {
                Some(_) => zero(launch::replace(Said::From(descriptor, b""), words, variables.as_ptr())),
                None => next(descriptor, words, variables.as_ptr()),
            }
        }
    }

    /// execveat(2).
    fn execveat(folder: c_int, path: *const c_char, words: Words, variables: Words, flags: c_int) -> c_int {
        // SAFETY: the program's path, words and variables.
        unsafe {
            let variables = launch::completed(variables);
            match ours::path_at(folder, path) {
                Some(said) => zero(launch::replace(said, words, variables.as_ptr())),
                None => next(folder, path, words, variables.as_ptr(), flags),
            }
        }
    }

    /// `posix_spawn(3)`, which returns its error.
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: Words,
        variables: Words,
    ) -> c_int {
        // SAFETY: the program's.
        unsafe {
            let variables = launch::completed(variables);
            match ours::path(path) {
                None => next(process, path, actions, attributes, words, variables.as_ptr()),
                Some(said) => match launch::image(said, words) {
                    Err(errno) => errno.raw_os_error(),
                    Ok(image) => next(process, image.path(), actions, attributes, image.words(), variables.as_ptr()),
                },
            }
        }
    }

    /// `posix_spawnp(3)`, likewise.
    fn posix_spawnp(
        process: *mut pid_t,
        program: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: Words,
        variables: Words,
    ) -> c_int {
        // SAFETY: the program's.
        unsafe {
            if !launch::may_be_found_in_the_pool(crate::text::bytes(program)) {
                let variables = launch::completed(variables);
                return next(process, program, actions, attributes, words, variables.as_ptr());
            }
            let mut outcome = Errno::NOENT.raw_os_error();
            let failed = launch::found(crate::text::bytes(program), |path| {
                outcome = posix_spawn(process, path.as_ptr(), actions, attributes, words, variables);
                if outcome != 0 {
                    set_errno(Errno::from_raw_os_error(outcome));
                }
            });
            if failed == 0 { 0 } else { outcome }
        }
    }

    /// `posix_spawn_file_actions_addopen(3)`: what is ours is opened here and now, for a new program has us only later.
    fn posix_spawn_file_actions_addopen(
        actions: *mut posix_spawn_file_actions_t,
        descriptor: c_int,
        path: *const c_char,
        flags: c_int,
        mode: libc::mode_t,
    ) -> c_int {
        // SAFETY: the program's path and actions.
        unsafe {
            match ours::path(path) {
                None => next(actions, descriptor, path, flags, mode),
                Some(said) => launch::open_for(actions, descriptor, said, flags, mode),
            }
        }
    }

    /// `posix_spawn_file_actions_destroy(3)`.
    fn posix_spawn_file_actions_destroy(actions: *mut posix_spawn_file_actions_t) -> c_int {
        launch::close_for(actions);
        // SAFETY: the program's actions, which it gives up.
        unsafe { next(actions) }
    }
}

named! {
    /// dlopen(3): the loader maps a file by its descriptor's name.
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void, said = path(path): crate::library::library(said, |path| next(path, flags));
    /// `dlmopen(3)`, likewise.
    fn dlmopen(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void, said = path(path): crate::library::library(said, |path| next(space, path, flags));
    /// ftok(3).
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t, said = path(path): key_of(said, project);
    /// `inotify_add_watch(2)`: the kernel knows when a local file's bytes are read and written, and of nothing else in the pool.
    fn inotify_add_watch(queue: c_int, path: *const c_char, mask: u32) -> c_int, said = path(path): launch::watched(said, |path| next(queue, path, mask));
    /// `name_to_handle_at(2)`, as on file systems without handles.
    fn name_to_handle_at(folder: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int,
        said = path_at(folder, path): refused(said, Errno::OPNOTSUPP);
    /// swapon(2).
    fn swapon(path: *const c_char, flags: c_int) -> c_int, said = path(path): refused(said, Errno::INVAL);
    /// acct(2).
    fn acct(path: *const c_char) -> c_int, said = path(path): refused(said, Errno::INVAL);
}

/// What we do not do, and say.
fn refused(_: Said<'_>, errno: Errno) -> c_int {
    zero(Err(errno))
}

/// A key of the System V calls: of the lowest bits of the inode, its device and the project's number, as the C library makes it.
fn key_of(said: Said<'_>, project: c_int) -> libc::key_t {
    match done(|process| process.stat(said.into(), AtFlags::empty())) {
        Ok(found) => {
            let (inode, device) = ((found.inode & 0xffff).to_le_bytes(), found.device.1.to_le_bytes());
            libc::key_t::from_le_bytes([inode[0], inode[1], device[0], project.to_le_bytes()[0]])
        }
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}
