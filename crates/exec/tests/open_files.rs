//! The limit of open files is raised for this process, which is the binary's own; its tools get the
//! previous limit.

use exec::{Launch, raise_open_files, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn tools_keep_the_limit_that_we_leave_behind() {
    let before = Rlimit { current: Some(123), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, before).expect("a lower limit is always granted");
    raise_open_files().expect("raised");
    assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    let mut launch = Launch::new("/bin/sh", "/");
    launch.args = vec!["-c".into(), "ulimit -n".into()];
    assert_eq!(run(launch, CancellationToken::new()).await.stdout.to_string(), "123\n");
}
