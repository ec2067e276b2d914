//! The supervisor of one worker. Started by the daemon only.

fn main() -> std::process::ExitCode {
    tenured::exec::main()
}
