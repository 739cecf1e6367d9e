//! What `plinth --version` says: release, commit, protocol, formats of files.

use plinth_control::recovery::STATE_FORMAT;
use plinth_rpc::PROTOCOL_VERSION;
use plinth_server::DATA_DIRECTORY_FORMAT;
use std::sync::LazyLock;

/// The commit, if the build was told: `make release` does.
const COMMIT: Option<&str> = option_env!("PLINTH_COMMIT");

/// `plinth -V` gives the release alone. Processes of one cluster speak the same protocol.
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(text);
    &TEXT
}

fn text() -> String {
    format!(
        "{}\ncommit {}\nprotocol {PROTOCOL_VERSION:x}\n\
        formats: data directory {DATA_DIRECTORY_FORMAT}, coordinated state {STATE_FORMAT}",
        env!("CARGO_PKG_VERSION"),
        COMMIT
            .filter(|commit| !commit.is_empty())
            .unwrap_or("unknown"),
    )
}
