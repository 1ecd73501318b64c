//! Metrics of a node, for a recorder of the crate `metrics`. `docs/METRICS.md` says what each
//! means.
//!
//! Requests are recorded when they are answered. All other values are read only when somebody is
//! about to fetch the metrics ([`Node::refresh_metrics`]), so they cost nothing between.
//!
//! A node records nothing until [`Node::record_metrics`] is called.

use crate::{Node, migration::MoveCounts};
use metrics::{Counter, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use wire::{
    Answer, Body, Failure, RequestKind, SpaceUsage, WorkerStatus,
    codec::{answer_bulk_bytes, body_bulk},
};

/// A recorder that the threads of a node share.
pub type MetricsRecorder = Arc<dyn Recorder + Send + Sync>;

/// Origin of the metrics; the exporter does not use it.
const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

const REQUEST_SECONDS: &str = "tidemill_request_seconds";
const REFUSED: &str = "tidemill_requests_refused_total";
const RECEIVED: &str = "tidemill_received_bytes_total";
const SENT: &str = "tidemill_sent_bytes_total";
const MOVE_PAUSE_SECONDS: &str = "tidemill_move_pause_seconds";

/// Metrics of the moves of partitions, by the label `direction`.
const MOVE_VALUES: [MoveValue; 4] = [
    MoveValue {
        name: "tidemill_moves_begun_total",
        unit: Unit::Count,
        what: "Moves of partitions that have begun",
        read: |counts| counts.begun,
    },
    MoveValue {
        name: "tidemill_moves_ended_total",
        unit: Unit::Count,
        what: "Moves of partitions that are done: the target serves",
        read: |counts| counts.ended,
    },
    MoveValue {
        name: "tidemill_moves_given_up_total",
        unit: Unit::Count,
        what: "Moves of partitions that were given up: the source serves on",
        read: |counts| counts.given_up,
    },
    MoveValue {
        name: "tidemill_moved_bytes_total",
        unit: Unit::Bytes,
        what: "Bytes of files that were moved with partitions",
        read: |counts| counts.bytes,
    },
];

/// A value that is read from the counts of moves in each direction.
struct MoveValue {
    name: &'static str,
    unit: Unit,
    what: &'static str,
    read: fn(&MoveCounts) -> u64,
}

/// Metrics of the workers of a node, by the label `worker`.
const WORKER_VALUES: [WorkerValue; 4] = [
    WorkerValue {
        name: "tidemill_background_turns_total",
        course: Course::Counter,
        what: "Turns of work beside requests that have ended",
        read: |status| status.turns,
    },
    WorkerValue {
        name: "tidemill_background_done_total",
        course: Course::Counter,
        what: "Things that work beside requests has done: files, leases, sessions",
        read: |status| status.done,
    },
    WorkerValue {
        name: "tidemill_background_failed_total",
        course: Course::Counter,
        what: "Turns of work beside requests that have failed",
        read: |status| status.failed,
    },
    WorkerValue {
        name: "tidemill_background_backlog",
        course: Course::Gauge,
        what: "Things that wait for work beside requests",
        read: |status| status.backlog,
    },
];

/// A value that is read from the status of each worker.
struct WorkerValue {
    name: &'static str,
    course: Course,
    what: &'static str,
    read: fn(&WorkerStatus) -> u64,
}

/// Metrics of one node.
pub struct NodeMetrics {
    recorder: MetricsRecorder,
    /// Metrics of each kind of request, from its first request on.
    kinds: [OnceLock<KindMetrics>; RequestKind::COUNT],
    received: Counter,
    sent: Counter,
    move_pause: Histogram,
}

/// Metrics of one kind of request.
struct KindMetrics {
    seconds: Histogram,
    refused: Counter,
}

/// A request that is being answered.
#[derive(Clone, Copy, Debug)]
pub struct RequestTimer {
    kind: RequestKind,
    started: Instant,
}

/// The ways in which a value changes.
enum Course {
    /// Rises and falls.
    Gauge,
    /// Only rises.
    Counter,
}

/// A value that is read when the metrics are fetched.
struct ReadValue {
    name: &'static str,
    course: Course,
    unit: Unit,
    what: &'static str,
    read: fn(&Node, &SpaceUsage) -> u64,
}

/// The values that are read when the metrics are fetched.
const READ_VALUES: [ReadValue; 14] = [
    ReadValue {
        name: "tidemill_space_used_bytes",
        course: Course::Gauge,
        unit: Unit::Bytes,
        what: "Used memory of the node: blocks, inline bytes and metadata",
        read: |_, usage| usage.used,
    },
    ReadValue {
        name: "tidemill_space_capacity_bytes",
        course: Course::Gauge,
        unit: Unit::Bytes,
        what: "Capacity of the node",
        read: |_, usage| usage.capacity,
    },
    ReadValue {
        name: "tidemill_space_waiting",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Requests that wait for space now",
        read: |_, usage| usage.waiting,
    },
    ReadValue {
        name: "tidemill_space_waits_total",
        course: Course::Counter,
        unit: Unit::Count,
        what: "Requests that have waited for space",
        read: |_, usage| usage.waited,
    },
    ReadValue {
        name: "tidemill_space_refused_total",
        course: Course::Counter,
        unit: Unit::Count,
        what: "Requests that were refused because no space was freed in time",
        read: |_, usage| usage.refused,
    },
    ReadValue {
        name: "tidemill_files",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Inodes of the node's partitions: files, directories, links",
        read: |_, usage| usage.files,
    },
    ReadValue {
        name: "tidemill_stripes",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Stripes of the node that hold bytes",
        read: |_, usage| usage.stripes,
    },
    ReadValue {
        name: "tidemill_partitions",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Partitions that the node holds",
        read: |node, _| node.partitions.count_served() as u64,
    },
    ReadValue {
        name: "tidemill_departing_partitions",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Partitions that are moving away from the node",
        read: |node, _| node.departing().len() as u64,
    },
    ReadValue {
        name: "tidemill_arriving_partitions",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Partitions that are moving to the node",
        read: |node, _| node.arriving() as u64,
    },
    ReadValue {
        name: "tidemill_pins",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Files, opens and locks of the node's host that need it",
        read: |node, _| node.pins().into(),
    },
    ReadValue {
        name: "tidemill_manager_leads",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "1 if the node leads the managers of the pool",
        read: |node, _| node.manager_state().leads.into(),
    },
    ReadValue {
        name: "tidemill_manager_entries",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Entries of the managers' log that the node has applied",
        read: |node, _| node.manager_state().entries,
    },
    ReadValue {
        name: "tidemill_sessions",
        course: Course::Gauge,
        unit: Unit::Count,
        what: "Sessions of clients that may have something open or locked at the node, or have changed something there",
        read: |node, _| node.session_index.len() as u64,
    },
];

impl NodeMetrics {
    fn new(recorder: MetricsRecorder) -> Self {
        let seconds = "Time from the arrival of a request at the node to its answer, with its waits";
        recorder.describe_histogram(REQUEST_SECONDS.into(), Some(Unit::Seconds), seconds.into());
        let counters = [
            (REFUSED, Unit::Count, "Requests that were answered with a refusal, such as that a name does not exist"),
            (RECEIVED, Unit::Bytes, "Bytes of files in requests"),
            (SENT, Unit::Bytes, "Bytes of files in answers"),
        ];
        for (name, unit, what) in counters {
            recorder.describe_counter(name.into(), Some(unit), what.into());
        }
        let paused = "Time for which requests for a partition waited while it was handed over to another node";
        recorder.describe_histogram(MOVE_PAUSE_SECONDS.into(), Some(Unit::Seconds), paused.into());
        for MoveValue { name, unit, what, .. } in MOVE_VALUES {
            recorder.describe_counter(name.into(), Some(unit), what.into());
        }
        let of_node = READ_VALUES.iter().map(|value| (value.name, &value.course, value.unit, value.what));
        let of_workers = WORKER_VALUES.iter().map(|value| (value.name, &value.course, Unit::Count, value.what));
        for (name, course, unit, what) in of_node.chain(of_workers) {
            match course {
                Course::Gauge => recorder.describe_gauge(name.into(), Some(unit), what.into()),
                Course::Counter => recorder.describe_counter(name.into(), Some(unit), what.into()),
            }
        }
        let counter = |name| recorder.register_counter(&Key::from_static_name(name), &METADATA);
        let (received, sent) = (counter(RECEIVED), counter(SENT));
        let move_pause = recorder.register_histogram(&Key::from_static_name(MOVE_PAUSE_SECONDS), &METADATA);
        Self { recorder, kinds: [const { OnceLock::new() }; RequestKind::COUNT], received, sent, move_pause }
    }

    /// Begins to time a request.
    pub fn on_request(&self, body: &Body) -> RequestTimer {
        if let Some(bytes) = body_bulk(body) {
            self.received.increment(bytes.len() as u64);
        }
        RequestTimer { kind: body.kind(), started: Instant::now() }
    }

    /// Records the answer of a request.
    pub fn on_answer(&self, RequestTimer { kind, started }: RequestTimer, answer: &Result<Answer, Failure>) {
        let metrics = self.kinds[kind.index()].get_or_init(|| self.register_kind(kind));
        metrics.seconds.record(started.elapsed());
        match answer {
            Ok(answer) => match answer_bulk_bytes(answer) {
                0 => {}
                bytes => self.sent.increment(bytes as u64),
            },
            Err(_) => metrics.refused.increment(1),
        }
    }

    fn register_kind(&self, kind: RequestKind) -> KindMetrics {
        let key = |name: &'static str| Key::from_parts(name, vec![Label::from_static_parts("kind", kind.name())]);
        KindMetrics {
            seconds: self.recorder.register_histogram(&key(REQUEST_SECONDS), &METADATA),
            refused: self.recorder.register_counter(&key(REFUSED), &METADATA),
        }
    }

    fn refresh(&self, node: &Node) {
        let usage = node.usage();
        for ReadValue { name, course, read, .. } in &READ_VALUES {
            self.set(&Key::from_static_name(name), course, read(node, &usage));
        }
        for (direction, counters) in [("out", &node.moves.outgoing), ("in", &node.moves.incoming)] {
            let counts = counters.counts();
            for MoveValue { name, read, .. } in MOVE_VALUES {
                let label = Label::from_static_parts("direction", direction);
                self.set(&Key::from_parts(name, vec![label]), &Course::Counter, read(&counts));
            }
        }
        for status in node.workers() {
            for WorkerValue { name, course, read, .. } in &WORKER_VALUES {
                let label = Label::new("worker", status.name.clone());
                self.set(&Key::from_parts(*name, vec![label]), course, read(&status));
            }
        }
    }

    fn set(&self, key: &Key, course: &Course, value: u64) {
        match course {
            Course::Gauge => self.recorder.register_gauge(key, &METADATA).set(as_f64(value)),
            Course::Counter => self.recorder.register_counter(key, &METADATA).absolute(value),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; above 2^53 the last digits do not matter")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

impl Node {
    /// Records metrics from now on. Only the first recorder counts.
    pub fn record_metrics(&self, recorder: MetricsRecorder) {
        self.metrics.get_or_init(|| Box::new(NodeMetrics::new(recorder)));
    }

    /// Updates the values that are not recorded as they change; to be called before the metrics
    /// are fetched.
    pub fn refresh_metrics(&self) {
        if let Some(metrics) = self.metrics.get() {
            metrics.refresh(self);
        }
    }
}

impl Node {
    /// Records for how long requests for a partition waited while it was handed over.
    pub(crate) fn record_move_pause(&self, paused: Duration) {
        if let Some(metrics) = self.metrics.get() {
            metrics.move_pause.record(paused);
        }
    }
}

impl fmt::Debug for NodeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMetrics").finish_non_exhaustive()
    }
}
