//! The tree holds itself to its rules: who may name whom, who may touch the outside, what nobody may do.
//!
//! Source: src/README.md, "The dependency rule". Each rule is shown to notice a planted violation.

use crate::support::source::{Named, Token, files, paths, tokens};

/// What the files of one module may name.
struct Allowed {
    module: &'static str,
    /// Modules of this crate.
    modules: &'static [&'static str],
    /// Other crates. `std` is judged by [`OUTSIDE`].
    crates: &'static [&'static str],
    /// Whether it is an adapter: files, processes, the network, the environment.
    outside: bool,
}

const ALL: &[&str] = &["*"];

/// The table. `core` points at nothing; arrows point to `core`; only `bin` and `daemon` see everything.
const TABLE: &[Allowed] = &[
    Allowed {
        module: "core",
        modules: &["core"],
        crates: &["crc32fast", "serde", "serde_json", "thiserror"],
        outside: false,
    },
    Allowed { module: "ports", modules: &["core", "ports"], crates: &[], outside: false },
    Allowed {
        module: "service",
        modules: &["core", "ports", "store", "service"],
        crates: &["getrandom", "serde", "serde_json", "thiserror", "tokio", "tracing"],
        outside: false,
    },
    Allowed {
        module: "store",
        modules: &["core", "store"],
        crates: &[
            "getrandom",
            "nix",
            "rusqlite",
            "rustix",
            "serde",
            "serde_json",
            "tempfile",
            "thiserror",
            "tokio",
            "tracing",
        ],
        outside: true,
    },
    Allowed {
        module: "linux",
        modules: &["core", "ports", "linux"],
        crates: &[
            "getrandom",
            "libc",
            "nix",
            "procfs",
            "rustix",
            "serde",
            "serde_json",
            "tempfile",
            "thiserror",
            "tokio",
            "tracing",
        ],
        outside: true,
    },
    Allowed {
        module: "systemd",
        modules: &["core", "ports", "systemd"],
        crates: &[
            "futures_util",
            "nix",
            "rustix",
            "sd_notify",
            "serde",
            "tempfile",
            "thiserror",
            "tokio",
            "tracing",
            "tracing_journald",
            "tracing_subscriber",
            "zbus",
        ],
        outside: true,
    },
    // Small: it stands beside every worker, so no runtime and no bus.
    Allowed {
        module: "exec",
        modules: &["core", "exec", "linux", "ports"],
        crates: &["libc", "nix", "rustix", "sd_notify", "serde", "serde_json", "thiserror"],
        outside: true,
    },
    Allowed {
        module: "bus",
        modules: &["bus", "core", "service"],
        crates: &[
            "futures_util",
            "nix",
            "rustix",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
            "zbus",
        ],
        outside: true,
    },
    Allowed {
        module: "cli",
        modules: &["bus", "cli", "core"],
        crates: &[
            "clap",
            "futures_util",
            "jiff",
            "nix",
            "rustix",
            "serde",
            "serde_json",
            "tempfile",
            "thiserror",
            "tokio",
            "tracing",
            "unicode_width",
            "zbus",
        ],
        outside: true,
    },
    Allowed {
        module: "config",
        modules: &["config", "core"],
        crates: &["serde", "thiserror", "toml"],
        outside: true,
    },
    Allowed {
        module: "daemon",
        modules: &["bus", "config", "core", "daemon", "linux", "ports", "service", "store", "systemd"],
        crates: &[
            "clap",
            "futures_util",
            "getrandom",
            "sd_notify",
            "serde",
            "serde_json",
            "thiserror",
            "tokio",
            "tracing",
        ],
        outside: false,
    },
    Allowed { module: "bin", modules: ALL, crates: ALL, outside: true },
    Allowed { module: "lib", modules: ALL, crates: &[], outside: false },
];

/// Parts of std that reach outside the program, and those of them that are only types.
const OUTSIDE: &[&str] = &["std::env", "std::fs", "std::net", "std::os::unix::net", "std::process"];
const HARMLESS: &[&str] = &["std::process::ExitCode", "std::process::id", "rustix::process::getuid"];
/// Clocks: read by `linux` alone.
const CLOCKS: &[&str] = &["std::time::Instant", "std::time::SystemTime"];
/// Calls that name a process by number, or take children that others wait for.
const BY_NUMBER: &[&str] = &[
    "kill",
    "kill_process",
    "kill_process_group",
    "killpg",
    "pthread_kill",
    "sigqueue",
    "tgkill",
    "tkill",
    "wait3",
    "wait4",
    "waitpid",
];

fn module_of(file: &str) -> &str {
    let inside = file.strip_prefix("src/").unwrap_or(file);
    inside.split_once('/').map_or(inside.trim_end_matches(".rs"), |(module, _)| module)
}

fn permits(list: &[&str], name: &str) -> bool {
    list.contains(&"*") || list.contains(&name)
}

/// Everything a file does that it may not, one line each.
fn judge(file: &str, source: &str, dependencies: &[String]) -> Vec<String> {
    let module = module_of(file);
    let Some(allowed) = TABLE.iter().find(|row| row.module == module) else {
        return vec![format!("{file}: the table of tests/it/rules.rs has no row for {module}")];
    };
    let all = tokens(source);
    let mut found = Vec::new();
    let mut say = |line: usize, what: String| found.push(format!("{file}:{line}: {what}"));
    let tests_start = tests_start(file, &all);
    for named in paths(&all) {
        judge_path(allowed, &named, named.line >= tests_start, dependencies, &mut say);
    }
    for (index, token) in all.iter().enumerate() {
        let next = |ahead: usize| all.get(index + ahead).map_or("", |token| token.text.as_str());
        let before =
            index.checked_sub(1).and_then(|index| all.get(index)).map_or("", |token| token.text.as_str());
        // A method of one's own may be called what it does.
        let own = before == "." && index > 1 && all[index - 2].text == "self";
        match token.text.as_str() {
            "unsafe" if !matches!(module, "linux" | "exec") && next(1) != "_code" => {
                say(token.line, "unsafe outside linux/ and exec/".into());
            }
            name if BY_NUMBER.contains(&name) && next(1) == "(" && before != "fn" && !own => {
                say(token.line, format!("{name}(): processes are reached through pidfds, never by number"));
            }
            "WaitId" if next(2) == "All" && module != "exec" => {
                say(token.line, "WaitId::All takes children that others wait for".into());
            }
            _ => {}
        }
    }
    found
}

/// The line where the unit tests of a file begin: behind it, files and processes may be made.
fn tests_start(file: &str, all: &[Token]) -> usize {
    if file.ends_with("tests.rs") {
        return 0;
    }
    all.windows(6)
        .find(|window| {
            let texts: Vec<&str> = window.iter().map(|token| token.text.as_str()).collect();
            texts == ["[", "cfg", "(", "test", ")", "]"]
        })
        .map_or(usize::MAX, |window| window[0].line)
}

fn judge_path(
    allowed: &Allowed,
    named: &Named,
    in_tests: bool,
    dependencies: &[String],
    say: &mut dyn FnMut(usize, String),
) {
    let module = allowed.module;
    let text = named.path.join("::");
    let first = named.path[0].as_str();
    let second = named.path.get(1).map_or("", String::as_str);
    if matches!(first, "crate" | "tenured") && second.chars().next().is_some_and(char::is_lowercase) {
        if !permits(allowed.modules, second) {
            say(named.line, format!("{module} may not name {text}"));
        }
        if module == "cli" && second == "bus" && named.path.get(2).is_none_or(|third| third != "proxy") {
            say(named.line, format!("cli knows the bus by bus::proxy alone, not by {text}"));
        }
    }
    let climbs = named.path.iter().take_while(|name| *name == "super").count();
    let reached = named.path.get(climbs).map_or("", String::as_str);
    if climbs > 1 && TABLE.iter().any(|row| row.module == reached) && !permits(allowed.modules, reached) {
        say(named.line, format!("{module} may not climb to {text}"));
    }
    let harmless = HARMLESS.iter().any(|part| named.starts_with(part)) || is_number(named);
    // libc comes by way of nix.
    let first = if first == "libc" { "nix" } else { first };
    let foreign = dependencies.iter().any(|dependency| dependency == first);
    if foreign && !permits(allowed.crates, first) && !in_tests && !harmless {
        say(named.line, format!("{module} may not name {text}"));
    }
    let outside = OUTSIDE.iter().any(|part| named.starts_with(part));
    if outside && !allowed.outside && !in_tests && !harmless {
        say(named.line, format!("{module} is no adapter: it may not touch {text}"));
    }
    let clock = CLOCKS.iter().any(|clock| named.starts_with(clock));
    if clock && module != "linux" && !in_tests {
        say(named.line, format!("{text}: clocks are read in linux/ alone"));
    }
}

/// The number of a signal or an error: `nix::libc::SIGTERM`.
fn is_number(named: &Named) -> bool {
    let last = named.path.last().map_or("", String::as_str);
    named.starts_with("nix::libc") && (last.starts_with("SIG") || last.starts_with('E'))
}

/// The names that Cargo.toml depends on, as code writes them.
fn dependencies() -> Vec<String> {
    let manifest = std::fs::read_to_string(crate::support::source::root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let names = manifest["dependencies"].as_table().unwrap().keys().map(|name| name.replace('-', "_"));
    names.chain(["async_std".to_owned()]).collect()
}

#[test]
fn every_file_keeps_to_the_dependency_rule() {
    let dependencies = dependencies();
    let files = files("src", "rs");
    assert!(files.len() > 10, "only {} files below src: is this the right tree?", files.len());
    let found: Vec<String> =
        files.iter().flat_map(|(file, source)| judge(file, source, &dependencies)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_violation_is_noticed() {
    let dependencies = dependencies();
    let planted = [
        ("src/core/x.rs", "use crate::store::Store;"),
        ("src/core/x.rs", "use crate::{core::ids, bus::manager};"),
        ("src/core/x.rs", "fn f() -> crate::ports::Owner { todo() }"),
        ("src/core/x.rs", "use std::{fmt, fs};"),
        ("src/core/x.rs", "fn f() { let _ = std::env::var(\"HOME\"); }"),
        ("src/core/x.rs", "use std::time::{Duration, Instant};"),
        ("src/core/x.rs", "use super::super::linux::pidfd;"),
        ("src/core/deep/x.rs", "fn f() { tokio::spawn(g()); }"),
        ("src/ports.rs", "use crate::service::types::Caller;"),
        ("src/service/x.rs", "use zbus::fdo;"),
        ("src/service/x.rs", "fn f(value: &zbus::zvariant::Value) {}"),
        ("src/service/x.rs", "use crate::bus::manager;"),
        ("src/service/x.rs", "fn f() { std::process::Command::new(\"true\"); }"),
        ("src/service/x.rs", "use rusqlite::Connection;"),
        ("src/store/x.rs", "use crate::service::types::Caller;"),
        ("src/linux/x.rs", "use crate::daemon::run;"),
        ("src/linux/x.rs", "fn f(pid: Pid) { nix::sys::signal::kill(pid, None); }"),
        ("src/linux/x.rs", "fn f() { child.kill(); }"),
        ("src/linux/x.rs", "fn f() { waitpid(None, None); }"),
        ("src/linux/x.rs", "fn f() { waitid(WaitId::All, flags); }"),
        ("src/exec/x.rs", "fn f() { waitpid(Pid::from_raw(-1), None); }"),
        ("src/exec/x.rs", "use tokio::runtime::Runtime;"),
        ("src/exec/x.rs", "fn f() { libc::kill(pid, 9); }"),
        ("src/bus/x.rs", "use crate::store::Store;"),
        ("src/bus/x.rs", "fn f() { unsafe { g() } }"),
        ("src/cli/x.rs", "use crate::bus::manager::Manager;"),
        ("src/cli/x.rs", "use crate::daemon;"),
        ("src/daemon/x.rs", "use crate::cli::Verb;"),
        ("src/daemon/x.rs", "use std::fs::File;"),
        ("src/daemon/x.rs", "use zbus::Connection;"),
        ("src/daemon/x.rs", "use nix::libc::prctl;"),
        ("src/daemon/x.rs", "use rustix::fs::open;"),
        ("src/elsewhere/x.rs", "fn f() {}"),
    ];
    for (file, source) in planted {
        let found = judge(file, source, &dependencies);
        assert!(!found.is_empty(), "{file} with `{source}` went unnoticed");
    }
}

#[test]
fn what_is_allowed_is_not_called_a_violation() {
    let dependencies = dependencies();
    let fine = [
        ("src/core/x.rs", "//! std::fs and crate::bus are words here.\nuse crate::core::ids::{Pid, Uid};"),
        ("src/core/x.rs", "const TEXT: &str = \"unsafe std::fs kill(1)\"; /* use zbus; /* nested */ */"),
        ("src/core/x.rs", "const RAW: &str = r#\"use std::fs; \"quoted\" \"#; const C: char = '\"';"),
        ("src/core/x.rs", "fn f<'a>(text: &'a str) -> &'a str { text }"),
        ("src/core/x.rs", "fn kill(self) {}"),
        ("src/daemon/x.rs", "use nix::libc::{ESRCH, SIGTERM}; fn f(&self) { self.kill(run); }"),
        ("src/core/x.rs", "#[cfg(test)]\nmod tests { use proptest::prelude::*; use std::fs; }"),
        ("src/cli/x.rs", "use crate::bus::proxy::ManagerProxy;"),
        ("src/daemon/x.rs", "use std::process::ExitCode;"),
        ("src/linux/x.rs", "fn f() { unsafe { g() } }"),
        ("src/bin/x.rs", "use tenured::daemon;"),
    ];
    for (file, source) in fine {
        assert_eq!(judge(file, source, &dependencies), Vec::<String>::new(), "{file} with `{source}`");
    }
}

#[test]
fn every_module_says_what_it_is_and_stands_in_the_code_map() {
    let map = std::fs::read_to_string(crate::support::source::root().join("src/README.md")).unwrap();
    for (file, source) in files("src", "rs") {
        if file != "src/lib.rs" {
            let first = source.lines().next().unwrap_or_default();
            assert!(first.starts_with("//!"), "{file} begins with {first:?}, not with what it is for");
        }
        let row = format!("| `{}` |", module_of(&file));
        assert!(file == "src/lib.rs" || map.contains(&row), "src/README.md has no row {row:?} for {file}");
    }
}

#[test]
fn tests_wait_for_conditions_and_never_for_time() {
    let pauses: Vec<String> = ["tests/it", "tests/sim"]
        .into_iter()
        .flat_map(|below| files(below, "rs"))
        .filter(|(file, _)| file != "tests/it/support/wait.rs")
        .flat_map(|(file, source)| {
            let all = tokens(&source);
            let calls = all.windows(2).filter(|pair| pair[0].text == "sleep" && pair[1].text == "(");
            calls.map(|pair| format!("{file}:{}", pair[0].line)).collect::<Vec<_>>()
        })
        .collect();
    assert!(pauses.is_empty(), "sleeps in tests: {pauses:?}");
}
