//! `plinth keys`: the key file beside a cluster file. Whoever has it is trusted by the cluster.

use crate::registered::registered;
use bytes::Bytes;
use plinth_coordination::{ClusterFile, key_file};
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_identity::keys::{Key, KeyFile, KeyId, Keyring};
use plinth_protocol::control::{AdoptKeys, WORKER};
use plinth_rpc::{Credentials, Interface};
use plinth_terminal::Outcome;
use plinth_terminal::choices::{among, expected};
use plinth_terminal::commands::tell;
use plinth_terminal::connect::{
    ASK_AGAIN, ClusterArguments, Connection, block_on, check_cluster_file, find, find_for_server,
    refuse_directory,
};
use plinth_terminal::keys::{for_new_cluster, found, secret, write};
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::wording::counted;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth keys new -C plinth.cluster",
        "Make plinth.keys, before the servers of a new cluster start",
    ),
    (
        "plinth keys derive --for client --out client.keys -C plinth.cluster",
        "A file for clients, which cannot operate the cluster",
    ),
]))]
struct Arguments {
    /// Cluster file that the keys lie beside: `plinth.cluster` has `plinth.keys`. Without it $PLINTH_CLUSTER_FILE,
    /// else ./plinth.cluster, else, except for new keys, /etc/plinth/plinth.cluster
    #[arg(short = 'C', long, value_name = "FILE", global = true)]
    cluster_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a key file with a new server key. Copy it to all servers of the cluster before they start
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keys new -C plinth.cluster", "Make plinth.keys, beside the cluster file"),
    ]))]
    New,
    /// Close a running cluster that has no keys: give the key file to all its servers. Makes the file if there is none
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keys give -C plinth.cluster",
            "Give plinth.keys to all servers; from then on they speak with keys",
        ),
    ]))]
    Give {
        /// Seconds to wait for the servers
        #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds_within(1..=86_400))]
        timeout: u64,
    },
    /// Let those in who have no key. Servers follow a change of their file within a second or two
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keys open -C plinth.cluster",
            "Whoever has no key is a client, as before there were keys",
        ),
        ("plinth keys open --to reader -C plinth.cluster", "Whoever has no key may read"),
    ]))]
    Open {
        /// What they are to the cluster: client or reader
        #[arg(
            long = "to",
            value_name = "WHO",
            default_value = "client",
            hide_possible_values = true
        )]
        #[arg(value_parser = among(["client", "reader"], parse_stranger))]
        whom: Identity,
    },
    /// Let nobody in who has no key
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keys close -C plinth.cluster", "When all clients have keys"),
    ]))]
    Close,
    /// Show the ids of the keys, and who has them
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keys list -C plinth.cluster", "The ids, not the keys"),
        ("plinth keys list client.keys", "Of a file that `derive` wrote"),
    ]))]
    List {
        /// The key file itself [default: that beside the cluster file]
        #[arg(value_name = "KEYFILE", conflicts_with = "cluster_file")]
        file: Option<PathBuf>,
    },
    /// Show the token with which others read the server's page of metrics from afar
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth keys page-token -C plinth.cluster", "For the configuration of Prometheus"),
    ]))]
    PageToken,
    /// Write a key file with lower keys only, to be given to others
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keys derive --for client --out client.keys -C plinth.cluster",
            "For applications: read and write, operate nothing",
        ),
        (
            "plinth keys derive --for operator --out operator.keys -C plinth.cluster",
            "For those who operate the cluster from other machines",
        ),
    ]))]
    Derive {
        /// What the keys are for: operator, client or reader
        #[arg(long = "for", value_name = "WHO", hide_possible_values = true)]
        #[arg(value_parser = among(["operator", "client", "reader"], parse_identity))]
        whom: Identity,
        /// The file to write; there must be none
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Add a new server key in front. Old keys stay good until they are dropped
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keys add -C plinth.cluster",
            "Then copy the file to all servers, and drop the old key",
        ),
    ]))]
    Add,
    /// Remove a key
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth keys drop c10d242c81678715 -C plinth.cluster",
            "By the id that `plinth keys list` shows",
        ),
    ]))]
    Drop {
        /// As `plinth keys list` shows it
        #[arg(value_name = "ID", value_parser = parse_id)]
        id: KeyId,
    },
}

fn parse_identity(name: &str) -> Result<Identity, String> {
    let lower = [Identity::Operator, Identity::Client, Identity::Reader];
    let found = Identity::from_name(name).filter(|one| lower.contains(one));
    found.ok_or_else(|| expected(name, ["operator", "client", "reader"]))
}

fn parse_stranger(name: &str) -> Result<Identity, String> {
    let may_be = [Identity::Client, Identity::Reader];
    let found = Identity::from_name(name).filter(|one| may_be.contains(one));
    found.ok_or_else(|| expected(name, ["client", "reader"]))
}

fn parse_id(text: &str) -> Result<KeyId, String> {
    KeyId::parse(text).ok_or_else(|| "an id has 16 lower-case hexadecimal digits".into())
}

/// Closes a running cluster that has no keys: gives these to all its servers, and writes the key file if there is
/// none. Returns the number of servers.
pub async fn give(cluster: &ClusterArguments, file: &KeyFile) -> Outcome<usize> {
    // Some of them may have the keys already.
    let ring = Keyring::new(file);
    let credentials = |_: &ClusterFile| {
        Credentials::new(Some(ring.clone()), Identity::Server).tolerating_strangers()
    };
    let connection = cluster.open_as(credentials).await?;
    let known = registered(&connection, &[]).await?;
    let (incomplete, workers) = (known.incomplete(), known.workers);
    let path = key_file::beside(&connection.path);
    if !path.exists() {
        write(&path, file, false)?;
    }
    let keys = Bytes::copy_from_slice(file.print().as_bytes());
    let giving = workers.iter().map(|worker| {
        let address = worker.worker.address;
        let endpoint = Interface::new(address, WORKER).endpoint::<AdoptKeys>();
        let keys = keys.clone();
        let (transport, limit) = (&connection.transport, connection.timeout);
        let asking = async move {
            loop {
                let keys = keys.clone();
                match transport.call(&endpoint, AdoptKeys { keys }).await {
                    // It may be on its way, or come back.
                    Err(Error::connection_failed) => plinth_runtime::sleep(ASK_AGAIN).await,
                    answer => return answer,
                }
            }
        };
        async move {
            match plinth_runtime::timeout(limit, asking).await {
                Some(Ok(())) => Ok(()),
                Some(Err(Error::permission_denied)) => Err(format!("{address} has other keys")),
                Some(Err(error)) => Err(format!("{address}: {error}")),
                None => Err(format!("{address} cannot be reached")),
            }
        }
    });
    let answers = plinth_runtime::join_all(giving).await;
    let refusals = answers.into_iter().filter_map(Result::err);
    let refusals: Vec<String> = refusals.chain(incomplete).collect();
    match refusals.is_empty() {
        true => Ok(workers.len()),
        false => Err(format!(
            "not all servers have taken the keys: {}; copy {} beside their cluster files, with mode 0600",
            refusals.join("; "),
            path.display()
        )),
    }
}

/// Closes a new database on this machine, and lets its clients in. Returns a line for the user if it stays open.
pub async fn close_new(connection: &Connection) -> Outcome<Option<String>> {
    if connection.coordinators.file().is_tls {
        return Ok(None); // certificates close it
    }
    if key_file::beside(&connection.path).exists() {
        return Ok(None);
    }
    let workers = registered(connection, &[]).await?.workers;
    // Keys travel in the clear, so nothing is sent to other machines unasked.
    if !workers
        .iter()
        .all(|one| one.worker.address.ip().is_loopback())
    {
        let line = "whoever reaches its ports is trusted; close it with `plinth keys give'";
        return Ok(Some(line.into()));
    }
    let (path, file) = (key_file::beside(&connection.path), for_new_cluster());
    if let Err(line) = write(&path, &file, false) {
        let line = format!("it has no keys, so whoever reaches its ports is trusted: {line}");
        return Ok(Some(line));
    }
    let cluster = ClusterArguments::of(connection.path.clone(), connection.timeout.as_secs());
    give(&cluster, &file).await?;
    connection.credentials.set_keys(Some(Keyring::new(&file)));
    Ok(None)
}

plinth_terminal::command!(
    "keys",
    "Make and change the key file of a cluster, which says who may do what",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    block_on(carry_out(arguments))
}

/// What was done: for people, and for programs.
type Done = (String, Value);

async fn open_to(path: &Path, whom: Identity) -> Outcome<Done> {
    let mut file = found(path).await?;
    let checked = file.check_is_of_servers();
    checked.map_err(|error| format!("key file {}: {error}", path.display()))?;
    file.set_open_to(whom);
    write(path, &file, true)?;
    let (is, named) = match whom {
        Identity::Nobody => ("refused".into(), None),
        _ => (format!("a {whom}"), Some(whom.to_string())),
    };
    let line = format!("whoever has no key is {is}; copy the file to all servers");
    let object = json!({"file": path.display().to_string(), "open_to": named});
    Ok((line, object))
}

/// The lower keys that its holders use: other sides name their ids.
fn derived(key: &Key) -> impl Iterator<Item = Key> {
    let lower = [Identity::Operator, Identity::Client, Identity::Reader];
    let of = key.identity();
    let lower = lower.into_iter().filter(move |identity| *identity < of);
    lower.filter_map(|identity| key.for_identity(identity))
}

fn list_json(file: &KeyFile) -> Value {
    let plain = |key: &Key| {
        let (id, of) = (key.id().to_string(), key.identity().to_string());
        json!({ "id": id, "of": of })
    };
    let key = |key: &Key| {
        let mut listed = plain(key);
        listed["derived"] = derived(key).map(|lower| plain(&lower)).collect();
        listed
    };
    let open_to = Some(file.open_to()).filter(|whom| *whom > Identity::Nobody);
    json!({
        "keys": file.keys().map(key).collect::<Vec<_>>(),
        "open_to": open_to.map(|whom| whom.to_string()),
    })
}

/// The ids of keys, and whose they are.
pub fn list(file: &KeyFile) -> Done {
    let keys = file.keys().map(|key| {
        let lower = derived(key).map(|lower| format!("{} {}", lower.identity(), lower.id()));
        let lower: Vec<String> = lower.collect();
        let gives = if lower.is_empty() { "" } else { "; gives " };
        format!("{} {}{gives}{}", key.id(), key.identity(), lower.join(", "))
    });
    let open = file.open_to();
    let open = (open > Identity::Nobody).then(|| format!("open to {open}s without a key"));
    let lines: Vec<String> = keys.chain(open).collect();
    (lines.join("\n"), list_json(file))
}

async fn carry_out(arguments: Arguments) -> Outcome {
    if let Command::List { file: Some(file) } = &arguments.command {
        let (line, object) = list(&found(file).await?);
        tell(arguments.json, &line, &object);
        return Ok(());
    }
    let given = arguments.cluster_file.as_deref();
    let cluster_file = match arguments.command {
        // There need be no cluster file yet, and nobody wants new keys where those of the machine may come to be.
        Command::New => find_for_server(given),
        _ => find(given).await,
    };
    let path = key_file::beside(&cluster_file);
    match arguments.command {
        Command::New => refuse_directory(&cluster_file)?,
        Command::Give { .. } => {} // it reads the cluster file
        _ if path.exists() => {}
        _ => check_cluster_file(&cluster_file, given.is_none()).await?,
    }
    let (line, object) = done(arguments.command, cluster_file, &path).await?;
    tell(arguments.json, &line, &object);
    Ok(())
}

async fn done(command: Command, cluster_file: PathBuf, path: &Path) -> Outcome<Done> {
    let wrong = |error: plinth_identity::keys::KeyFileError| {
        format!("key file {}: {error}", path.display())
    };
    Ok(match command {
        Command::New => {
            write(path, &KeyFile::new_root(secret()), false)?;
            let file = path.display().to_string();
            let line = format!(
                "{file} is made; copy it beside the cluster file of each server, with mode 0600"
            );
            (line, json!({"file": file}))
        }
        Command::Give { timeout } => {
            let cluster = ClusterArguments::of(cluster_file, timeout);
            let known = key_file::load(path).await?;
            let file = known.unwrap_or_else(|| KeyFile::new_root(secret()));
            let servers = give(&cluster, &file).await?;
            let have = counted(servers, "server has", "servers have");
            let line =
                format!("{have} the keys; connections without a key end with their processes");
            (
                line,
                json!({"file": path.display().to_string(), "servers": servers}),
            )
        }
        Command::Open { whom } => open_to(path, whom).await?,
        Command::Close => open_to(path, Identity::Nobody).await?,
        Command::List { .. } => list(&found(path).await?),
        Command::PageToken => {
            let tokens = Keyring::new(&found(path).await?).page_tokens();
            let token = tokens.first().expect("every key gives a reader's");
            (token.clone(), json!({"token": token}))
        }
        Command::Derive { whom, out } => {
            let lower = found(path).await?.for_identity(whom).map_err(wrong)?;
            write(&out, &lower, false)?;
            let out = out.display().to_string();
            let line = format!("{out} is made, with keys of {whom}s");
            (line, json!({"file": out, "of": whom.to_string()}))
        }
        Command::Add => {
            let mut file = found(path).await?;
            let id = file.add_generation(secret()).map_err(wrong)?;
            write(path, &file, true)?;
            let line =
                format!("{id} is added; when all processes have the file, drop the old keys");
            (line, json!({"added": id.to_string()}))
        }
        Command::Drop { id } => {
            let mut file = found(path).await?;
            file.drop_id(id).map_err(wrong)?;
            write(path, &file, true)?;
            (
                format!("{id} is dropped"),
                json!({"dropped": id.to_string()}),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_ids_that_refusals_name_beside_those_of_the_file() {
        let file = KeyFile::new_root(secret());
        let listed = list_json(&file);
        let of: Vec<&str> = listed["keys"][0]["derived"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|key| key["of"].as_str())
            .collect();
        assert_eq!(of, ["operator", "client", "reader"]);
        let reader = file.for_identity(Identity::Reader).expect("lower");
        assert_eq!(list_json(&reader)["keys"][0]["derived"], json!([]));
        assert_eq!(
            list_json(&reader)["keys"][0]["id"],
            listed["keys"][0]["derived"][2]["id"]
        );
    }
}
