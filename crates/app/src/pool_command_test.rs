//! Tests of `pool`: where nodes are started, and how a pool's state is shown.

use super::*;
use crate::args::{Cli, CliCommand};
use clap::Parser;
use pool::LocalEndpoint;
use std::time::Duration;

fn launch_target_of(flags: &str) -> Result<LaunchTarget, Problem> {
    match Cli::try_parse_from(format!("tidemill pool start {flags}").split_whitespace()).unwrap().command {
        CliCommand::Pool(PoolCommand::Start(args)) => launch_target(&args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_start_on_the_named_hosts_or_on_this_machine() {
    let over_ssh = launch_target_of("--hosts a,b --ssh rsh").unwrap();
    assert!(matches!(over_ssh, LaunchTarget::Ssh { hosts, ssh } if hosts == ["a", "b"] && ssh == "rsh"));
    assert!(matches!(launch_target_of("--nodes 3"), Ok(LaunchTarget::Local(3))));
    if std::env::var_os("SLURM_JOB_NUM_NODES").is_none() {
        assert!(matches!(launch_target_of(""), Ok(LaunchTarget::Local(1))));
    }
}

#[test]
fn a_pool_file_is_the_named_one_made_absolute() {
    let pool_arg = |path: &str| PoolArg { pool: Some(path.into()) };
    assert_eq!(file(&pool_arg("/a/pool")).unwrap(), Path::new("/a/pool"));
    assert_eq!(file(&pool_arg("pool")).unwrap(), std::env::current_dir().unwrap().join("pool"));
}

#[test]
fn status_shows_each_node_and_the_sum_of_those_that_answer() {
    let directory = tempfile::tempdir().unwrap();
    let node = pool::embedded_node(ByteSize::mib(64), Duration::ZERO).unwrap();
    let endpoint = LocalEndpoint::open(&node, directory.path()).unwrap();
    let path = endpoint.file().to_owned();
    let file = PoolFile::read(&path).unwrap();
    let up = pool::query_status(&path, &file).unwrap();
    let line = as_line(&up[0]);
    assert!(line.starts_with("node ") && line.contains(", unix:") && line.contains(" of 64 MiB used, "), "{line}");
    let text = summary(&path, &up);
    assert!(text.starts_with(&format!("1 of 1 node of {} up: ", path.display())), "{text}");
    assert!(text.ends_with(" files, 0 slots"), "nothing waits: {text}");
    let json = as_json(&path, &file, &up);
    assert_eq!((&json["up"], &json["memory"], &json["waiting"]), (&json!(1), &json!(64 << 20), &json!(0)));
    let shown = &json["nodes"][0];
    assert_eq!((&shown["state"], &shown["partitions"]), (&json!("up"), &json!(file.partitions)));
    assert_eq!(shown["pid"], json!(std::process::id()));
    assert!(shown.get("why").is_none());

    pool::runtime().unwrap().block_on(endpoint.close());
    let down = pool::query_status(&path, &file).unwrap();
    assert!(as_line(&down[0]).contains(": does not answer: "), "{}", as_line(&down[0]));
    let mixed = [up[0].clone(), down[0].clone()];
    assert!(summary(&path, &mixed).starts_with("1 of 2 nodes of "), "{}", summary(&path, &mixed));
    let json = as_json(&path, &file, &down);
    assert_eq!((&json["up"], &json["memory"], &json["used"]), (&json!(0), &json!(0), &json!(0)));
    assert_eq!(json["nodes"][0]["state"], "down");
    assert!(!json["nodes"][0]["reason"].as_str().unwrap().is_empty());
    assert!(json["nodes"][0].get("used").is_none(), "nobody knows it");
}
