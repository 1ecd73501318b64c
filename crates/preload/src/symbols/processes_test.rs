//! Programs that are started: in directories, with files and from files of the pool.

use super::*;
use crate::pool_test::{
    Place, TestDir, answer, exclusive_test, has_extents, in_child, number, same_everywhere, why, with_children,
};
use crate::spawn_actions::{SpawnRecord, all, start_directory};
use std::ffi::CStr;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::ptr::{null, null_mut};

/// File actions of a start, destroyed when dropped.
struct Actions(Box<MaybeUninit<posix_spawn_file_actions_t>>);

impl Actions {
    fn new() -> Self {
        let mut actions = Box::new(MaybeUninit::uninit());
        // SAFETY: space for the actions, which keep their address.
        assert_eq!(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) }, 0);
        Self(actions)
    }

    fn as_ptr(&mut self) -> *mut posix_spawn_file_actions_t {
        self.0.as_mut_ptr()
    }

    fn records(&mut self) -> usize {
        let at = self.as_ptr().addr();
        all().iter().filter(|(known, _)| *known == at).count()
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialized actions.
        unsafe { libc::posix_spawn_file_actions_destroy(self.as_ptr()) };
    }
}

/// Starts a shell with a command, and waits for it.
fn shell(actions: &mut Actions, command: &CStr) -> Result<ExitStatus, c_int> {
    let (mut child, mut status) = (0, 0);
    let argv = [c"sh".as_ptr(), c"-c".as_ptr(), command.as_ptr(), null()];
    // SAFETY: null-terminated lists of strings; initialized actions.
    unsafe {
        match posix_spawn(
            &raw mut child,
            c"/bin/sh".as_ptr(),
            actions.as_ptr(),
            null(),
            argv.as_ptr(),
            launch::environment(),
        ) {
            0 => assert_eq!(libc::waitpid(child, &raw mut status, 0), child),
            errno => return Err(errno),
        }
    }
    Ok(ExitStatus::from_raw(status))
}

#[test]
fn a_started_program_gets_files_of_the_pool_by_its_actions() {
    let (_exclusive, _children) = (exclusive_test(), with_children());
    if !has_extents() {
        return; // the shell cannot write to a placeholder
    }
    let test_dir = TestDir::new(Place::Local);
    let mut actions = Actions::new();
    // SAFETY: nul-terminated strings; initialized actions.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT;
        assert_eq!(
            libc::posix_spawn_file_actions_addopen(actions.as_ptr(), 1, test_dir.c("out").as_ptr(), flags, 0o600),
            0
        );
        let missing =
            libc::posix_spawn_file_actions_addopen(actions.as_ptr(), 5, c"/tidemill/missing/f".as_ptr(), 0, 0);
        assert_eq!(missing, libc::ENOENT);
    }
    let status = shell(&mut actions, c"echo by the child; exit 3").unwrap();
    assert_eq!((status.code(), test_dir.bytes("out")), (Some(3), b"by the child\n".to_vec()));
}

#[test]
fn descriptors_for_actions_are_closed_with_the_actions() {
    let _exclusive = exclusive_test();
    let test_dir = TestDir::new(Place::Striped);
    let mut actions = Actions::new();
    // SAFETY: nul-terminated strings; initialized actions.
    unsafe {
        libc::posix_spawn_file_actions_addopen(
            actions.as_ptr(),
            7,
            test_dir.c("f").as_ptr(),
            libc::O_RDWR | libc::O_CREAT,
            0o600,
        );
        libc::posix_spawn_file_actions_addchdir_np(actions.as_ptr(), test_dir.c(".").as_ptr());
    }
    let at = actions.as_ptr().addr();
    let opened: Vec<c_int> = all()
        .iter()
        .filter_map(|(known, record)| match record {
            SpawnRecord::Opened(descriptor) if *known == at => Some(*descriptor),
            _ => None,
        })
        .collect();
    assert_eq!((opened.len(), actions.records()), (2, 3));
    assert!(opened.iter().all(|descriptor| classify::is_recorded(*descriptor)));
    // In the child no other thread takes the numbers. Both drop the actions.
    let closed = in_child(|| {
        drop(actions);
        opened.iter().all(|descriptor| !classify::is_recorded(*descriptor)).to_string()
    });
    assert_eq!(closed, "true");
    assert!(!all().iter().any(|(known, _)| *known == at));
}

#[test]
fn the_last_directory_of_the_actions_is_where_relative_paths_and_the_program_start() {
    let _exclusive = exclusive_test();
    let test_dir = TestDir::new(Place::Local);
    fs::create_dir(test_dir.path("d")).unwrap();
    let inside = File::open(test_dir.path("d")).unwrap();
    let mut actions = Actions::new();
    let text = |path: &CStr, actions: &mut Actions| {
        // SAFETY: a nul-terminated string.
        let joined = unsafe { spawn_actions::relative_to_start(actions.as_ptr(), path.as_ptr()) };
        joined.map(|joined| test_dir.without_root(joined.to_str().unwrap()))
    };
    assert_eq!((start_directory(actions.as_ptr()), text(c"f", &mut actions)), (None, None));
    // SAFETY: nul-terminated strings; initialized actions.
    unsafe {
        libc::posix_spawn_file_actions_addchdir_np(actions.as_ptr(), c"/usr".as_ptr());
        assert_eq!(start_directory(actions.as_ptr()).as_deref(), Some(&b"//usr"[..]));
        libc::posix_spawn_file_actions_addchdir_np(actions.as_ptr(), c"bin".as_ptr());
        assert_eq!(start_directory(actions.as_ptr()).as_deref(), Some(&b"//usr/bin"[..]));
        posix_spawn_file_actions_addfchdir_np(actions.as_ptr(), number(&inside));
    }
    assert_eq!(text(c"f", &mut actions).as_deref(), Some("./d/f"));
    assert_eq!((text(c"/f", &mut actions), text(c"", &mut actions)), (None, None));
    let mut others = Actions::new();
    assert_eq!(start_directory(others.as_ptr()), None, "each start has its own actions");
}

#[test]
fn a_program_that_is_started_in_the_pool_is_told_where() {
    let (_exclusive, _children) = (exclusive_test(), with_children());
    let (test_dir, host) = (TestDir::new(Place::Local), TestDir::new(Place::Host));
    let mut actions = Actions::new();
    // SAFETY: nul-terminated strings; initialized actions.
    unsafe {
        libc::posix_spawn_file_actions_addopen(
            actions.as_ptr(),
            1,
            host.c("out").as_ptr(),
            libc::O_WRONLY | libc::O_CREAT,
            0o600,
        );
        libc::posix_spawn_file_actions_addchdir_np(actions.as_ptr(), test_dir.c(".").as_ptr());
    }
    assert!(shell(&mut actions, c"echo \"$TIDEMILL_CWD\"").unwrap().success());
    let output = String::from_utf8(host.bytes("out")).unwrap();
    assert_eq!(test_dir.without_root(output.trim_end()), ".");
}

#[test]
fn an_exec_that_fails_says_why_and_leaves_the_program_running() {
    same_everywhere(|test_dir| {
        fs::write(test_dir.path("plain"), "text").unwrap();
        fs::write(test_dir.path("bad"), "no program").unwrap();
        fs::set_permissions(test_dir.path("bad"), fs::Permissions::from_mode(0o755)).unwrap();
        let argv = [c"name".as_ptr(), null()];
        ["plain", "bad", "missing", ".", "plain/x"].map(|name| {
            // SAFETY: nul-terminated strings, and lists of them.
            answer(unsafe { libc::execve(test_dir.c(name).as_ptr(), argv.as_ptr(), argv[1..].as_ptr()) })
        })
    });
}

#[test]
fn execveat_checks_its_flags_and_follows_no_symlink_that_it_must_not() {
    let test_dir = TestDir::new(Place::Local);
    symlink("/bin/true", test_dir.path("s")).unwrap();
    let directory = File::open(test_dir.root()).unwrap();
    let argv = [c"name".as_ptr(), null()];
    for (name, flags, errno) in [
        (c"s", 1 << 30, Errno::INVAL),
        (c"s", libc::AT_SYMLINK_NOFOLLOW, Errno::LOOP),
        (c"missing", 0, Errno::NOENT),
        (c"", 0, Errno::NOENT),
        (c"", libc::AT_EMPTY_PATH, Errno::ACCESS),
    ] {
        // SAFETY: nul-terminated strings, and lists of them.
        let ended =
            answer(unsafe { execveat(number(&directory), name.as_ptr(), argv.as_ptr(), argv[1..].as_ptr(), flags) });
        assert_eq!(ended, Err(errno), "{name:?} {flags:#x}");
    }
}

unsafe extern "C" {
    fn execl(path: *const c_char, word: *const c_char, ...) -> c_int;
    fn execle(path: *const c_char, word: *const c_char, ...) -> c_int;
    fn execlp(program: *const c_char, word: *const c_char, ...) -> c_int;
}

#[test]
fn every_function_of_the_family_of_exec_passes_arguments_and_environment() {
    let (_exclusive, _children) = (exclusive_test(), with_children());
    let test_dir = TestDir::new(Place::Local);
    fs::copy("/bin/sh", test_dir.path("sh")).unwrap();
    let (path, script) = (test_dir.c("sh"), c"echo $0 $1 $2 $3 $4 $5 $6 $7 $WORD");
    let environment = [c"WORD=given".as_ptr(), null()];
    let list = [c"sh", c"-c", script, c"0", c"1", c"2", c"3", c"4", c"5", c"6", c"7"].map(CStr::as_ptr);
    let argv: Vec<_> = list.into_iter().chain([null()]).collect();
    for (way, word) in
        [("execl", ""), ("execle", " given"), ("execlp", ""), ("execvpe", " given"), ("fexecve", " given")]
    {
        let (mut reads, writes) = std::io::pipe().unwrap();
        // SAFETY: a child that only starts a program; null-terminated lists of strings.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&writes), 1);
                let (path, none) = (path.as_ptr(), null::<c_char>());
                let [sh, option, text, rest @ ..] = list;
                let [zero, one, two, three, four, five, six, seven] = rest;
                match way {
                    "execl" => execl(path, sh, option, text, zero, one, two, three, four, five, six, seven, none),
                    "execle" => execle(
                        path,
                        sh,
                        option,
                        text,
                        zero,
                        one,
                        two,
                        three,
                        four,
                        five,
                        six,
                        seven,
                        none,
                        environment.as_ptr(),
                    ),
                    "execlp" => execlp(path, sh, option, text, zero, one, two, three, four, five, six, seven, none),
                    "execvpe" => execvpe(path, argv.as_ptr(), environment.as_ptr()),
                    _ => fexecve(libc::open(path, libc::O_RDONLY), argv.as_ptr(), environment.as_ptr()),
                };
                libc::_exit(1);
            }
            drop(writes);
            let said = std::io::read_to_string(&mut reads).unwrap();
            assert_eq!(said, format!("0 1 2 3 4 5 6 7{word}\n"), "{way}");
            assert_eq!(libc::waitpid(child, null_mut(), 0), child);
        }
    }
}

#[test]
fn a_vfork_child_does_not_change_its_parent() {
    let _children = with_children();
    let test_dir = TestDir::new(Place::Striped);
    let file = test_dir.file("f", b"bytes");
    // SAFETY: a child that closes a descriptor and ends.
    unsafe {
        let child = vfork();
        if child == 0 {
            libc::close(number(&file));
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, null_mut(), 0), child);
    }
    assert_eq!(kind_and_bytes(&file), (Some(classify::FdKind::Remote), Ok(5)));
}

/// Kind of a descriptor, and length of its file.
fn kind_and_bytes(file: &File) -> (Option<classify::FdKind>, Result<u64, Errno>) {
    (classify::kind(number(file)), why(file.metadata()).map(|found| found.len()))
}

#[test]
fn a_child_has_its_parents_files_and_makes_its_own() {
    same_everywhere(|test_dir| {
        let file = test_dir.file("f", b"0123456789");
        let output = in_child(|| {
            let read = why(std::os::unix::fs::FileExt::read_at(&file, &mut [0; 4], 2));
            let made = why(fs::write(test_dir.path("g"), "of the child"));
            let again = in_child(|| format!("{:?}", why(fs::write(test_dir.path("h"), "of its child"))));
            format!("{read:?} {made:?} {again}")
        });
        (output, test_dir.bytes("g"), test_dir.bytes("h"))
    });
}

#[test]
fn many_children_of_many_threads_use_the_pool_at_once() {
    let test_dir = TestDir::new(Place::Striped);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let test_dir = &test_dir;
            scope.spawn(move || {
                for child in 0..3 {
                    let name = format!("{thread}-{child}");
                    let output = in_child(|| format!("{:?}", why(fs::write(test_dir.path(&name), &name))));
                    assert_eq!((output.as_str(), test_dir.bytes(&name)), ("Ok(())", name.into_bytes()));
                }
            });
        }
    });
}

#[test]
fn a_program_of_the_standard_library_starts_in_a_directory_of_the_pool() {
    let (_exclusive, _children) = (exclusive_test(), with_children());
    let test_dir = TestDir::new(Place::Local);
    let output = Command::new("sh")
        .args(["-c", "echo \"$TIDEMILL_CWD\""])
        .current_dir(test_dir.root())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().trim_end().ends_with(test_dir.root().to_str().unwrap()));
    let missing = Command::new("true").current_dir(test_dir.path("missing")).output();
    assert_eq!(why(missing).map(drop), Err(Errno::NOENT));
}

#[test]
fn a_key_is_of_the_file_and_of_the_project() {
    let test_dir = TestDir::new(Place::Local);
    test_dir.file("f", b"");
    test_dir.file("g", b"");
    // SAFETY: a nul-terminated string.
    let key = |name: &str, project| unsafe { ftok(test_dir.c(name).as_ptr(), project) };
    assert_eq!(key("f", 1), key("f", 0x101), "the low byte of the project counts");
    assert!(key("f", 1) != key("f", 2) && key("f", 1) != key("g", 1) && key("f", 1) != -1);
    assert_eq!((key("missing", 1), errno()), (-1, Some(Errno::NOENT)));
}

#[test]
fn calls_that_the_kernel_could_not_execute_are_refused() {
    let test_dir = TestDir::new(Place::Striped);
    test_dir.file("f", b"");
    let path = test_dir.c("f");
    // SAFETY: nul-terminated strings; a queue of this test.
    unsafe {
        let queue = libc::inotify_init1(libc::IN_CLOEXEC);
        assert_eq!(answer(inotify_add_watch(queue, path.as_ptr(), libc::IN_MODIFY)), Err(Errno::OPNOTSUPP));
        assert_eq!(
            answer(inotify_add_watch(queue, test_dir.c("missing").as_ptr(), libc::IN_MODIFY)),
            Err(Errno::NOENT)
        );
        libc::close(queue);
        assert_eq!(
            answer(name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), null_mut(), null_mut(), 0)),
            Err(Errno::OPNOTSUPP)
        );
        assert_eq!([answer(swapon(path.as_ptr(), 0)), answer(acct(path.as_ptr()))], [Err(Errno::INVAL); 2]);
    }
}

#[test]
fn a_library_of_the_pool_is_loaded_once_under_its_own_path() {
    let test_dir = TestDir::new(Place::Striped);
    let Some(library) = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap())
    else {
        return;
    };
    fs::copy(library, test_dir.path("libtide.so")).unwrap();
    let path = test_dir.c("libtide.so");
    // SAFETY: nul-terminated strings; a library whose initialization does nothing.
    unsafe {
        let loaded = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!loaded.is_null());
        let cosine = libc::dlsym(loaded, c"cos".as_ptr());
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed().assume_init();
        assert_ne!(libc::dladdr(cosine, &raw mut found), 0);
        assert_eq!(CStr::from_ptr(found.dli_fname), path.as_c_str());
        assert_eq!(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), loaded);
        assert_eq!(
            (libc::dlopen(test_dir.c("missing").as_ptr(), libc::RTLD_NOW), errno()),
            (null_mut(), Some(Errno::NOENT))
        );
    }
}
