//! Clocks of servers that are far apart, and jump; and a deposed primary whose clock, and whose
//! clients' clocks, are late.
//!
//! Nothing vouches for such a clock, and 250 ms are assumed then, either way: so far is promised what
//! single reads see.

use std::time::Duration;

use crate::faults::partitions::depose;
use crate::faults::{Trial, others};

/// By server: almost half a second apart, and one that jumps up and down by what is a step.
pub(super) const SHIFTS: [&str; 3] = ["245ms", "-245ms", "110ms,-110ms/1700ms"];

#[test]
fn histories_are_right_where_clocks_are_half_a_second_apart_and_jump() {
    let mut trial =
        Trial::start_as("clocks", |index, place| place.with("--clock-shift", SHIFTS[index]));
    trial.is_served("with wrong clocks");
    // From whichever clock to whichever.
    for lost in 0..2 {
        let asked = others(lost)[0];
        trial.cluster.wait_until_complete(asked);
        trial.loses(lost, asked, "by primaries with other clocks");
        trial.cluster.restart(lost);
    }
    trial.end();
}

#[test]
fn a_deposed_primary_and_its_clients_with_slow_clocks_tell_nothing_of_the_past() {
    let shift = |index| if index == 0 { "-240ms" } else { "0s" };
    let mut trial =
        Trial::start_as("slow clocks", |index, place| place.with("--clock-shift", shift(index)));
    let more = trial.bench("register", "register --clock-skew 300ms");
    trial.histories.push(more);
    depose(&mut trial, Some(0), Duration::from_millis(400), false);
    trial.end();
}
