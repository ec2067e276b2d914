//! The help of `tenurectl`: the verbs in groups, in the order in which one meets them.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Which verbs belong together.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Work", &["add", "run", "list", "show", "logs", "wait", "events"]),
    (
        "Steer",
        &["block", "unblock", "retry", "cancel", "reclaim", "archive", "edit", "comment", "link", "unlink"],
    ),
    ("Be a worker", &["claim", "heartbeat", "complete", "fail", "release"]),
    ("The daemon", &["queue", "sweep", "drain", "status", "backup", "demo", "help"]),
];

const EXIT_CODES: &str = "Exit codes: 0 done, 1 refused or failed, 2 usage, 3 no daemon to talk to;\nof run and wait, the \
worker's own: its exit code, or 128 and the number of the signal that ended it.\n\nTry it: tenurectl demo, then \
tenurectl --embedded run -- echo hello";

/// The command line with its help in order.
pub fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    let groups = groups(&command);
    command
        .help_template(format!(
            "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\n{{options}}{{after-help}}"
        ))
        .after_help(EXIT_CODES)
}

fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (name, verbs) in GROUPS {
        let _ = writeln!(text, "\n{name}:");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let _ = writeln!(text, "  {verb:<10} {}", about.map(ToString::to_string).unwrap_or_default());
        }
    }
    text
}

/// The help of the program and of every verb, for a terminal of 100 columns.
#[cfg(test)]
fn everything() -> String {
    let mut command = command().term_width(100);
    let mut text = command.render_help().to_string();
    let names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        let verb = command.find_subcommand_mut(name).unwrap();
        let _ =
            write!(text, "\n---- tenurectl {name} --help\n{}", verb.clone().term_width(100).render_help());
    }
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "reads the golden file")]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_and_has_an_example() {
        let command = command();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            assert_eq!(grouped.iter().filter(|grouped| **grouped == name).count(), 1, "{name}");
            let example = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                name == "help" || example.contains(&format!("tenurectl {name}")) || example.contains(name),
                "{name}"
            );
        }
        for name in grouped {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    /// Run with `TENURED_BLESS=1` to write the file anew, and read the difference before it is committed.
    #[test]
    fn the_help_is_the_golden_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/help.txt");
        let now = everything();
        if std::env::var_os("TENURED_BLESS").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(golden == now, "the help has changed; see the head of this test\n{now}");
    }
}
