//! `demo`.

use clap::Args;

use crate::cli::render::Screen;
use crate::cli::verbs::Ended;

/// `demo`.
#[derive(Args, Clone, Debug)]
pub struct Demo {}

/// Runs.
///
/// # Errors
/// None.
pub async fn run(screen: &Screen, _demo: &Demo) -> Ended {
    screen.print("not yet")?;
    Ok(1)
}
