//! Why the coordinators do not tell a process what it wants: they do not answer, they keep something else, or its keys
//! or certificates do not let it take part.

use plinth_coordination::{ClusterFile, Look, look_at};
use plinth_core::Error;
use plinth_farm_member::CoordinatedRegister;
use plinth_identity::Identity;
use plinth_rpc::Transport;
use plinth_runtime::{Either, join_all, race};

/// For a process that listens to nobody. Whoever reads what the coordinators keep proves to be a server.
pub fn caller(file: &ClusterFile) -> Transport {
    Transport::client_with(file.credentials(Identity::Server))
}

/// Why no majority of the coordinators lets this process ask, a line for the user; `None` if one may.
pub fn denial(transport: &Transport, file: &ClusterFile) -> Option<String> {
    let denied = file.coordinators.iter();
    let mut denied = denied.filter(|at| transport.is_denied(at)).peekable();
    let first = *denied.peek()?;
    if file.coordinators.len() - denied.count() >= file.majority() {
        return None;
    }
    Some(match transport.ungreeted(first) {
        Some(refusal) => format!("the coordinator {first}: {refusal}"),
        None if file.is_tls => format!(
            "the coordinator {first} refuses this process: its certificate does not stand for a server; show one that \
             does, or see --tls-identity there"
        ),
        None => format!(
            "the coordinator {first} refuses this process: it needs a server's key; put the cluster's key file \
             beside the cluster file, as NAME.keys. If the cluster speaks TLS, use its file with :tls"
        ),
    })
}

/// The answer of the coordinators, unless they let this process ask nothing.
///
/// # Errors
/// [`denial`].
pub async fn unless_denied<T>(
    transport: &Transport,
    file: &ClusterFile,
    asked: impl Future<Output = T>,
) -> Result<T, String> {
    let is_denied = |_: &u64| denial(transport, file).is_some();
    match race(asked, transport.denials().wait_until(is_denied)).await {
        Either::Left(answer) => Ok(answer),
        Either::Right(_) => Err(denial(transport, file).unwrap_or_default()),
    }
}

/// Why the record cannot be read: a line for the user.
pub async fn other_state(register: &CoordinatedRegister, error: Error) -> String {
    match error {
        Error::file_corrupt | Error::wrong_connection_file => register.not_a_record().await,
        error => format!("the coordinators: {error}"),
    }
}

/// The coordinators that do not answer, each with the reason, for a line.
///
/// # Errors
/// One is of another cluster: a line for the user.
pub async fn silent_coordinators(
    transport: &Transport,
    file: &ClusterFile,
) -> Result<String, String> {
    let looks = file
        .coordinators
        .iter()
        .map(|at| look_at(transport, file, at));
    let looks = join_all(looks).await;
    let looks: Vec<_> = file.coordinators.iter().zip(looks).collect();
    if let Some((at, _)) = looks.iter().find(|(_, look)| *look == Look::OtherCluster) {
        return Err(format!(
            "the coordinator {at} belongs to another cluster: name the right cluster file with -C"
        ));
    }
    let silent = looks
        .iter()
        .filter(|(_, look)| !matches!(look, Look::Answers { .. }));
    let silent: Vec<String> = silent.map(|(at, look)| format!("{at} ({look})")).collect();
    Ok(silent.join(", "))
}
