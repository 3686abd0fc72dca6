//! Experiment 5: the worker is killed at every named step, again and again, while events come in.

use hookfast_harness::{Rig, eventually};

use crate::rig::{Halves, rig};

/// How often at each step.
const KILLS: u32 = 20;

macro_rules! at_every_step {
    ($($step:ident $point:literal)*) => {
        mod sqlite {
            $(#[test]
            fn $step() {
                super::nothing_is_lost_or_doubled_when_killed(crate::rig::Halves::Together, $point);
            })*
        }

        mod postgres_and_jetstream {
            $(#[test]
            fn $step() {
                super::nothing_is_lost_or_doubled_when_killed(crate::rig::Halves::Apart, $point);
            })*
        }
    };
}

at_every_step! {
    after_claim "AfterClaim"
    before_the_effect_commits "BeforeEffect"
    after_the_effect_commits "AfterEffect"
    before_settle "BeforeSettle"
    after_settle_before_ack "AfterSettle"
}

fn nothing_is_lost_or_doubled_when_killed(halves: Halves, point: &str) {
    let mut rig = rig(halves, "", "");
    kill_again_and_again(&mut rig, point);
    rig.work("");
    rig.assert_kept();
    let promised = rig.ledger().promised();
    assert!(promised >= KILLS as usize, "only {promised} events got through");
}

fn kill_again_and_again(rig: &mut Rig, point: &str) {
    let mut serial = 0;
    for kill in 0..KILLS {
        rig.work(&format!("{point}:{}", kill % 5 + 1));
        // It passes the step when it has something to do.
        while rig.worker().is_running() {
            serial += 1;
            // Every other one shares its commits.
            rig.try_send(&format!("evt_{serial}"), if serial % 2 == 0 { "{}" } else { r#"{"write":true}"# });
        }
        assert_eq!(rig.worker().killed_by(), Some(9), "it was killed and did not end by itself");
    }
}

/// Without the marker an effect that was committed before the kill is done again.
#[test]
fn without_the_marker_effects_are_doubled() {
    let mut rig = rig(Halves::Apart, "", "Marker");
    kill_again_and_again(&mut rig, "AfterEffect");
    rig.work("");
    assert!(rig.broken_promises().iter().any(|broken| broken.contains("effect-0 of ")), "nothing was doubled");
}

/// Without the sweeper the jobs of a dead worker are never looked at again.
#[test]
fn without_the_sweeper_jobs_are_left_behind() {
    let mut rig = rig(Halves::Apart, "", "Sweeper");
    kill_again_and_again(&mut rig, "AfterClaim");
    rig.work("");
    let late = "evt_late";
    while !rig.try_send(late, "{}") {}
    eventually("the worker works", || rig.count(&format!("done WHERE event = '{late}'")) == 1);
    assert!(rig.count("jobs WHERE state = 'processing'") > 0, "somebody has looked at them");
}
