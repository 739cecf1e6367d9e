//! `--knob NAME=VALUE` of any command.

use crate::Outcome;
use plinth_runtime::knobs::Knobs;

pub fn parse_knobs(texts: &[String]) -> Outcome<Knobs> {
    let mut knobs = Knobs::default();
    for text in texts {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("--knob {text}: expected NAME=VALUE"))?;
        knobs
            .set(name, value)
            .map_err(|error| format!("--knob {text}: {error}; `--knob list` shows all"))?;
    }
    Ok(knobs)
}
