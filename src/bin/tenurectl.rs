//! `tenurectl`, and by the name that it is started with also the other programs: a build of this one alone
//! can do everything, as `tenurectl demo` shows.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    match Path::new(&name).file_name().and_then(|name| name.to_str()) {
        Some("tenured") => tenured::daemon::main(),
        Some("tenured-exec") => tenured::exec::main(),
        _ => tenured::cli::main(),
    }
}
