//! Worlds of the simulation, by seed.
//!
//! `SIM_SEEDS` is the number of worlds and `SIM_SEED` the first seed. The seed of a failure repeats
//! it step by step.

use crate::simulation::{
    network::{EVENTS, EventCounts},
    world::run_world,
};
use std::env;

/// Number of worlds, unless `SIM_SEEDS` is set.
const WORLDS: u64 = 2000;
/// Number of tests that share the worlds, so that several processors run them.
const SHARES: u64 = 4;

/// Runs every fourth world, and checks that what is to happen in worlds does happen.
fn run_share(share: u64) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("SIM_SEED").unwrap_or(0);
    let worlds = number("SIM_SEEDS").unwrap_or(if number("SIM_SEED").is_some() { 1 } else { WORLDS });
    let mut all = EventCounts::new();
    let seeds = (first..first + worlds).skip(usize::try_from(share).unwrap()).step_by(usize::try_from(SHARES).unwrap());
    let mut run = 0;
    for seed in seeds {
        for (event, count) in run_world(seed) {
            *all.entry(event).or_default() += count;
        }
        run += 1;
    }
    eprintln!("{run} worlds: {all:?}");
    let rare = EVENTS.iter().find(|event| all.get(event).copied().unwrap_or(0) < run / 50);
    assert!(run < 400 || rare.is_none(), "worlds in which too little happens: {rare:?} of {all:?}");
}

#[test]
fn pools_keep_their_promises_whatever_happens_to_them_first_share() {
    run_share(0);
}

#[test]
fn pools_keep_their_promises_whatever_happens_to_them_second_share() {
    run_share(1);
}

#[test]
fn pools_keep_their_promises_whatever_happens_to_them_third_share() {
    run_share(2);
}

#[test]
fn pools_keep_their_promises_whatever_happens_to_them_fourth_share() {
    run_share(3);
}
