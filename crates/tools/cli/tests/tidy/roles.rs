//! The pages of the roles: what each role promises, and a drawing of it.

use super::crates;

/// The file in `crates/store` with the page of each role.
const PAGES: [&str; 13] = [
    "control/src/controller.rs",
    "control/src/distributor.rs",
    "control/src/ratekeeper.rs",
    "control/src/recovery.rs",
    "coordination/src/coordinator.rs",
    "coordination/src/election.rs",
    "log/src/log_server.rs",
    "server/src/worker.rs",
    "storage/src/server.rs",
    "transaction/src/commit_proxy.rs",
    "transaction/src/grv_proxy.rs",
    "transaction/src/resolver.rs",
    "transaction/src/sequencer.rs",
];

#[test]
fn the_page_of_a_role_says_what_it_promises_and_draws_it() {
    for page in PAGES {
        let file = crates().join("store").join(page);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{page}: {e}"));
        let lines: Vec<&str> = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        let promises = lines.iter().any(|line| line.contains("promises"));
        assert!(promises, "{page} says what the role promises");
        assert!(lines.contains(&"//! ```text"), "{page} draws the role");
    }
}
