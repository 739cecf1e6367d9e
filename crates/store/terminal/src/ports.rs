//! Ports of processes that a command starts. One that somebody else has is told by the command, which knows its flag.

use crate::Outcome;
use plinth_runtime::net::Chosen;
use std::net::{SocketAddr, TcpListener};

/// Refuses the first address at which it cannot be listened. Nobody has them when this returns.
///
/// # Errors
/// A line for the user.
pub fn check_free(wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>) -> Outcome {
    for (address, chosen) in wanted {
        let found = TcpListener::bind(address);
        found
            .map(drop)
            .map_err(|error| chosen.refused(address, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_refused_and_the_others_stay_free() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|at| (taken, at));
        let (listener, at) = taken.expect("an address");
        let any = SocketAddr::new(at.ip(), 0);
        let wanted = [
            (any, Chosen::By("--pages-port")),
            (at, Chosen::Default("--port")),
        ];
        let line = check_free(wanted).expect_err("it is taken");
        let begin = format!("cannot listen at {at} (the default of --port): another process");
        assert!(line.starts_with(&begin), "{line}");
        drop(listener);
        assert_eq!(check_free([(at, Chosen::By("--port")); 2]), Ok(()));
    }
}
