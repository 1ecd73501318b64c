//! Checks before a run: programs are installed, inputs exist, output directories are writable.

use crate::checked_workflow::CheckedWorkflow;
use crate::layout;
use base::Problem;
use flow::{DataId, ToolId};
use rustix::fs::{Access, OFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Upper bound of the problems of one kind that are listed.
const LISTED_MAX: usize = 10;

/// Finds the programs of the tools that the workflow calls. Of a workflow that grows those that are
/// not installed are left out, and are no problem before a task calls them.
pub fn programs(flow: &CheckedWorkflow) -> Result<HashMap<ToolId, PathBuf>, Vec<Problem>> {
    let (found, problems) = search_programs(flow);
    if problems.is_empty() || flow.grows() { Ok(found) } else { Err(problems) }
}

fn search_programs(flow: &CheckedWorkflow) -> (HashMap<ToolId, PathBuf>, Vec<Problem>) {
    let (mut found, mut problems) = (HashMap::new(), Vec::new());
    for id in flow.called_tools() {
        match find_program(flow, id) {
            Ok(program) => drop(found.insert(id, program)),
            Err(problem) => problems.push(problem),
        }
    }
    (found, problems)
}

/// Finds the program of a tool.
pub fn find_program(flow: &CheckedWorkflow, id: ToolId) -> Result<PathBuf, Problem> {
    let tool = &flow.workflow().tools[id.0 as usize];
    let here = Path::new(&tool.here);
    let dirs = exec::search_dirs(&tool.path, here, std::env::var_os("PATH").as_deref());
    exec::which(OsStr::new(&flow.program(id, &tool.here)), &dirs, here).map_err(|why| {
        Problem::new(format!("tool {}: {why}", tool.name))
            .hint("install it, or name its directory in the tool's `path`")
    })
}

/// Programs of the tools that this host has.
pub fn programs_found(flow: &CheckedWorkflow) -> HashMap<ToolId, PathBuf> {
    search_programs(flow).0
}

/// Problems of inputs that are not readable files; after ten, one line stands for the others.
pub fn inputs(flow: &CheckedWorkflow, data_dir: &Path) -> Vec<Problem> {
    let workflow = flow.workflow();
    let mut problems = Vec::new();
    for id in (0..workflow.data_count()).map(DataId) {
        let Some(path) = layout::host_path(flow, id) else { continue };
        let path = data_dir.join(path);
        let Err(error) = open_file(&path) else { continue };
        if problems.len() == LISTED_MAX {
            problems.push(Problem::new("and more inputs that cannot be read"));
            break;
        }
        problems.push(Problem::new(format!("input {}: {}: {error}", workflow.data_name(id), path.display())));
    }
    problems
}

/// Length of an input's file; 0 if there is none.
pub fn bytes_of_input(flow: &CheckedWorkflow, data_dir: &Path, data: DataId) -> u64 {
    let path = layout::host_path(flow, data).map(|path| data_dir.join(path));
    path.and_then(|path| std::fs::metadata(path).ok()).map_or(0, |metadata| metadata.len())
}

/// Opens a regular file; anything else is an error. Never blocks, not even on a FIFO without a
/// writer.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// The problem of a directory that cannot be created or written to. `flag` is the user's option for
/// it.
pub fn check_directory(flag: &str, directory: &Path) -> Option<Problem> {
    let describe = |why: String| Some(Problem::new(format!("{flag} {}: {why}", directory.display())));
    let Ok(absolute) = std::path::absolute(directory) else {
        return describe("the current directory no longer exists".into());
    };
    let existing = absolute.ancestors().find(|above| above.exists())?;
    if !existing.is_dir() {
        return describe(format!("{} is not a directory", existing.display()));
    }
    match rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(Into::into)
        .and_then(|()| probe(existing))
    {
        Ok(()) => None,
        Err(error) => describe(format!("{} cannot be written to: {error}", existing.display())),
    }
}

/// Creates and removes a temporary file: permissions alone do not show that a disk is full, that a
/// file system is virtual, or that a quota is used up.
fn probe(directory: &Path) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if rustix::fs::open(directory, flags, rustix::fs::Mode::RUSR).is_ok() {
        return Ok(());
    }
    // File systems report missing `O_TMPFILE` support by different errors, so every error is taken
    // for it.
    let path = directory.join(format!(".tidemill-{}.probe", std::process::id()));
    std::fs::create_dir(&path)?;
    std::fs::remove_dir(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let root = tempfile::tempdir().expect("made");
        let fifo = root.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
        for path in [fifo, root.path().to_path_buf(), "/dev/zero".into()] {
            assert_eq!(open_file(&path).expect_err("refused").to_string(), "not a regular file");
        }
    }

    #[test]
    fn a_directory_that_can_be_made_is_fine_and_one_below_a_file_is_not() {
        let root = tempfile::tempdir().expect("made");
        std::fs::write(root.path().join("file"), "").expect("written");
        assert_eq!(check_directory("--out", &root.path().join("a/b")), None);
        let problem = check_directory("--report", &root.path().join("file/a")).expect("refused").to_string();
        assert!(problem.contains("--report") && problem.contains("file is not a directory"), "{problem}");
        let problem = check_directory("--report", Path::new("/proc/tidemill/report")).expect("refused").to_string();
        assert!(problem.contains("/proc cannot be written to"), "{problem}");
        assert_eq!(std::fs::read_dir(root.path()).expect("is there").count(), 1, "nothing is left of the look");
    }
}
