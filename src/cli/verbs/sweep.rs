//! `sweep`: look at every claim now, and say what came of it.

use clap::Args;
use serde_json::Value;
use zbus::Variant;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::json::object;
use crate::cli::render::{Page, Screen};
use crate::cli::row::{Fields as _, whole};
use crate::cli::span::human;
use crate::cli::verbs::show::{hold_in_words, signal_name};
use crate::cli::verbs::{Ended, tell};

/// `sweep`.
#[derive(Args, Clone, Debug)]
pub struct Sweep {
    /// Only these passes, and what is always on: release_stale_claims, enforce_max_runtime,
    /// detect_crashed_workers, detect_stalled_workers, reconcile_orphans, reap_ended_runs, promote, dispatch
    #[arg(long = "pass", value_name = "PASS", value_delimiter = ',')]
    pub passes: Vec<String>,
    /// Say what would be done, and write nothing
    #[arg(long, short = 'n')]
    pub preview: bool,
    /// Start nothing
    #[arg(long)]
    pub no_dispatch: bool,
}

/// Keys of the report that are not lists of tasks.
const OTHERS: [&str; 4] = ["signalled", "held", "rows", "took_usec"];

/// Sweeps.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn run(session: &Session, sweep: &Sweep) -> Ended {
    let mut options = Options::new();
    if !sweep.passes.is_empty() {
        options.insert("Passes", sweep.passes.clone().into());
    }
    if sweep.preview {
        options.insert("Preview", true.into());
    }
    if sweep.no_dispatch {
        options.insert("Dispatch", false.into());
    }
    let report = session.manager.sweep(&options).await?;
    let words = page(&session.screen, &report, sweep.preview);
    tell(session, &Value::Object(object(&report)), &words)?;
    Ok(0)
}

/// A report in words.
pub fn page(screen: &Screen, report: &Row, preview: bool) -> String {
    let mut page = Page::new(screen);
    let rows = report.number("rows");
    let verb = if preview { "would act on" } else { "looked at" };
    page.heading(&format!("{verb} {rows} claims in {}", human(report.number("took_usec"))));
    let numbers = |key: &str| report.numbers(key).iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    for key in report.keys().filter(|key| !OTHERS.contains(&key.as_str())) {
        page.field(&key.replace('_', " "), &numbers(key));
    }
    for (task, signal) in pairs(report.items("signalled")) {
        let signal = whole(&signal).unwrap_or(0);
        page.field("signalled", &format!("task {task}: {}", signal_name(u64::try_from(signal).unwrap_or(0))));
    }
    for (task, reason) in pairs(report.items("held")) {
        if let Variant::Str(reason) = reason {
            page.field("held", &format!("task {task}: {}", hold_in_words(reason.as_str())));
        }
    }
    let mut text = page.into_text();
    if text.lines().count() == 1 {
        text.push_str("  nothing to do\n");
    }
    text
}

fn pairs<'a>(items: &'a [Variant<'a>]) -> impl Iterator<Item = (i64, Variant<'a>)> {
    items.iter().filter_map(|item| {
        let Variant::Structure(structure) = item else { return None };
        let [task, what] = structure.fields() else { return None };
        Some((whole(task)?, what.try_clone().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::row::row_of;

    #[test]
    fn a_report_says_what_was_done_and_to_whom() {
        let report = row_of([
            ("rows", 3_u32.into()),
            ("took_usec", 1_500_u64.into()),
            ("timed_out", Vec::<u64>::new().into()),
            ("crashed", vec![4_u64, 9].into()),
            ("signalled", vec![(7_u64, 15_i32)].into()),
            ("held", vec![(8_u64, "unproven")].into()),
        ]);
        let text = page(&Screen::plain(), &report, false);
        assert!(text.starts_with("looked at 3 claims in 1 ms\n"), "{text}");
        assert!(text.contains("crashed      4, 9\n") && text.contains("task 7: TERM"), "{text}");
        assert!(text.contains("task 8: ") && !text.contains("timed"), "{text}");
        let idle = page(&Screen::plain(), &row_of([("rows", 0_u32.into())]), true);
        assert!(idle.ends_with("nothing to do\n"), "{idle}");
    }
}
