//! `plinth keys`: the key file beside a cluster file. Whoever has it is trusted by the cluster.

use crate::Outcome;
use plinth_coordination::{cluster_file, key_file};
use plinth_identity::Identity;
use plinth_identity::keys::{KeyFile, KeyId};
use plinth_runtime::random;
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Only the owner reads and writes it.
const MODE: u32 = 0o600;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Cluster file that the keys lie beside: `plinth.cluster` has `plinth.keys`
    #[arg(
        short = 'C',
        long,
        value_name = "FILE",
        global = true,
        env = cluster_file::ENVIRONMENT_VARIABLE,
        default_value = cluster_file::DEFAULT_NAME
    )]
    cluster_file: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a key file with a new server key. Copy it to all servers of the cluster before they start
    New,
    /// Show the ids of the keys, and who has them
    List,
    /// Write a key file with lower keys only, to be given to others
    Derive {
        /// What the keys are for: operator, client or reader
        #[arg(long = "for", value_name = "WHO", value_parser = parse_identity)]
        whom: Identity,
        /// The file to write; there must be none
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Add a new server key in front. Old keys stay good until they are dropped
    Add,
    /// Remove a key
    Drop {
        /// As `plinth keys list` shows it
        #[arg(value_name = "ID", value_parser = parse_id)]
        id: KeyId,
    },
}

fn parse_identity(name: &str) -> Result<Identity, String> {
    let lower = [Identity::Operator, Identity::Client, Identity::Reader];
    let found = Identity::from_name(name).filter(|one| lower.contains(one));
    found.ok_or_else(|| "there are operator, client and reader".into())
}

fn parse_id(text: &str) -> Result<KeyId, String> {
    KeyId::parse(text).ok_or_else(|| "an id has 16 lower-case hexadecimal digits".into())
}

fn secret() -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
    random::fill_secret(&mut secret);
    secret
}

/// Writes a file that only its owner can read. It is there in full, or not at all.
fn write(path: &Path, file: &KeyFile, replaces: bool) -> Outcome {
    let at = |error: std::io::Error| format!("key file {}: {error}", path.display());
    if !replaces && path.exists() {
        return Err(format!(
            "key file {}: it is there already; nothing has changed",
            path.display()
        ));
    }
    let part = path.with_extension(format!("{:016x}.part", random::u64()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&part);
    let written = written.and_then(|mut part| {
        part.set_permissions(Permissions::from_mode(MODE))?;
        part.write_all(file.print().as_bytes())?;
        part.sync_all()
    });
    let put = |()| match replaces {
        true => std::fs::rename(&part, path),
        // Fails if somebody else has made it meanwhile.
        false => std::fs::hard_link(&part, path).and_then(|()| std::fs::remove_file(&part)),
    };
    let put = written.and_then(put);
    if put.is_err() {
        let _ = std::fs::remove_file(&part); // it may not be there
    }
    put.map_err(at)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    OpenOptions::new()
        .read(true)
        .open(above)
        .and_then(|above| above.sync_all())
        .map_err(at)
}

async fn found(path: &Path) -> Outcome<KeyFile> {
    let found = key_file::load(path).await?;
    found.ok_or_else(|| {
        format!(
            "key file {}: there is none; make one with `plinth keys new`, or name the cluster file with -C",
            path.display()
        )
    })
}

pub fn run(arguments: Arguments) -> Outcome {
    crate::connect::block_on(carry_out(arguments))
}

async fn carry_out(arguments: Arguments) -> Outcome {
    let path = key_file::beside(&arguments.cluster_file);
    let wrong = |error: plinth_identity::keys::KeyFileError| {
        format!("key file {}: {error}", path.display())
    };
    match arguments.command {
        Command::New => {
            write(&path, &KeyFile::new_root(secret()), false)?;
            println!(
                "{} is made; copy it beside the cluster file of each server, with mode 0600",
                path.display()
            );
        }
        Command::List => {
            for (id, identity) in found(&path).await?.ids() {
                println!("{id} {identity}");
            }
        }
        Command::Derive { whom, out } => {
            let lower = found(&path).await?.for_identity(whom).map_err(wrong)?;
            write(&out, &lower, false)?;
            println!("{} is made, with keys of {whom}s", out.display());
        }
        Command::Add => {
            let mut file = found(&path).await?;
            let id = file.add_generation(secret()).map_err(wrong)?;
            write(&path, &file, true)?;
            println!("{id} is added; when all processes have the file, drop the old keys");
        }
        Command::Drop { id } => {
            let mut file = found(&path).await?;
            file.drop_id(id).map_err(wrong)?;
            write(&path, &file, true)?;
            println!("{id} is dropped");
        }
    }
    Ok(())
}
