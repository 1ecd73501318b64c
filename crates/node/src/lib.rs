//! Layer 3: a node: partitions and an engine behind requests.
#![forbid(unsafe_code)]

mod settings;

pub use settings::Settings;

use std::sync::Arc;
use store::Engine;

/// A node: the partitions it holds and the engine with their bytes.
#[derive(Debug)]
pub struct Node {
    _engine: Arc<dyn Engine>,
    _settings: Settings,
}

/// A node in this process. A client connects to it with `client::Client::embedded`.
pub fn embedded(settings: Settings, engine: Arc<dyn Engine>) -> Arc<Node> {
    Arc::new(Node { _engine: engine, _settings: settings })
}
