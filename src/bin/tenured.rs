//! `tenured`: the daemon.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().next() {
        Some(name) if name == "tenured-exec" => tenured::exec::main(),
        _ => tenured::daemon::main(),
    }
}
