//! The specification of a run from which the tests begin.

use run::{CheckedWorkflow, RequestedOptions, RunSpec, StorageRequest};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// A staged run of two slots in 32 MiB, with data and outputs in the directory.
pub fn spec(flow: CheckedWorkflow, run_id: String, directory: &Path) -> RunSpec {
    RunSpec {
        flow: flow.into(),
        run_id,
        data_dir: directory.to_path_buf(),
        out_dir: directory.join("out"),
        report_dir: None,
        warnings: Vec::new(),
        requested: RequestedOptions::default(),
        memory: Some(base::ByteSize::mib(32)),
        copies: None,
        slots: 2,
        storage: StorageRequest::Staging,
        passthrough: true,
        keep: false,
        keep_failed: None,
        exports: BTreeSet::new(),
        stage_in: false,
        fail_fast: false,
        policy: run::PolicyKind::default(),
        stragglers: false,
        space_wait: Duration::from_millis(200),
        metrics: None,
        cluster: None,
        elastic: None,
        source: None,
        grace: Duration::from_millis(200),
        resume: None,
        reuse: None,
    }
}

/// A run id that no other test uses: `prefix`, and the name of the test's directory.
pub fn run_id(prefix: &str, directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().replace('.', "");
    format!("{prefix}-{name}")
}
