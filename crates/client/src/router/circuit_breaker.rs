//! The circuit breaker of a node: its outage is remembered, so that not every call must find it
//! out. A state machine without a clock.
//!
//! ```text
//!   answers --a call has used up its tries--> silent: calls are refused at once
//!   silent  --the next probe is due--> one call sends it, and waits a moment
//!   silent  --a probe is answered--> answers
//! ```

use std::time::{Duration, Instant};

/// The pause before the first probe; each later one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause: a node that is back is found within this time.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// State of a node, as far as a client knows: it answers, or it has an outage.
#[derive(Debug, Default)]
pub struct CircuitBreaker(Option<Outage>);

/// The cause and the start of a node's outage.
#[derive(Clone, Debug)]
pub struct Outage {
    since: Instant,
    /// Number of tries of the first call that got no answer.
    pub tries: u32,
    /// The last failure.
    pub why: String,
    /// The time of the next probe.
    probe: Instant,
    pause: Duration,
}

/// How to proceed with a call.
#[derive(Debug)]
pub enum BreakerDecision {
    /// Send it: the node answers.
    Send,
    /// Probe first whether the node answers again.
    Probe,
    /// Refuse it.
    Refuse,
}

impl Outage {
    /// The reason in the refusal of a call.
    pub fn describe(&self, now: Instant) -> String {
        format!("it has not answered for {:.0} s: {}", (now - self.since).as_secs_f64(), self.why)
    }
}

impl CircuitBreaker {
    /// Decides about a call. Each probe is due for one call alone.
    pub fn on_call(&mut self, now: Instant) -> BreakerDecision {
        let Some(outage) = &mut self.0 else { return BreakerDecision::Send };
        if now < outage.probe {
            return BreakerDecision::Refuse;
        }
        outage.pause = (outage.pause * 2).min(PAUSE_MAX);
        outage.probe = now + outage.pause;
        BreakerDecision::Probe
    }

    /// Records that a call has used up its tries, or that a probe has failed; true if the node was
    /// not silent before.
    pub fn on_failure(&mut self, now: Instant, tries: u32, why: String) -> bool {
        if let Some(outage) = &mut self.0 {
            outage.why = why;
            return false;
        }
        self.0 = Some(Outage { since: now, tries, why, probe: now + PAUSE_FIRST, pause: PAUSE_FIRST });
        true
    }

    /// Records an answer; returns how long the node was silent, if it was.
    pub fn on_success(&mut self, now: Instant) -> Option<Duration> {
        self.0.take().map(|outage| now - outage.since)
    }

    /// The outage of the node, if it does not answer.
    pub fn outage(&self) -> Option<&Outage> {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_probed_by_one_call_at_a_time_ever_more_seldom_until_it_answers() {
        let (mut breaker, start) = (CircuitBreaker::default(), Instant::now());
        assert!(matches!(breaker.on_call(start), BreakerDecision::Send));
        assert!(breaker.on_failure(start, 16, "refused".into()), "one line is worth saying");
        assert!(!breaker.on_failure(start, 16, "refused".into()), "and no other");
        let (mut now, mut probes) = (start, Vec::new());
        while now < start + Duration::from_secs(12) {
            if matches!(breaker.on_call(now), BreakerDecision::Probe) {
                probes.push(now - start);
                assert!(matches!(breaker.on_call(now), BreakerDecision::Refuse), "the others do not wait");
                breaker.on_failure(now, 1, "still refused".into());
            }
            now += Duration::from_millis(10);
        }
        let gaps: Vec<u128> = probes.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_millis()).collect();
        assert_eq!(probes[0], PAUSE_FIRST);
        assert_eq!(gaps, [200, 400, 800, 1600, 2000, 2000, 2000, 2000]);
        let outage = breaker.outage().unwrap();
        assert_eq!((outage.tries, outage.describe(now).as_str()), (16, "it has not answered for 12 s: still refused"));
        assert_eq!(breaker.on_success(now), Some(Duration::from_secs(12)));
        assert_eq!(breaker.on_success(now), None);
        assert!(matches!(breaker.on_call(now), BreakerDecision::Send));
    }
}
