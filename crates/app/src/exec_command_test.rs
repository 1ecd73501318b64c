//! Tests of `exec`: where a program is found, and which pools it cannot see.

use super::*;
use crate::args::PoolArg;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Makes an executable script with this first line.
fn script(directory: &Path, first_line: &str) -> PathBuf {
    let path = directory.join("script");
    fs::write(&path, format!("{first_line}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_of_the_pool_is_known_by_its_path_or_its_interpreters() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = Path::new("/tidemill");
    let in_pool = |program: &OsStr| matches!(locate(program, prefix), ProgramLocation::Pool(found) if found == program);
    assert!(in_pool("/tidemill/bin/tool".as_ref()));
    assert!(!in_pool("/tidemills/bin/tool".as_ref()));
    assert!(in_pool(script(directory.path(), "#!/tidemill/bin/python -u").as_os_str()));
    assert!(!in_pool(script(directory.path(), "#!/bin/sh").as_os_str()));
}

#[test]
fn a_program_of_the_host_is_searched_in_the_path_and_reported_if_it_is_missing() {
    let prefix = Path::new("/tidemill");
    let found = |program: &str| match locate(program.as_ref(), prefix) {
        ProgramLocation::Host(found) => found,
        ProgramLocation::Pool(path) => panic!("{} is of the pool", path.display()),
    };
    let (path, _) = found("sh").unwrap();
    assert!(path.is_absolute() && path.ends_with("sh"), "{}", path.display());
    let missing = found("no-such-program-of-tidemill").unwrap_err();
    assert!(missing.to_string().contains("no-such-program-of-tidemill"), "{missing}");
    assert!(matches!(found("/etc/passwd"), Err(ProgramNotFound::NotExecutable { .. })));
    assert!(matches!(found("/etc"), Err(ProgramNotFound::IsDirectory { .. })));
}

#[test]
fn a_prefix_above_the_pool_file_is_refused() {
    let args = |pool: &str| ExecArgs {
        pool_arg: PoolArg { pool: Some(pool.into()) },
        prefix: PathBuf::new(),
        strict: false,
        command: vec!["true".into()],
    };
    let refused = connected_pool_file(&args("/run/tidemill/pool"), Path::new("/run")).unwrap_err();
    assert_eq!(refused.message, "`/run` cannot be the prefix of a pool whose file is /run/tidemill/pool");
    let missing = connected_pool_file(&args("/none/such/pool"), Path::new("/tidemill")).unwrap_err();
    assert!(missing.message.contains("/none/such/pool"), "{missing}");
}
