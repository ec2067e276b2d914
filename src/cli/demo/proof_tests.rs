//! Each claim of the demo is shown to notice what contradicts it: a demo that cannot fail proves nothing.

use std::collections::BTreeMap;

use serde_json::json;

use crate::cli::demo::director::{Cast, Deeds};
use crate::cli::demo::evidence::{Event, Evidence, Run};
use crate::cli::demo::proof::all;

const SECOND: u64 = 1_000_000;

fn run(run: u64, from: u64, to: u64, outcome: &str) -> Run {
    Run { run, started_usec: from * SECOND, ended_usec: to * SECOND, outcome: outcome.to_owned() }
}

/// Runs and events as a demo leaves them.
fn good() -> Evidence {
    let cast = Cast {
        first: 1,
        second: 2,
        third: 3,
        flaky: 4,
        killed: 5,
        overrun: 6,
        external: 7,
        once: 8,
        again: (8, false),
    };
    let runs = BTreeMap::from([
        (1, vec![run(1, 10, 12, "completed")]),
        (2, vec![run(9, 12, 14, "completed")]),
        (3, vec![run(12, 14, 15, "completed")]),
        (4, vec![run(2, 10, 11, "failed"), run(8, 12, 13, "failed"), run(11, 14, 15, "completed")]),
        (5, vec![run(3, 10, 11, "crashed"), run(7, 12, 13, "completed")]),
        (6, vec![run(4, 10, 13, "timed_out")]),
        (7, vec![run(5, 10, 13, "reclaimed"), run(10, 14, 14, "completed")]),
        (8, vec![run(6, 10, 11, "completed")]),
    ]);
    let mut events: Vec<Event> = Vec::new();
    let mut push = |task, run, kind: &str, payload, at_usec| {
        events.push(Event { event: 0, task, run, kind: kind.to_owned(), payload, at_usec });
    };
    for task in 1..=8 {
        push(task, 0, "created", json!({}), 10 * SECOND);
    }
    for (task, runs) in &runs {
        for run in runs {
            push(*task, run.run, "claimed", json!({}), run.started_usec);
            push(*task, run.run, &run.outcome, json!({}), run.ended_usec);
        }
    }
    push(6, 4, "signalled", json!({ "signal": 15 }), 11 * SECOND);
    push(6, 4, "signalled", json!({ "signal": 9 }), 12 * SECOND);
    for event in events.iter_mut().filter(|event| event.task == 2 && event.kind == "completed") {
        event.payload = json!({ "pid": 4_712 });
    }
    events.sort_by_key(|event| event.at_usec);
    for (number, event) in (1..).zip(&mut events) {
        event.event = number;
    }
    let deeds = Deeds {
        killed_usec: Some((11 * SECOND - 5_000, 4_711)),
        overrun_gone: true,
        lost_claim: Some((5, 10 * SECOND, 2 * SECOND)),
        next_claim: Some(10),
        orphaned: Some((9, 4_712, 4_700)),
        late_word: Some("StaleRun".to_owned()),
    };
    let statuses =
        (1..=8).map(|task| (task, if task == 6 { "blocked" } else { "done" }.to_owned())).collect();
    Evidence { cast, deeds, events, runs, statuses }
}

/// The numbers of the claims that do not hold.
fn broken(change: impl FnOnce(&mut Evidence)) -> Vec<usize> {
    let mut evidence = good();
    change(&mut evidence);
    all(&evidence).iter().enumerate().filter(|(_, proof)| proof.holds.is_err()).map(|(at, _)| at).collect()
}

fn event<'a>(evidence: &'a mut Evidence, task: u64, kind: &str) -> &'a mut Event {
    evidence.events.iter_mut().find(|event| event.task == task && event.kind == kind).unwrap()
}

#[test]
fn a_good_demo_proves_everything() {
    for proof in all(&good()) {
        assert!(proof.holds.is_ok(), "{proof:?}");
    }
}

#[test]
fn every_claim_notices_what_contradicts_it() {
    assert_eq!(broken(|evidence| event(evidence, 2, "claimed").event = 0), [0]);
    assert_eq!(broken(|evidence| evidence.runs.get_mut(&4).unwrap()[1].outcome = "lost".into()), [1]);
    assert_eq!(broken(|evidence| event(evidence, 5, "crashed").at_usec += SECOND), [2]);
    assert_eq!(broken(|evidence| event(evidence, 6, "signalled").payload = json!({ "signal": 9 })), [3]);
    assert_eq!(broken(|evidence| evidence.deeds.overrun_gone = false), [3]);
    assert_eq!(broken(|evidence| event(evidence, 7, "reclaimed").at_usec = 11 * SECOND), [4]);
    assert_eq!(broken(|evidence| evidence.deeds.late_word = Some("accepted: done".into())), [5]);
    assert_eq!(broken(|evidence| event(evidence, 7, "completed").run = 5), [5, 8]);
    assert_eq!(broken(|evidence| event(evidence, 2, "completed").payload = json!({ "pid": 1 })), [6]);
    assert_eq!(broken(|evidence| evidence.deeds.orphaned = None), [6]);
    assert_eq!(broken(|evidence| evidence.cast.again = (9, true)), [7]);
    assert_eq!(broken(|evidence| evidence.runs.get_mut(&4).unwrap()[1].started_usec = 10 * SECOND), [8]);
    let twice = |evidence: &mut Evidence| {
        let again = event(evidence, 1, "completed").clone();
        evidence.events.push(again);
    };
    assert_eq!(broken(twice), [8]);
}
