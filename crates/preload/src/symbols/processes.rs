//! Functions that start programs: they complete the environment, and execute programs that lie in
//! the pool.

use super::{on_path, symbols};
use crate::call::{at, errno, run, set_errno, zero};
use crate::classify::{self, PoolPath};
use crate::launch::{self, StringList};
use crate::spawn_actions;
use libc::{c_char, c_int, c_long, c_void, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};
use rustix::fs::AtFlags;
use rustix::io::Errno;

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
    fn execve(path: *const c_char, argv: StringList, envp: StringList) -> c_int {
        // SAFETY: the program's path, arguments and environment.
        unsafe {
            let envp = launch::complete_environment(envp);
            let system = |path, argv| {
                next(path, argv, envp.as_ptr());
            };
            match classify::path(path) {
                Some(arg) => zero(launch::replace(arg, crate::cstr::bytes(path), argv, system)),
                None => execute_host(path, argv, system),
            }
        }
    }

    /// execv(3).
    fn execv(path: *const c_char, argv: StringList) -> c_int {
        // SAFETY: forwards the program's own arguments.
        unsafe { execve(path, argv, launch::environment()) }
    }

    /// execvp(3).
    fn execvp(program: *const c_char, argv: StringList) -> c_int {
        // SAFETY: forwards the program's own arguments.
        unsafe { execvpe(program, argv, launch::environment()) }
    }

    /// execvpe(3).
    fn execvpe(program: *const c_char, argv: StringList, envp: StringList) -> c_int {
        // SAFETY: the program's name, arguments and environment.
        unsafe {
            let completed = launch::complete_environment(envp);
            if !launch::may_be_in_pool(program) {
                let outcome = next(program, argv, completed.as_ptr());
                // The program may exist, with its interpreter in the pool.
                if errno() != Some(Errno::NOENT) {
                    return outcome;
                }
            }
            launch::try_path_search(crate::cstr::bytes(program), |path| {
                execve(path.as_ptr(), argv, completed.as_ptr());
                if errno() == Some(Errno::NOEXEC) {
                    execve(launch::SHELL.as_ptr(), launch::shell_arguments(path, argv).as_ptr(), completed.as_ptr());
                }
            })
        }
    }

    /// fexecve(3).
    fn fexecve(descriptor: c_int, argv: StringList, envp: StringList) -> c_int {
        // SAFETY: the program's arguments and environment.
        unsafe {
            match classify::kind(descriptor) {
                Some(_) => execveat(descriptor, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH),
                None => next(descriptor, argv, launch::complete_environment(envp).as_ptr()),
            }
        }
    }

    /// execveat(2).
    fn execveat(dirfd: c_int, path: *const c_char, argv: StringList, envp: StringList, flags: c_int) -> c_int {
        // SAFETY: the program's path, arguments and environment.
        unsafe {
            let envp = launch::complete_environment(envp);
            let Some(arg) = classify::path_at(dirfd, path) else {
                return next(dirfd, path, argv, envp.as_ptr(), flags);
            };
            let itself = match arg {
                PoolPath::At(descriptor, b"") if flags & libc::AT_EMPTY_PATH != 0 => PoolPath::Magic(descriptor, b""),
                arg => arg,
            };
            if let Err(errno) = check_exec(arg, flags) {
                return zero(Err(errno));
            }
            zero(launch::script_name(arg, crate::cstr::bytes(path)).and_then(|script| {
                launch::replace(itself, &script, argv, |path, argv| {
                    libc::syscall(libc::SYS_execve, path, argv, envp.as_ptr());
                })
            }))
        }
    }

    /// `posix_spawn(3)`, which returns the error number.
    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: StringList,
        envp: StringList,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe {
            let envp = launch::complete_environment_in(envp, spawn_actions::start_directory(actions).as_deref());
            let relative_to_start = spawn_actions::relative_to_start(actions, path);
            let found = relative_to_start.as_ref().map_or(path, |path| path.as_ptr());
            let start = |image: &launch::ExecImage| {
                let path = image.path_for_child();
                next(process, path.as_ptr(), actions, attributes, image.argv(), envp.as_ptr())
            };
            if let Some(arg) = classify::path(found) {
                let image = launch::prepare(arg, crate::cstr::bytes(path), argv);
                return image.map_or_else(Errno::raw_os_error, |image| start(&image));
            }
            let outcome = next(process, path, actions, attributes, argv, envp.as_ptr());
            let image = (outcome == libc::ENOENT).then(|| launch::prepare_host_script(found, argv)).flatten();
            image.map_or(outcome, |image| start(&image))
        }
    }

    /// `posix_spawnp(3)`, which returns the error number.
    fn posix_spawnp(
        process: *mut pid_t,
        program: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        argv: StringList,
        envp: StringList,
    ) -> c_int {
        // SAFETY: the program's own arguments.
        unsafe {
            if !launch::may_be_in_pool(program) {
                let envp = launch::complete_environment_in(envp, spawn_actions::start_directory(actions).as_deref());
                let outcome = next(process, program, actions, attributes, argv, envp.as_ptr());
                if outcome != libc::ENOENT {
                    return outcome;
                }
            }
            let mut outcome = Errno::NOENT.raw_os_error();
            let failed = launch::try_path_search(crate::cstr::bytes(program), |path| {
                outcome = posix_spawn(process, path.as_ptr(), actions, attributes, argv, envp);
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
        actions: *mut posix_spawn_file_actions_t,
        descriptor: c_int,
        path: *const c_char,
        flags: c_int,
        mode: libc::mode_t,
    ) -> c_int {
        // SAFETY: the program's path and actions.
        unsafe {
            let relative_to_start = spawn_actions::relative_to_start(actions, path);
            match classify::path(relative_to_start.as_ref().map_or(path, |path| path.as_ptr())) {
                None => next(actions, descriptor, path, flags, mode),
                Some(arg) => spawn_actions::add_open(actions, descriptor, arg, flags, mode),
            }
        }
    }

    /// `posix_spawn_file_actions_addchdir_np(3)`: opens a directory of the pool at once.
    fn posix_spawn_file_actions_addchdir_np(actions: *mut posix_spawn_file_actions_t, path: *const c_char) -> c_int
        | posix_spawn_file_actions_addchdir
    {
        // SAFETY: the program's path and actions.
        unsafe {
            let relative_to_start = spawn_actions::relative_to_start(actions, path);
            if let Some(arg) = classify::path(relative_to_start.as_ref().map_or(path, |path| path.as_ptr())) {
                return spawn_actions::add_chdir(actions, arg, |dirfd| posix_spawn_file_actions_addfchdir_np(actions, dirfd));
            }
            let outcome = next(actions, path);
            if outcome == 0 {
                spawn_actions::record_chdir(actions, path);
            }
            outcome
        }
    }

    /// `posix_spawn_file_actions_addfchdir_np(3)`: records the directory.
    fn posix_spawn_file_actions_addfchdir_np(actions: *mut posix_spawn_file_actions_t, dirfd: c_int) -> c_int
        | posix_spawn_file_actions_addfchdir
    {
        // SAFETY: the program's actions.
        let outcome = unsafe { next(actions, dirfd) };
        if outcome == 0 {
            spawn_actions::record_fchdir(actions, dirfd);
        }
        outcome
    }

    /// `posix_spawn_file_actions_destroy(3)`.
    fn posix_spawn_file_actions_destroy(actions: *mut posix_spawn_file_actions_t) -> c_int {
        spawn_actions::release(actions);
        // SAFETY: the program's actions, which it destroys.
        unsafe { next(actions) }
    }
}

on_path! {
    /// dlopen(3): the loader maps the file through its descriptor's path.
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void, arg = path(path): crate::dlopen::load(arg, |path| next(path, flags));
    /// `dlmopen(3)`: the loader maps the file through its descriptor's path.
    fn dlmopen(space: c_long, path: *const c_char, flags: c_int) -> *mut c_void, arg = path(path): crate::dlopen::load(arg, |path| next(space, path, flags));
    /// ftok(3).
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t, arg = path(path): ipc_key(arg, project);
    /// `inotify_add_watch(2)`: local files only, since the kernel sees their reads and writes and
    /// nothing else of the pool.
    fn inotify_add_watch(queue: c_int, path: *const c_char, mask: u32) -> c_int, arg = path(path): launch::watch_local(arg, |path| next(queue, path, mask));
    /// `name_to_handle_at(2)`: refused, as by file systems without handles.
    fn name_to_handle_at(dirfd: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int,
        arg = path_at(dirfd, path): refuse(arg, Errno::OPNOTSUPP);
    /// swapon(2): refused.
    fn swapon(path: *const c_char, flags: c_int) -> c_int, arg = path(path): refuse(arg, Errno::INVAL);
    /// acct(2): refused.
    fn acct(path: *const c_char) -> c_int, arg = path(path): refuse(arg, Errno::INVAL);
}

/// Executes a program of the host by the system call, and through its interpreter if that is in the
/// pool.
///
/// # Safety
/// The path is a nul-terminated string; `argv` is a null-terminated list of strings.
unsafe fn execute_host(path: *const c_char, argv: StringList, system: impl Fn(*const c_char, StringList)) -> c_int {
    system(path, argv);
    let why = errno().unwrap_or(Errno::NOENT);
    if why == Errno::NOENT {
        // SAFETY: same contract as this function's.
        if let Some(image) = unsafe { launch::prepare_host_script(path, argv) } {
            system(image.path(), image.argv());
            return -1;
        }
    }
    zero(Err(why))
}

/// Makes the checks of execveat(2) that precede the lookup of the program: unknown flags
/// (`EINVAL`), and a symlink that must not be followed (`ELOOP`).
fn check_exec(arg: PoolPath<'_>, flags: c_int) -> Result<(), Errno> {
    let known = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    let itself = matches!(arg, PoolPath::At(_, b"")) || flags & libc::AT_SYMLINK_NOFOLLOW != 0;
    if flags & !known != 0 {
        return Err(Errno::INVAL);
    }
    if itself && run(|process| process.stat(arg.into(), at(flags)))?.mode & libc::S_IFMT == libc::S_IFLNK {
        return Err(Errno::LOOP);
    }
    Ok(())
}

/// Refuses a call that is not supported.
fn refuse(_: PoolPath<'_>, errno: Errno) -> c_int {
    zero(Err(errno))
}

/// Returns a System V IPC key, made as the C library does: of the low bits of the inode and device,
/// and the project number.
fn ipc_key(arg: PoolPath<'_>, project: c_int) -> libc::key_t {
    match run(|process| process.stat(arg.into(), AtFlags::empty())) {
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

#[cfg(test)]
#[path = "processes_test.rs"]
mod tests;
