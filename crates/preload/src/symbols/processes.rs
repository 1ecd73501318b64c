//! Functions that start programs: they complete the environment, and execute programs that lie in
//! the pool.

use super::{named, symbols};
use crate::guard::{at, done, errno, set_errno, zero};
use crate::ours::{self, Said};
use crate::{actions, launch};
use libc::{c_char, c_int, c_long, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rustix::fs::AtFlags;
use rustix::io::Errno;

type Words = *const *const c_char;

symbols! {
    /// umask(2).
    fn umask(mask: libc::mode_t) -> libc::mode_t {
        crate::start::set_umask(mask);
        // SAFETY: forwards the program's own arguments.
        unsafe { next(mask) }
    }

    /// vfork(2), executed as a fork. A vfork child shares memory with its parent, so changes of its
    /// descriptors and working directory before exec would be recorded as the parent's.
    fn vfork() -> pid_t | __vfork {
        // SAFETY: callers of vfork(2) may rely on nothing more than a fork.
        unsafe { libc::fork() }
    }

    /// execve(2).
    fn execve(path: *const c_char, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's path, arguments and environment.
        unsafe {
            let variables = launch::completed(variables);
            let system = |path, words| {
                next(path, words, variables.as_ptr());
            };
            match ours::path(path) {
                Some(said) => zero(launch::replace(said, crate::text::bytes(path), words, system)),
                None => of_host(path, words, system),
            }
        }
    }

    /// execv(3).
    fn execv(path: *const c_char, words: Words) -> c_int {
        // SAFETY: forwards the program's own arguments.
        unsafe { execve(path, words, launch::variables()) }
    }

    /// execvp(3).
    fn execvp(program: *const c_char, words: Words) -> c_int {
        // SAFETY: forwards the program's own arguments.
        unsafe { execvpe(program, words, launch::variables()) }
    }

    /// execvpe(3).
    fn execvpe(program: *const c_char, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's name, arguments and environment.
        unsafe {
            let completed = launch::completed(variables);
            if !launch::may_be_found_in_the_pool(program) {
                let outcome = next(program, words, completed.as_ptr());
                // The program may exist, with its interpreter in the pool.
                if errno() != Some(Errno::NOENT) {
                    return outcome;
                }
            }
            launch::found(crate::text::bytes(program), |path| {
                execve(path.as_ptr(), words, completed.as_ptr());
                if errno() == Some(Errno::NOEXEC) {
                    execve(launch::SHELL.as_ptr(), launch::by_shell(path, words).as_ptr(), completed.as_ptr());
                }
            })
        }
    }

    /// fexecve(3).
    fn fexecve(descriptor: c_int, words: Words, variables: Words) -> c_int {
        // SAFETY: the program's arguments and environment.
        unsafe {
            match ours::kind(descriptor) {
                Some(_) => execveat(descriptor, c"".as_ptr(), words, variables, libc::AT_EMPTY_PATH),
                None => next(descriptor, words, launch::completed(variables).as_ptr()),
            }
        }
    }

    /// execveat(2).
    fn execveat(folder: c_int, path: *const c_char, words: Words, variables: Words, flags: c_int) -> c_int {
        // SAFETY: the program's path, arguments and environment.
        unsafe {
            let variables = launch::completed(variables);
            let Some(said) = ours::path_at(folder, path) else {
                return next(folder, path, words, variables.as_ptr(), flags);
            };
            let itself = match said {
                Said::From(descriptor, b"") if flags & libc::AT_EMPTY_PATH != 0 => Said::Magic(descriptor, b""),
                said => said,
            };
            if let Err(errno) = may_run(said, flags) {
                return zero(Err(errno));
            }
            zero(launch::told_at(said, crate::text::bytes(path)).and_then(|told| {
                launch::replace(itself, &told, words, |path, words| {
                    libc::syscall(libc::SYS_execve, path, words, variables.as_ptr());
                })
            }))
        }
    }

    /// `posix_spawn(3)`, which returns the error number.
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        given: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: Words,
        variables: Words,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe {
            let variables = launch::completed_in(variables, actions::begins_in(given).as_deref());
            let from_there = actions::from_there(given, path);
            let found = from_there.as_ref().map_or(path, |path| path.as_ptr());
            let start = |image: &launch::Image| {
                let path = image.path_for_child();
                next(process, path.as_ptr(), given, attributes, image.words(), variables.as_ptr())
            };
            if let Some(said) = ours::path(found) {
                let image = launch::image(said, crate::text::bytes(path), words);
                return image.map_or_else(Errno::raw_os_error, |image| start(&image));
            }
            let outcome = next(process, path, given, attributes, words, variables.as_ptr());
            let image = (outcome == libc::ENOENT).then(|| launch::image_of_host(found, words)).flatten();
            image.map_or(outcome, |image| start(&image))
        }
    }

    /// `posix_spawnp(3)`, which returns the error number.
    fn posix_spawnp(
        process: *mut pid_t,
        program: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: Words,
        variables: Words,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe {
            if !launch::may_be_found_in_the_pool(program) {
                let variables = launch::completed(variables);
                let outcome = next(process, program, actions, attributes, words, variables.as_ptr());
                if outcome != libc::ENOENT {
                    return outcome;
                }
            }
            let mut outcome = Errno::NOENT.raw_os_error();
            let failed = launch::found(crate::text::bytes(program), |path| {
                outcome = posix_spawn(process, path.as_ptr(), actions, attributes, words, variables);
                if outcome != 0 {
                    set_errno(Errno::from_raw_os_error(outcome));
                }
            });
            if failed == 0 { 0 } else { errno().map_or(outcome, Errno::raw_os_error) }
        }
    }

    /// `posix_spawn_file_actions_addopen(3)`: opens a file of the pool at once, because the child
    /// loads this library only later.
    fn posix_spawn_file_actions_addopen(
        given: *mut posix_spawn_file_actions_t,
        descriptor: c_int,
        path: *const c_char,
        flags: c_int,
        mode: libc::mode_t,
    ) -> c_int {
        // SAFETY: the program's path and actions.
        unsafe {
            let from_there = actions::from_there(given, path);
            match ours::path(from_there.as_ref().map_or(path, |path| path.as_ptr())) {
                None => next(given, descriptor, path, flags, mode),
                Some(said) => actions::open_for(given, descriptor, said, flags, mode),
            }
        }
    }

    /// `posix_spawn_file_actions_addchdir_np(3)`: opens a directory of the pool at once.
    fn posix_spawn_file_actions_addchdir_np(given: *mut posix_spawn_file_actions_t, path: *const c_char) -> c_int
        | posix_spawn_file_actions_addchdir
    {
        // SAFETY: the program's path and actions.
        unsafe {
            let from_there = actions::from_there(given, path);
            if let Some(said) = ours::path(from_there.as_ref().map_or(path, |path| path.as_ptr())) {
                return actions::enter(given, said, |folder| posix_spawn_file_actions_addfchdir_np(given, folder));
            }
            let outcome = next(given, path);
            if outcome == 0 {
                actions::entered_host(given, path);
            }
            outcome
        }
    }

    /// `posix_spawn_file_actions_addfchdir_np(3)`: records the directory.
    fn posix_spawn_file_actions_addfchdir_np(given: *mut posix_spawn_file_actions_t, folder: c_int) -> c_int
        | posix_spawn_file_actions_addfchdir
    {
        // SAFETY: the program's actions.
        let outcome = unsafe { next(given, folder) };
        if outcome == 0 {
            actions::entered(given, folder);
        }
        outcome
    }

    /// `posix_spawn_file_actions_destroy(3)`.
    fn posix_spawn_file_actions_destroy(actions: *mut posix_spawn_file_actions_t) -> c_int {
        actions::close_for(actions);
        // SAFETY: the program's actions, which it destroys.
        unsafe { next(actions) }
    }
}

named! {
    /// dlopen(3): the loader maps the file through its descriptor's path.
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void, said = path(path): crate::library::library(said, |path| next(path, flags));
    /// `dlmopen(3)`: the loader maps the file through its descriptor's path.
    fn dlmopen(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void, said = path(path): crate::library::library(said, |path| next(space, path, flags));
    /// ftok(3).
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t, said = path(path): key_of(said, project);
    /// `inotify_add_watch(2)`: local files only, since the kernel sees their reads and writes and
    /// nothing else of the pool.
    fn inotify_add_watch(queue: c_int, path: *const c_char, mask: u32) -> c_int, said = path(path): launch::watched(said, |path| next(queue, path, mask));
    /// `name_to_handle_at(2)`: refused, as by file systems without handles.
    fn name_to_handle_at(folder: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int,
        said = path_at(folder, path): refused(said, Errno::OPNOTSUPP);
    /// swapon(2): refused.
    fn swapon(path: *const c_char, flags: c_int) -> c_int, said = path(path): refused(said, Errno::INVAL);
    /// acct(2): refused.
    fn acct(path: *const c_char) -> c_int, said = path(path): refused(said, Errno::INVAL);
}

/// Executes a program of the host by the system call, and through its interpreter if that is in the
/// pool.
///
/// # Safety
/// The path is a nul-terminated string; `words` is a null-terminated list of strings.
unsafe fn of_host(path: *const c_char, words: Words, system: impl Fn(*const c_char, Words)) -> c_int {
    system(path, words);
    let why = errno().unwrap_or(Errno::NOENT);
    if why == Errno::NOENT {
        // SAFETY: same contract as this function's.
        if let Some(image) = unsafe { launch::image_of_host(path, words) } {
            system(image.path(), image.words());
            return -1;
        }
    }
    zero(Err(why))
}

/// Makes the checks of execveat(2) that precede the lookup of the program: unknown flags
/// (`EINVAL`), and a symlink that must not be followed (`ELOOP`).
fn may_run(said: Said<'_>, flags: c_int) -> Result<(), Errno> {
    let known = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    let itself = matches!(said, Said::From(_, b"")) || flags & libc::AT_SYMLINK_NOFOLLOW != 0;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    if itself && done(|process| process.stat(said.into(), at(flags)))?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(Errno::LOOP);
    }
    Ok(())
}

/// Refuses a call that is not supported.
fn refused(_: Said<'_>, errno: Errno) -> c_int {
    zero(Err(errno))
}

/// Returns a System V IPC key, made as the C library does: of the low bits of the inode and device,
/// and the project number.
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
