//! Runs on a cluster.
mod agent;
mod agent_service;
pub mod host_inputs;
pub mod messages;

pub use agent::run_agent;
