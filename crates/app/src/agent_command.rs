//! `tidemill agent`: runs tasks on one host of a cluster.

use crate::signals;
use base::Problem;
use run::EmergencyCleanup;
use tokio_util::sync::CancellationToken;

/// Becomes an agent; the run that needs it is at the other end of standard input and output.
pub fn agent() -> Result<u8, Vec<Problem>> {
    let cannot = |error: std::io::Error| vec![Problem::new(format!("cannot start: {error}"))];
    let (cancel, emergency_cleanup) = (CancellationToken::new(), EmergencyCleanup::default());
    let (token, resort) = (cancel.clone(), emergency_cleanup.clone());
    // An agent must survive the terminal or connection of the worker that started it.
    let _ = rustix::process::setsid();
    let received = signals::watch(move || token.cancel(), move || resort.act()).map_err(cannot)?;
    if let Err(error) = exec::protect() {
        tracing::warn!(%error, "if this agent is killed with SIGKILL, its tools live on");
    }
    run::run_agent(&emergency_cleanup, &cancel).map_err(|problem| vec![problem])?;
    Ok(received.exit_code().unwrap_or(0))
}
