//! Metrics of a node over HTTP: `GET /metrics` answers in the text format of Prometheus.
//!
//! The server has a runtime of its own, so that a node that is busy with requests still answers,
//! and no thread that serves requests renders the page. It has no authentication: the page has
//! names of operations and sums, but no names or bytes of files.

use base::Problem;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use node::{BackgroundWorker, Node, WorkerKind, WorkerRecord, run_worker};
use std::{
    convert::Infallible,
    future::ready,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener as AsyncListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use wire::Outcome;

/// Path of the page.
const PATH: &str = "/metrics";
/// Content type of the text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Upper bounds of the buckets of times, seconds. Most requests take a node a few microseconds;
/// those that wait for space take up to 10 s unless set otherwise.
const SECONDS_BUCKETS: [f64; 14] = [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0];
/// Upper bounds of the buckets of the pause of a partition that moves, seconds: a few milliseconds
/// usually, and at most as long as kernels may withhold an ack, and the managers their word.
const PAUSE_BUCKETS: [f64; 12] = [1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Connections at one time; a scraper needs one.
const CONNECTIONS_MAX: usize = 16;
/// Time limit of a connection, which carries one request.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed, as when the process can open no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval at which recorded times are added to their buckets, so that they take no more memory:
/// 8 bytes for each request until then.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Socket of a metrics server that has not started.
#[derive(Debug)]
pub struct MetricsListener {
    listener: TcpListener,
    /// The address, with the port that the system chose if 0 was asked for.
    pub address: SocketAddr,
}

impl MetricsListener {
    /// Listens at an address.
    pub fn bind(address: SocketAddr) -> Result<Self, Problem> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(Self { address: listener.local_addr()?, listener })
        });
        bound.map_err(|error| {
            Problem::new(format!("metrics cannot be served at {address}: {error}"))
                .hint("give --metrics an address of this host, and a port that no other process uses")
        })
    }
}

/// Server of a node's metrics, until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    /// The runtime; `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl MetricsServer {
    /// Records the metrics of a node from now on, and serves them.
    pub fn start(MetricsListener { listener, address }: MetricsListener, node: &Arc<Node>) -> Result<Self, Problem> {
        let cannot = |error: &dyn std::fmt::Display| {
            Problem::new(format!("metrics cannot be served at {address}: {error}"))
                .hint("see the limits of this process")
        };
        let made = Builder::new_multi_thread().worker_threads(1).thread_name("tidemill-metrics").enable_all().build();
        let runtime = made.map_err(|error| cannot(&error))?;
        let paused = Matcher::Full("tidemill_move_pause_seconds".to_owned());
        let built = PrometheusBuilder::new()
            .set_buckets(&SECONDS_BUCKETS)
            .and_then(|built| built.set_buckets_for_metric(paused, &PAUSE_BUCKETS))
            .map_err(|error| cannot(&error))?;
        let recorder = built.build_recorder();
        let page = MetricsPage { node: node.clone(), recorded: recorder.handle() };
        node.record_metrics(Arc::new(recorder));
        let entered = runtime.enter();
        let listener = AsyncListener::from_std(listener).map_err(|error| cannot(&error))?;
        drop(entered);
        runtime.spawn(run_worker(page.clone()));
        runtime.spawn(accept_loop(listener, page));
        Ok(Self { runtime: Some(runtime) })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // It may be dropped within another runtime, which must not wait for this one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Source of the page.
#[derive(Clone)]
struct MetricsPage {
    node: Arc<Node>,
    recorded: PrometheusHandle,
}

impl MetricsPage {
    fn answer(&self, request: &Request<Incoming>) -> Response<String> {
        let mut response = Response::new(String::new());
        if request.uri().path() != PATH {
            *response.status_mut() = StatusCode::NOT_FOUND;
            *response.body_mut() = format!("only {PATH} is here\n");
        } else if request.method() != Method::GET && request.method() != Method::HEAD {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            response.headers_mut().insert(ALLOW, const { hyper::header::HeaderValue::from_static("GET, HEAD") });
        } else {
            self.node.refresh_metrics();
            *response.body_mut() = self.recorded.render();
            let format = const { hyper::header::HeaderValue::from_static(TEXT_FORMAT) };
            response.headers_mut().insert(CONTENT_TYPE, format);
        }
        response
    }
}

/// Adds up recorded times.
impl BackgroundWorker for MetricsPage {
    fn record(&self) -> &WorkerRecord {
        self.node.worker_record(WorkerKind::Metrics)
    }

    async fn wait_for_work(&self) {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
    }

    async fn work(&self) -> Outcome<u64> {
        self.recorded.run_upkeep();
        Ok(1)
    }
}

async fn accept_loop(listener: AsyncListener, page: MetricsPage) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Nobody closes the semaphore.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve_connection(stream, page.clone(), permit))),
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Answers one request.
async fn serve_connection(stream: TcpStream, page: MetricsPage, _permit: OwnedSemaphorePermit) {
    let service = service_fn(|request| ready(Ok::<_, Infallible>(page.answer(&request))));
    let mut builder = http1::Builder::new();
    let served = builder.timer(TokioTimer::new()).keep_alive(false).serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_WAIT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics broke"),
        Err(_) => tracing::debug!("a connection for metrics sent no request in time"),
    }
}
