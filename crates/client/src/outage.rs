//! Outage of a node: remembered, so that not every call must find it out. A state machine without a
//! clock.
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

/// State of a node, as far as a client knows: it answers, or it is silent.
#[derive(Debug, Default)]
pub struct Outage(Option<Silence>);

/// The cause and the start of a node's silence.
#[derive(Clone, Debug)]
pub struct Silence {
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
pub enum Verdict {
    /// Send it: the node answers.
    Send,
    /// Probe first whether the node answers again.
    Probe,
    /// Refuse it.
    Refuse,
}

impl Silence {
    /// The reason in the refusal of a call.
    pub fn told(&self, now: Instant) -> String {
        format!("it has not answered for {:.0} s: {}", (now - self.since).as_secs_f64(), self.why)
    }
}

impl Outage {
    /// Decides about a call. Each probe is due for one call alone.
    pub fn on_call(&mut self, now: Instant) -> Verdict {
        let Some(silence) = &mut self.0 else { return Verdict::Send };
        if now < silence.probe {
            return Verdict::Refuse;
        }
        silence.pause = (silence.pause * 2).min(PAUSE_MAX);
        silence.probe = now + silence.pause;
        Verdict::Probe
    }

    /// Records that a call has used up its tries, or that a probe has failed; true if the node was
    /// not silent before.
    pub fn on_silence(&mut self, now: Instant, tries: u32, why: String) -> bool {
        if let Some(silence) = &mut self.0 {
            silence.why = why;
            return false;
        }
        self.0 = Some(Silence { since: now, tries, why, probe: now + PAUSE_FIRST, pause: PAUSE_FIRST });
        true
    }

    /// Records an answer; returns how long the node was silent, if it was.
    pub fn on_answer(&mut self, now: Instant) -> Option<Duration> {
        self.0.take().map(|silence| now - silence.since)
    }

    /// The silence of the node, if it does not answer.
    pub fn silence(&self) -> Option<&Silence> {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_probed_by_one_call_at_a_time_ever_more_seldom_until_it_answers() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        assert!(matches!(outage.on_call(start), Verdict::Send));
        assert!(outage.on_silence(start, 16, "refused".into()), "one line is worth saying");
        assert!(!outage.on_silence(start, 16, "refused".into()), "and no other");
        let (mut now, mut probes) = (start, Vec::new());
        while now < start + Duration::from_secs(12) {
            if matches!(outage.on_call(now), Verdict::Probe) {
                probes.push(now - start);
                assert!(matches!(outage.on_call(now), Verdict::Refuse), "the others do not wait");
                outage.on_silence(now, 1, "still refused".into());
            }
            now += Duration::from_millis(10);
        }
        let gaps: Vec<u128> = probes.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).as_millis()).collect();
        assert_eq!(probes[0], PAUSE_FIRST);
        assert_eq!(gaps, [200, 400, 800, 1600, 2000, 2000, 2000, 2000]);
        let silence = outage.silence().unwrap();
        assert_eq!((silence.tries, silence.told(now).as_str()), (16, "it has not answered for 12 s: still refused"));
        assert_eq!(outage.on_answer(now), Some(Duration::from_secs(12)));
        assert_eq!(outage.on_answer(now), None);
        assert!(matches!(outage.on_call(now), Verdict::Send));
    }
}
