//! What a coordinator is like, for people whose cluster does not answer.

use crate::ClusterFile;
use plinth_core::Error;
use plinth_core::texts;
use plinth_identity::greeting::Refusal;
use plinth_protocol::coordination::{GetLeader, ask};
use plinth_rpc::{Place, Transport};
use plinth_runtime::{Boxed, Duration, timeout};

/// A coordinator that does not answer in this time is reported as silent.
const LIMIT: Duration = Duration::from_secs(1);

texts! {
    /// See the module.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Look {
        Answers { has_leader: bool } = "answers";
        /// It no longer knows what it has promised.
        Lost = "has lost its file `coordination'";
        /// Another process than a coordinator.
        NoCoordinator = "a server, but not a coordinator";
        /// Nobody listens there.
        Unreached = "cannot be reached";
        /// Its name does not stand for an address yet.
        Unresolved = "the name is not resolved to an address yet";
        /// A process without its name is found at the address of its name.
        OtherName = "another server is there; the one that has this name is started with --public-address NAME:PORT";
        OtherCluster = "belongs to another cluster";
        OtherVersion = "speaks another version";
        /// It answers only those who have a key.
        NeedsKey =
            "needs a key or a certificate; put the cluster's key file beside the cluster file, as NAME.keys, or \
            see Certificates in docs/security.md";
        /// Its keys and ours do not fit.
        Ungreeted(refusal: Refusal) = "{refusal}";
        Silent = "no answer";
        Fails(error: Error) = "fails: {error}";
    }
}

impl Look {
    /// A server of this cluster is there.
    pub fn is_server(&self) -> bool {
        matches!(
            self,
            Look::Answers { .. } | Look::Lost | Look::NoCoordinator
        )
    }
}

/// Asks one of the coordinators, or any other server.
pub fn look_at<'a>(
    transport: &'a Transport,
    file: &'a ClusterFile,
    place: &'a Place,
) -> Boxed<'a, Look> {
    Box::pin(async move {
        let register = file.register();
        let call = ask(transport, place, GetLeader { register });
        match timeout(LIMIT, call).await {
            Some(Ok(reply)) if reply.lost.is_some() => Look::Lost,
            Some(Ok(reply)) if reply.leader.is_some() => Look::Answers { has_leader: true },
            Some(Ok(reply)) if !reply.is_coordinator => Look::NoCoordinator,
            Some(Ok(_)) => Look::Answers { has_leader: false },
            Some(Err(Error::permission_denied)) => Look::NeedsKey,
            Some(Err(Error::connection_failed)) | None if transport.is_unresolved(place) => {
                Look::Unresolved
            }
            // The connection with a process that has not the name is given up after its first answer.
            Some(Err(Error::broken_promise | Error::request_maybe_delivered))
                if place.is_named() =>
            {
                Look::OtherName
            }
            Some(Err(Error::connection_failed)) => match transport.ungreeted(place) {
                Some(refusal) => Look::Ungreeted(refusal),
                None => Look::Unreached,
            },
            Some(Err(Error::connection_string_invalid | Error::wrong_connection_file)) => {
                Look::OtherCluster
            }
            Some(Err(Error::incompatible_protocol_version)) => Look::OtherVersion,
            Some(Err(_)) if transport.is_unreachable(place) => Look::Silent,
            Some(Err(error)) => Look::Fails(error),
            None => Look::Silent,
        }
    })
}

/// Coordinators with what is said of each: once of those of whom the same is said.
pub fn together<'a>(said: impl Iterator<Item = (&'a Place, String)>) -> String {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (place, what) in said {
        match groups.iter_mut().find(|(_, said)| *said == what) {
            Some((places, _)) => *places += &format!(", {place}"),
            None => groups.push((place.to_string(), what)),
        }
    }
    let groups: Vec<String> = groups
        .iter()
        .map(|(places, what)| format!("{places} ({what})"))
        .collect();
    groups.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_coordinators_say_is_told_once() {
        let at = |port| Place::At(([10, 0, 0, 1], port).into());
        let (one, two, three) = (at(1), at(2), at(3));
        let said = [
            (&one, "no key".to_owned()),
            (&two, "gone".to_owned()),
            (&three, "no key".to_owned()),
        ];
        let line = "10.0.0.1:1, 10.0.0.1:3 (no key), 10.0.0.1:2 (gone)";
        assert_eq!(together(said.into_iter()), line);
        assert_eq!(together([].into_iter()), "");
    }
}
