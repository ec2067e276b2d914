//! The command line of `tenured`.

use std::path::PathBuf;

use clap::Parser;

/// A durable board of tasks for this host, and the supervisor of the workers that hold them.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "tenured",
    version,
    after_help = "Runs in the foreground. SIGHUP reads the configuration again; SIGTERM ends the daemon and leaves its \
                  workers alone: they are taken up again at the next start."
)]
pub struct Args {
    /// Serve the session bus, with the directories of this user
    #[arg(long)]
    pub user: bool,
    /// Read this file, and no other
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the board, exit records and output are
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where the private socket and the boot's nonce are
    #[arg(long, value_name = "DIR")]
    pub runtime_dir: Option<PathBuf>,
    /// Have workers started by the launcher that listens at this socket, not by this process
    #[arg(long, value_name = "SOCKET")]
    pub launcher: Option<PathBuf>,
    /// Serve the private socket alone
    #[arg(long)]
    pub no_bus: bool,
    /// Check the configuration and end
    #[arg(long)]
    pub check_config: bool,
    /// Print the configuration with every default, and end
    #[arg(long)]
    pub print_config: bool,
    /// End when standard input does: for a client that lends its life
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
    /// Start no tasks in this life: for a client that only looks and edits
    #[arg(long, hide = true)]
    pub no_dispatch: bool,
}
