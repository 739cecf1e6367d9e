//! What every process that serves has: its records, its settings, and the end with its parent.

use crate::Outcome;
use crate::configuration::ConfigArgument;
use crate::knobs::{parse_knob, parse_knobs};
use crate::process::{follow_parent, raise_file_limit};
use crate::{allocator, trace_file};
use plinth_runtime::knobs::set_knobs;
use plinth_runtime::real::block_on;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Clone, Debug)]
pub struct ServingArguments {
    /// Set a limit or an interval; `--knob list` shows all knobs
    #[arg(long = "knob", value_name = "NAME=VALUE", value_parser = parse_knob)]
    knobs: Vec<String>,
    /// File for trace events, one JSON object per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// File for who connected, was refused and changed what, one JSON object per line; without it audit.jsonl in the
    /// data directory, if there is one
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    #[command(flatten)]
    _config: ConfigArgument,
    /// End when the process with this number, the parent, ends
    #[arg(long, hide = true)]
    parent: Option<u32>,
}

impl ServingArguments {
    /// Whoever starts the process beside others, as `dev` does, tells of it itself.
    pub fn tells_of_itself(&self) -> bool {
        self.parent.is_none()
    }

    /// Prepares the process and runs `serve` on its loop. `knobs` are `NAME=VALUE`, and come before those of the user.
    ///
    /// # Errors
    /// A line for the user.
    pub fn run(
        &self,
        data_directory: Option<&Path>,
        knobs: &[String],
        serve: impl Future<Output = Outcome>,
    ) -> Outcome {
        self.prepare(data_directory, knobs)?;
        let outcome = block_on(serve);
        trace_file::flush();
        outcome
    }

    fn prepare(&self, data_directory: Option<&Path>, knobs: &[String]) -> Outcome {
        set_knobs(parse_knobs(&[knobs, &self.knobs].concat())?);
        if let Some(parent) = self.parent {
            follow_parent(parent)?;
        }
        if let Some(audit) = &self.audit {
            trace_file::check(audit, "audit")?;
        }
        trace_file::start(self.trace.as_deref())?;
        let usual = data_directory.map(|directory| directory.join("audit.jsonl"));
        if let Some(audit) = self.audit.as_ref().or(usual.as_ref()) {
            trace_file::audit_to(audit)?;
        }
        allocator::return_free_memory_when_idle()?;
        raise_file_limit();
        Ok(())
    }
}
