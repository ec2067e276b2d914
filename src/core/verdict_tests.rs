//! Every combination of facts, against the invariants of the model and the folded table.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use super::*;

const WORKERS: [Worker; 8] = [
    Worker::Gone,
    Worker::Unknown,
    Worker::LeaseOnly,
    Worker::Alive(Proof::Proven),
    Worker::Alive(Proof::Named),
    Worker::Alive(Proof::NotYours),
    Worker::Alive(Proof::Shared),
    Worker::Unprovable,
];
const CLAIMS: [Claim; 2] = [Claim::Whole, Claim::Broken];
const ENDS: [End; 3] = [End::None, End::Record, End::Word];
const STAGES: [Stage; 4] = [Stage::InHand, Stage::Starting, Stage::Running, Stage::Survivor];
const CAUSES: [StopCause; 5] = [
    StopCause::Cancelled,
    StopCause::Reclaimed,
    StopCause::TimedOut,
    StopCause::Stalled,
    StopCause::Leftover,
];
const LADDERS: [Ladder; 5] = [Ladder::Asked, Ladder::Term, Ladder::GraceOver, Ladder::Kill, Ladder::Stuck];
const URGENCIES: [Urgency; 3] = [Urgency::Normal, Urgency::Kill, Urgency::Force];
const LEFTOVERS: [Leftover; 3] = [Leftover::None, Leftover::Lingering, Leftover::Overdue];
const FRESHES: [Fresh; 3] = [Fresh::No, Fresh::Due, Fresh::Given];

fn stops() -> Vec<Option<Stop>> {
    let mut stops = vec![None];
    for cause in CAUSES {
        for ladder in LADDERS {
            stops.extend(URGENCIES.map(|urgency| Some(Stop { cause, ladder, urgency })));
        }
    }
    stops
}

/// Calls `visit` with every combination of facts there is; answers how many.
fn every(mut visit: impl FnMut(&Facts)) -> u64 {
    let stops = stops();
    let mut count = 0;
    for worker in WORKERS {
        for claim in CLAIMS {
            for end in ENDS {
                for stage in STAGES {
                    for stop in &stops {
                        for leftover in LEFTOVERS {
                            for fresh in FRESHES {
                                for flags in 0_u8..32 {
                                    let flag = |bit: u8| flags & (1 << bit) != 0;
                                    visit(&Facts {
                                        worker,
                                        claim,
                                        end,
                                        stage,
                                        stop: *stop,
                                        leftover,
                                        fresh,
                                        max_runtime_passed: flag(0),
                                        stalled: flag(1),
                                        lease_expired: flag(2),
                                        lost: flag(3),
                                        ended_before_term: flag(4),
                                    });
                                    count += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    count
}

/// The pass sets that are tried with every combination: all, none, each left out. A row names three passes at
/// most, and those of its neighbours; more of them left out leads to rows that these sets reach too.
fn pass_sets() -> Vec<Passes> {
    let mut sets = vec![Passes::ALL, Passes::NONE];
    sets.extend(Pass::ALL[..6].iter().map(|pass| Passes::ALL.without(*pass)));
    sets
}

fn is_operators_word(facts: &Facts) -> bool {
    facts.stop.is_some_and(|stop| stop.cause.is_operators())
}

#[test]
fn invariants_1_2_7_signals_and_releases_need_their_proofs() {
    for passes in pass_sets() {
        every(|facts| match decide(facts, passes) {
            Verdict::Signal(rung, cause) => {
                assert_eq!(
                    facts.worker,
                    Worker::Alive(Proof::Proven),
                    "1: no signal without proof: {facts:?}"
                );
                let asked = facts.stop;
                if rung == Rung::Kill {
                    let after_grace = asked.is_some_and(|stop| stop.ladder == Ladder::GraceOver);
                    let by_word = asked.is_some_and(|stop| stop.urgency != Urgency::Normal);
                    assert!(after_grace || by_word, "7: KILL only after the grace or by a word: {facts:?}");
                }
                if let Some(stop) = asked {
                    let finished = matches!(stop.ladder, Ladder::Kill | Ladder::Stuck);
                    assert!(!finished, "no signal after KILL: {facts:?}");
                    assert!(stop.cause == cause || stop.ladder == Ladder::Asked, "{facts:?}");
                }
            }
            Verdict::Release { why, survivor } => {
                let may_live = !matches!(facts.worker, Worker::Gone | Worker::LeaseOnly);
                if may_live {
                    assert!(is_operators_word(facts), "2: no release while it may live: {facts:?}");
                    assert!(matches!(why, Release::Operator | Release::Cancelled), "{facts:?}");
                }
                if matches!(facts.worker, Worker::Alive(proof) if proof != Proof::Shared) {
                    assert!(survivor, "a live worker that loses its claim stays with its run: {facts:?}");
                }
            }
            Verdict::Keep | Verdict::Extend | Verdict::Hold(_) => {}
            Verdict::Forget => assert_eq!(facts.stage, Stage::Survivor),
        });
    }
}

#[test]
fn invariant_8_a_dead_worker_is_released_at_once() {
    let count = every(|facts| {
        if facts.worker == Worker::Gone && facts.stage != Stage::InHand {
            let verdict = decide(facts, Passes::ALL);
            let let_go = matches!(verdict, Verdict::Release { .. } | Verdict::Forget);
            assert!(let_go, "{facts:?} -> {verdict:?}");
        }
    });
    assert_eq!(count, 8 * 2 * 3 * 4 * 76 * 3 * 3 * 32, "decide is total, and every combination was tried");
}

#[test]
fn invariant_9_a_verdict_that_was_applied_leaves_nothing_to_do() {
    for passes in pass_sets() {
        every(|facts| {
            let verdict = decide(facts, passes);
            let Some(after) = applied(facts, verdict) else {
                return;
            };
            let again = decide(&after, passes);
            let at_rest = matches!(again, Verdict::Keep | Verdict::Hold(_));
            assert!(at_rest, "{facts:?} -> {verdict:?}; then {after:?} -> {again:?}");
        });
    }
}

/// The facts at the same instant after a verdict was carried out; nothing where the row is no more.
fn applied(facts: &Facts, verdict: Verdict) -> Option<Facts> {
    let mut after = *facts;
    match verdict {
        Verdict::Keep | Verdict::Hold(_) | Verdict::Forget => return None,
        Verdict::Extend => {
            after.lease_expired = false;
            after.fresh = if facts.fresh == Fresh::Due { Fresh::Given } else { facts.fresh };
        }
        Verdict::Signal(rung, cause) => {
            let ladder = if rung == Rung::Term { Ladder::Term } else { Ladder::Kill };
            // An operator's urgency belongs to the operator's cause; a cause of the sweep has none.
            let same = facts.stop.filter(|stop| stop.cause == cause);
            let urgency = same.map_or(Urgency::Normal, |stop| stop.urgency);
            after.stop = Some(Stop { cause, ladder, urgency });
        }
        Verdict::Release { survivor: false, .. } => return None,
        Verdict::Release { survivor: true, .. } => {
            after.stage = Stage::Survivor;
            after.claim = Claim::Whole;
            after.end = End::Record;
            after.stop = None;
            after.leftover = Leftover::Lingering;
        }
    }
    Some(after)
}

#[test]
fn invariant_11_nothing_in_the_policy_is_dead() {
    let mut verdicts = HashSet::new();
    let mut rows = HashSet::new();
    for passes in [Passes::ALL, Passes::NONE] {
        every(|facts| {
            let (row, verdict) = explain(facts, passes);
            verdicts.insert(verdict);
            rows.insert(row);
        });
    }
    let holds = [
        Hold::WorkerAlive,
        Hold::Unkillable,
        Hold::Named,
        Hold::NotYours,
        Hold::Shared,
        Hold::Unproven,
        Hold::Unknown,
    ];
    for hold in holds {
        assert!(verdicts.contains(&Verdict::Hold(hold)), "{hold:?}");
    }
    let mut releases: BTreeSet<Release> = BTreeSet::new();
    let mut signals = BTreeSet::new();
    for verdict in &verdicts {
        match verdict {
            Verdict::Release { why, .. } => drop(releases.insert(*why)),
            Verdict::Signal(rung, cause) => drop(signals.insert((*rung, *cause))),
            Verdict::Keep | Verdict::Extend | Verdict::Hold(_) | Verdict::Forget => {}
        }
    }
    assert_eq!(releases.len(), 12 + CAUSES.len(), "{releases:?}");
    assert_eq!(signals.len(), 2 * CAUSES.len(), "{signals:?}");
    assert_eq!(rows.len(), Row::LeaseOnlyWell as usize + 1, "{rows:?}");
}

#[test]
fn c03_no_kill_is_due_for_a_process_that_is_not_the_worker() {
    every(|facts| {
        let gone = facts.worker == Worker::Gone;
        if gone && facts.stop.is_some_and(|stop| stop.ladder == Ladder::GraceOver) {
            assert!(!matches!(decide(facts, Passes::ALL), Verdict::Signal(..)));
        }
    });
}

#[test]
fn c17_an_unkillable_worker_is_held_and_not_signalled_again() {
    every(|facts| {
        let stuck =
            facts.stop.is_some_and(|stop| stop.ladder == Ladder::Stuck && stop.urgency != Urgency::Force);
        let live = matches!(facts.worker, Worker::Alive(Proof::Proven));
        if stuck && live && matches!(facts.stage, Stage::Running | Stage::Starting) {
            assert_eq!(decide(facts, Passes::ALL), Verdict::Hold(Hold::Unkillable), "{facts:?}");
        }
    });
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a golden file is read, and written where a person asks for it"
)]
fn the_folded_table_is_the_golden_one() {
    let folded = folded();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/verdicts.txt");
    if std::env::var_os("TENURED_BLESS").is_some() {
        std::fs::write(path, &folded).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(golden == folded, "the policy changed; review it, then run with TENURED_BLESS=1:\n{folded}");
}

/// What a row of the table was seen with.
#[derive(Default)]
struct Fold {
    combinations: u64,
    columns: [BTreeSet<String>; 9],
    flags: [BTreeSet<bool>; 5],
    verdicts: BTreeSet<String>,
    passes: BTreeSet<&'static str>,
}

fn folded() -> String {
    let mut folds: BTreeMap<Row, Fold> = BTreeMap::new();
    every(|facts| {
        let (row, verdict) = explain(facts, Passes::ALL);
        let fold = folds.entry(row).or_default();
        fold.combinations += 1;
        // Most combinations add nothing new; formatting is what costs.
        if fold.combinations % 7 == 1 || fold.combinations < 20_000 {
            for (set, word) in fold.columns.iter_mut().zip(words(facts)) {
                set.insert(word);
            }
            fold.verdicts.insert(verdict_word(verdict));
        }
        let flags = [
            facts.max_runtime_passed,
            facts.stalled,
            facts.lease_expired,
            facts.lost,
            facts.ended_before_term,
        ];
        for (set, flag) in fold.flags.iter_mut().zip(flags) {
            set.insert(flag);
        }
        for pass in &Pass::ALL[..6] {
            // A pass that matters at all matters in many combinations; one in sixteen shows it.
            let sampled = fold.combinations % 16 == 1 || fold.combinations < 20_000;
            if sampled
                && !fold.passes.contains(pass.word())
                && explain(facts, Passes::ALL.without(*pass)).0 != row
            {
                fold.passes.insert(pass.word());
            }
        }
    });
    table(&folds)
}

fn words(facts: &Facts) -> [String; 9] {
    let worker = match facts.worker {
        Worker::Alive(proof) => format!("{proof:?}"),
        other => format!("{other:?}"),
    };
    let (ladder, cause, urgency) = facts.stop.map_or_else(
        || ("no stop".into(), String::new(), String::new()),
        |stop| (format!("{:?}", stop.ladder), format!("{:?}", stop.cause), format!("{:?}", stop.urgency)),
    );
    [
        worker,
        format!("{:?}", facts.claim),
        format!("{:?} on record", facts.end),
        format!("{:?}", facts.stage),
        ladder,
        cause,
        urgency,
        match facts.leftover {
            Leftover::None => "leading".into(),
            other => format!("{other:?}"),
        },
        format!("fresh {:?}", facts.fresh),
    ]
}

fn verdict_word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep => "keep".into(),
        Verdict::Extend => "extend".into(),
        Verdict::Hold(hold) => format!("hold {}", hold.word()),
        Verdict::Signal(Rung::Term, _) => "TERM".into(),
        Verdict::Signal(Rung::Kill, _) => "KILL".into(),
        Verdict::Release { why: Release::Stopped(_), .. } => "release by stop".into(),
        Verdict::Release { why, survivor: true } => format!("release {why:?}+survivor"),
        Verdict::Release { why, survivor: false } => format!("release {why:?}"),
        Verdict::Forget => "forget".into(),
    }
}

/// The values of one column, by the shorter way to say them; nothing where it was seen with every value.
fn column_text(column: &BTreeSet<String>, all: &BTreeSet<String>) -> Option<String> {
    let join =
        |words: Vec<&str>| words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("|");
    let rest = join(all.difference(column).map(String::as_str).collect());
    let here = join(column.iter().map(String::as_str).collect());
    if rest.is_empty() || here.is_empty() {
        return None;
    }
    Some(if rest.len() < here.len() { format!("not {rest}") } else { here })
}

fn table(folds: &BTreeMap<Row, Fold>) -> String {
    const FLAGS: [&str; 5] = ["max_runtime", "stalled", "lease_expired", "lost", "ended_before_term"];
    let all: [BTreeSet<String>; 9] =
        std::array::from_fn(|at| folds.values().flat_map(|fold| fold.columns[at].iter().cloned()).collect());
    let mut text = String::from(
        "# The verdict table, folded from every combination of facts: which values each row was seen with.\n\
         # Rows are tried from the top; a column that a row does not name was seen with every value.\n\
         # Proven, Named, NotYours and Shared are live workers. [pass] leaving it out can take the row away.\n",
    );
    for (row, fold) in folds {
        let mut when = Vec::new();
        for (column, all) in fold.columns.iter().zip(&all) {
            when.extend(column_text(column, all));
        }
        for (flag, seen) in FLAGS.iter().zip(&fold.flags) {
            if seen.len() == 1 {
                when.push(format!("{}{flag}", if seen.contains(&true) { "" } else { "not " }));
            }
        }
        let verdicts = fold.verdicts.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        let passes = fold.passes.iter().copied().collect::<Vec<_>>().join(" ");
        let passes = if passes.is_empty() { passes } else { format!(" [{passes}]") };
        let _ = writeln!(text, "{:<20} {verdicts}{passes} <- {}", format!("{row:?}"), when.join(", "));
    }
    text
}
