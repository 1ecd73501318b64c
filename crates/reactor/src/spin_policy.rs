//! Spin policy: decides whether a thread that waits for a message looks for it again and again
//! (busy-polls) or sleeps at once. Nodes and clients use it.
//!
//! A wake-up takes longer than most requests. So where messages follow each other closely, looking
//! for the next one is quicker, and costs no more than the wake-up would. It is in vain when the
//! message comes later than the thread looks for it, as when several processes share the
//! processors. Then it takes a processor from the one that is waited for. So each time in vain
//! doubles the number of close messages after which the thread looks again.
//!
//! Between two looks a thread may let others have its processor. One that computes keeps it for
//! milliseconds. A thread that sleeps is not held up like that: it is woken at once. So after such
//! a delay the thread does not look for long.
//!
//! Pure: time is an argument.

use std::time::{Duration, Instant};

/// A message that comes within this time after the wait for it began follows closely: a few
/// wake-ups.
const GAP_MAX: Duration = Duration::from_micros(250);
/// Number of close messages after which spinning starts.
const STREAK_MIN: u32 = 4;
/// Upper bound of that number, which doubles each time that spinning was in vain. With it, spinning
/// in vain takes less than 1 % of the time of a row of close messages.
const STREAK_MAX: u32 = 256;
/// Number of messages that spinning must catch to justify one time in vain.
const HITS_MIN: u32 = 16;

/// Time between two looks after which something else has the processor: longer than a dozen
/// processes that only send and wait take for their turns, shorter than the time slices of one that
/// computes.
const DELAY_MAX: Duration = Duration::from_micros(1500);
/// Number of messages for which a thread does not spin after such a delay.
const PAUSE_MIN: u32 = 256;
/// Upper bound of that number, which grows fourfold with each delay. With it, delays of a few
/// milliseconds take about 1 % of the time.
const PAUSE_MAX: u32 = 1 << 14;
/// Number of messages that spinning must catch between two delays to make them a matter of chance.
const CHANCE_HITS_MIN: u32 = 4096;

/// The next step of a thread to which no message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinStep {
    /// Look again.
    Spin,
    /// Sleep until woken.
    Sleep,
}

/// Spin policy of one thread or connection that waits for messages.
#[derive(Debug)]
pub struct SpinPolicy {
    /// Longest spinning without a message; zero to never spin.
    spin_max: Duration,
    /// Time at which the wait for the next message began; `None` while there is work.
    idle: Option<Instant>,
    /// Number of close messages in a row; while spinning, those that were caught.
    streak: u32,
    /// Number of close messages in a row that starts spinning.
    threshold: u32,
    /// Number of messages that are still to come before the thread may spin.
    pause: u32,
    /// Value of `pause` after the next delay.
    next_pause: u32,
    /// Time of the last look; `None` unless the thread spins.
    looked: Option<Instant>,
}

impl SpinPolicy {
    /// Creates a policy that spins after a few close messages, each time for at most `spin_max`.
    pub const fn new(spin_max: Duration) -> Self {
        Self { spin_max, idle: None, streak: 0, threshold: STREAK_MIN, pause: 0, next_pause: PAUSE_MIN, looked: None }
    }

    /// Like [`Self::new`], but spins for the first message already: for a program that asks a node
    /// a few things and ends.
    pub const fn eager(spin_max: Duration) -> Self {
        Self { streak: STREAK_MIN, ..Self::new(spin_max) }
    }

    /// Notes that a message has come.
    pub fn on_message(&mut self, now: Instant) {
        self.pause = self.pause.saturating_sub(1);
        if let Some(idle) = self.idle.take() {
            self.check_delay(now, idle);
            self.streak = if now.saturating_duration_since(idle) < GAP_MAX { self.streak.saturating_add(1) } else { 0 };
        }
    }

    /// Notes that no message has come. `is_crowded`: others need the processors.
    pub fn on_idle(&mut self, now: Instant, is_crowded: bool) -> SpinStep {
        let idle = *self.idle.get_or_insert(now);
        if is_crowded || self.spin_max.is_zero() || self.pause > 0 {
            self.stop();
        } else if self.looked.is_some() {
            self.look_again(now, idle);
        } else if self.streak >= self.threshold {
            (self.looked, self.streak) = (Some(now), 0);
        }
        if self.looked.is_some() { SpinStep::Spin } else { SpinStep::Sleep }
    }

    /// Goes on spinning unless it was in vain.
    fn look_again(&mut self, now: Instant, idle: Instant) {
        if self.check_delay(now, idle) {
            return;
        }
        if now.saturating_duration_since(idle) >= self.spin_max {
            self.threshold = if self.streak >= HITS_MIN { STREAK_MIN } else { (self.threshold * 2).min(STREAK_MAX) };
            self.stop();
        } else {
            self.looked = Some(now);
        }
    }

    /// Stops spinning for a while if something else had the processor since the last look of the
    /// wait that began at `idle`; returns whether it had.
    fn check_delay(&mut self, now: Instant, idle: Instant) -> bool {
        let delay = self.looked.map(|looked| now.saturating_duration_since(looked.max(idle)));
        let is_delayed = delay.is_some_and(|delay| delay >= DELAY_MAX);
        if is_delayed {
            self.pause = if self.streak >= CHANCE_HITS_MIN { PAUSE_MIN } else { self.next_pause };
            self.next_pause = (self.pause * 4).min(PAUSE_MAX);
            self.stop();
        }
        is_delayed
    }

    /// Stops spinning. The next row of close messages may start it again.
    fn stop(&mut self) {
        if self.looked.take().is_some() {
            self.streak = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);
    const SPIN_MAX: Duration = Duration::from_micros(200);
    /// Gap of messages that are close, and come too late for spinning.
    const CLOSE: Duration = Duration::from_micros(249);

    /// Lets messages come with this gap between them; returns those before which the thread spun
    /// in vain.
    fn in_vain(policy: &mut SpinPolicy, now: &mut Instant, messages: u32, gap: Duration) -> Vec<u32> {
        let mut in_vain = Vec::new();
        for message in 0..messages {
            let began = *now;
            if policy.on_idle(*now, false) == SpinStep::Spin && gap > SPIN_MAX {
                *now = began + SPIN_MAX;
                assert_eq!(policy.on_idle(*now, false), SpinStep::Sleep);
                in_vain.push(message);
            }
            *now = began + gap;
            policy.on_message(*now);
        }
        in_vain
    }

    #[test]
    fn close_messages_are_looked_for_and_distant_ones_are_slept_for() {
        let (mut policy, mut now) = (SpinPolicy::new(SPIN_MAX), Instant::now());
        for _ in 0..STREAK_MIN {
            assert_eq!(policy.on_idle(now, false), SpinStep::Sleep);
            now += 10 * US;
            policy.on_message(now);
        }
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
        assert_eq!(policy.on_idle(now + SPIN_MAX / 2, false), SpinStep::Spin);
        assert_eq!(policy.on_idle(now + SPIN_MAX, false), SpinStep::Sleep);
        let mut policy = SpinPolicy::new(SPIN_MAX);
        assert_eq!(in_vain(&mut policy, &mut now, 1000, GAP_MAX), [], "it never spins for distant messages");
    }

    #[test]
    fn looking_in_vain_is_tried_less_and_less_and_never_given_up() {
        let (mut policy, mut now) = (SpinPolicy::new(SPIN_MAX), Instant::now());
        let tries = in_vain(&mut policy, &mut now, 2000, CLOSE);
        let gaps: Vec<u32> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [8, 16, 32, 64, 128, 256, 256, 256, 256, 256, 256]);
    }

    #[test]
    fn looking_that_catches_many_messages_was_not_in_vain() {
        let (mut policy, mut now) = (SpinPolicy::new(SPIN_MAX), Instant::now());
        in_vain(&mut policy, &mut now, 100, CLOSE);
        // The first ones start spinning, the others are caught.
        in_vain(&mut policy, &mut now, STREAK_MAX + HITS_MIN, 10 * US);
        assert!(policy.looked.is_some() && policy.threshold > STREAK_MIN);
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
        assert_eq!(policy.on_idle(now + SPIN_MAX, false), SpinStep::Sleep);
        assert_eq!(policy.threshold, STREAK_MIN);
    }

    #[test]
    fn nobody_is_looked_for_while_others_need_the_processors() {
        let (mut policy, mut now) = (SpinPolicy::eager(SPIN_MAX), Instant::now());
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
        assert_eq!(policy.on_idle(now, true), SpinStep::Sleep);
        for _ in 0..100 {
            assert_eq!(policy.on_idle(now, true), SpinStep::Sleep);
            now += 10 * US;
            policy.on_message(now);
        }
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin, "they do not any more");
    }

    #[test]
    fn an_eager_policy_looks_for_the_first_message() {
        assert_eq!(SpinPolicy::eager(SPIN_MAX).on_idle(Instant::now(), false), SpinStep::Spin);
        let mut never = SpinPolicy::eager(Duration::ZERO);
        assert_eq!(never.on_idle(Instant::now(), false), SpinStep::Sleep, "there is no time to spin");
    }

    #[test]
    fn a_thread_that_something_else_held_up_does_not_look_for_long() {
        let (mut policy, mut now) = (SpinPolicy::eager(SPIN_MAX), Instant::now());
        let mut pause_after = |caught: u32| {
            for _ in 0..caught {
                assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
                now += 10 * US;
                policy.on_message(now);
            }
            assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
            now += DELAY_MAX;
            let mut pause = 0;
            while policy.on_idle(now, false) == SpinStep::Sleep {
                pause += 1;
                now += 10 * US;
                policy.on_message(now);
            }
            pause
        };
        assert_eq!([0, 10, 10, 100, 10].map(&mut pause_after), [256, 1024, 4096, 16384, 16384]);
        assert_eq!(pause_after(CHANCE_HITS_MIN), 256, "this is chance");
    }

    #[test]
    fn a_delay_counts_also_if_the_message_came_meanwhile() {
        let (mut policy, now) = (SpinPolicy::eager(SPIN_MAX), Instant::now());
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
        policy.on_message(now + DELAY_MAX);
        assert_eq!(policy.on_idle(now + DELAY_MAX, false), SpinStep::Sleep);
    }

    #[test]
    fn time_in_which_messages_are_handled_is_no_delay() {
        let (mut policy, mut now) = (SpinPolicy::eager(SPIN_MAX), Instant::now());
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
        policy.on_message(now + 10 * US);
        now += 10 * DELAY_MAX;
        assert_eq!(policy.on_idle(now, false), SpinStep::Spin);
    }
}
