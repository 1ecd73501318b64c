//! Memory usage of a tool is reported or unknown, but never mixed with our own. In a binary of its
//! own, because that is the memory of the whole process.

use exec::{Launch, ProcessReport, run};
use tokio_util::sync::CancellationToken;

async fn shell(script: &str) -> ProcessReport {
    let mut launch = Launch::new("/bin/sh", "/");
    launch.args = vec!["-c".into(), script.into()];
    launch.env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    run(launch, CancellationToken::new()).await
}

#[tokio::test]
async fn memory_of_a_tool_is_not_mixed_with_ours() {
    let ours = vec![1_u8; 64 << 20];
    let small = shell("true").await;
    assert_eq!(small.usage.rss_max, None, "less than our {} bytes cannot be told", ours.len());
    let large = shell("head -c 150000000 /dev/zero | tail -c 140000000 > /dev/null").await;
    assert!(large.usage.rss_max.unwrap() > 140_000_000, "{large:?}");
    assert!(large.usage.memory_peak.is_some(), "{large:?}");
}
