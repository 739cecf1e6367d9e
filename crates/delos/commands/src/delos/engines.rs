//! Engines that an operator names.

use super::service::Seen;
use plinth_core::similar::question;
use plinth_delos::stacks::ENGINES;
use plinth_terminal::Outcome;
use std::collections::BTreeSet;

/// Refuses an engine that neither a replica has nor this program: nobody has to wait to know that it is a mistake.
pub fn check(engine: &str, seen: &[Seen]) -> Outcome {
    let of_replicas = seen.iter().flat_map(|seen| &seen.member.engines);
    let own = ENGINES.iter().map(|engine| engine.name);
    refuse_unknown(
        engine,
        &of_replicas.map(String::as_str).chain(own).collect(),
    )
}

fn refuse_unknown(engine: &str, known: &BTreeSet<&str>) -> Outcome {
    if known.contains(engine) {
        return Ok(());
    }
    let all: Vec<&str> = known.iter().copied().collect();
    Err(format!(
        "no replica has an engine {engine:?}; {}there are {}; if a newer release has it, start the replicas with that \
         release, one after the other, and try again",
        question(engine, all.iter().copied()),
        all.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_nobody_has_is_answered_with_the_one_that_is_meant() {
        let known = BTreeSet::from(["batching", "lease"]);
        assert_eq!(refuse_unknown("lease", &known), Ok(()));
        let line = refuse_unknown("batchng", &known).expect_err("nobody has it");
        assert!(
            line.contains("did you mean `batching'? there are batching, lease;"),
            "{line}"
        );
        let line = refuse_unknown("foo", &known).expect_err("nobody has it");
        assert!(
            line.contains("\"foo\"; there are batching, lease;"),
            "{line}"
        );
    }
}
