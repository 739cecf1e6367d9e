//! `plinth token`: keys that sign tokens, and the tokens. Whoever shows a token may do what it grants.

mod show;

use bytes::Bytes;
use plinth_coordination::ClusterFile;
use plinth_core::key::unprintable;
use plinth_identity::files::FileKind;
use plinth_identity::tokens::{Claims, SigningKey, Tenant};
use plinth_runtime::unix_time_ms;
use plinth_terminal::Outcome;
use plinth_terminal::commands::{Commands, tell, wrong_usage};
use plinth_terminal::given::other_kind;
use plinth_terminal::keys;
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::seconds::in_bounds;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// First word of a file with a signing key: `plinth-sign-1 NAME SECRET`, the secret in hexadecimal digits.
const FORMAT: &str = "plinth-sign-1";
/// Bits of the mode that let others read or change the file.
const OTHERS: u32 = 0o077;

#[derive(clap::Subcommand, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    ("plinth token new --name web --out web.sign", "A key that signs"),
    (
        "plinth token sign --key web.sign --read app/ --for 12h",
        "A token for whoever may read the keys below app/",
    ),
]))]
enum Command {
    /// Make a key that signs tokens, and say how a database trusts it
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth token new --name web --out web.sign",
            "Make the key, and print the statement by which a database trusts it",
        ),
    ]))]
    New {
        /// The name by which the database knows the key
        #[arg(long)]
        name: String,
        /// The file to write, with mode 0600; there must be none
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the name and the public key of a signing key
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth token public --key web.sign",
            "What a database is told; the key itself stays here",
        ),
    ]))]
    Public {
        /// The signing key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sign a token and print it
    #[command(after_help = plinth_terminal::examples(&[
        (
            "plinth token sign --key web.sign --read app/ --write app/cart/ --for 12h",
            "Reads below app/, writes below app/cart/, for half a day",
        ),
        (
            "plinth token sign --key web.sign --tenant 3 --for 30d --subject billing",
            "All of one tenant; the log of the servers names who it is",
        ),
    ]))]
    Sign(SignArguments),
    /// Show what a token grants, for whom and how long; or of a file with keys whose they are. Never a secret
    #[command(after_help = plinth_terminal::examples(&[
        ("plinth token show web.token", "Prefixes, tenants, clusters, and when it is over"),
        ("plinth token show web.sign", "The name of a signing key"),
        ("plinth token show - < web.token", "From standard input"),
    ]))]
    Show {
        /// A file with a token, a signing key or a cluster's keys; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args, Debug)]
struct SignArguments {
    /// The signing key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Grant reads of keys with this prefix; \xNN stands for a byte. May be given several times
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    read: Vec<Bytes>,
    /// Grant writes of keys with this prefix; no reads. May be given several times
    #[arg(long, value_name = "PREFIX", value_parser = parse_prefix)]
    write: Vec<Bytes>,
    /// Grant reads and writes of the tenant with this number, as `gettenant` shows it. May be given several times
    #[arg(long, value_name = "NUMBER", value_parser = parse_tenant)]
    tenant: Vec<u64>,
    /// How long it is good: seconds, or a time such as 90s, 15m, 12h or 30d
    #[arg(long = "for", value_name = "TIME", value_parser = parse_seconds)]
    seconds: u64,
    /// For this cluster alone: the part of its cluster file before the `@`. May be given several times
    #[arg(long, value_name = "DESCRIPTION:ID", value_parser = parse_cluster)]
    cluster: Vec<String>,
    /// Who has it, for the log
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_prefix(text: &str) -> Result<Bytes, String> {
    let bytes = unprintable(text);
    bytes
        .map(Bytes::from)
        .ok_or_else(|| "a `\\' is followed by another or by xNN".into())
}

/// Names change, and numbers do not.
fn parse_tenant(text: &str) -> Result<u64, String> {
    let wanted = || {
        format!("expected the tenant's number: `plinth cli --exec \"gettenant {text}\"' shows it")
    };
    text.parse().map_err(|_| wanted())
}

/// The name of a cluster, as its servers compare it.
fn parse_cluster(text: &str) -> Result<String, String> {
    let file = ClusterFile::parse(&format!("{text}@127.0.0.1:1"));
    let file = file.ok().filter(|_| !text.contains('@'));
    let wanted = "it is what stands before the `@' in a cluster file, such as orders:a1b2";
    file.map(|file| file.key()).ok_or_else(|| wanted.into())
}

fn parse_seconds(text: &str) -> Result<u64, String> {
    in_bounds(text, 1.0, 1e15).map(|seconds| seconds as u64)
}

fn print(key: &SigningKey) -> String {
    let secret = key.secret().iter().map(|byte| format!("{byte:02x}"));
    let secret: String = secret.collect();
    format!(
        "# Whoever can read this file signs tokens. Keep it at mode 0600.\n{FORMAT} {secret} {}\n",
        key.name()
    )
}

fn parse(text: &str) -> Option<SigningKey> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let mut words = line.splitn(3, ' ');
    let (format, secret, name) = (words.next()?, words.next()?, words.next()?);
    let byte = |at: usize| u8::from_str_radix(secret.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
    let secret: [u8; 32] = bytes.filter(|_| secret.len() == 64)?.try_into().ok()?;
    SigningKey::new(name, secret).filter(|_| format == FORMAT)
}

fn load(path: &Path) -> Outcome<SigningKey> {
    let at = |what: String| format!("signing key {}: {what}", path.display());
    let cannot = |error: std::io::Error| at(why_not_read(&error, "--key"));
    // Another file need not be secret.
    if let Some(other) = other_kind(FileKind::SigningKey, path) {
        return Err(at(format!(
            "{other}; `plinth token new' makes one that signs"
        )));
    }
    let mode = std::fs::metadata(path).map_err(cannot)?;
    let mode = mode.permissions().mode();
    if mode & OTHERS != 0 {
        let what = format!(
            "others can read it (mode {:04o}); revoke it if somebody may have, or run chmod 600 on it",
            mode & 0o7777
        );
        return Err(at(what));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let wrong = || at("it is damaged, or no signing key; make one with `plinth token new'".into());
    parse(&text).ok_or_else(wrong)
}

plinth_terminal::command!(
    "token",
    "Make keys that sign tokens; sign and show tokens: grants of a part of a database to clients",
    Commands<Command> => run
);

fn run(Commands { command }: Commands<Command>) -> Outcome {
    match command {
        Command::New { name, out, json } => {
            let key = SigningKey::new(&name[..], keys::secret());
            let key = key.filter(|_| !name.contains(['\n', '\r']));
            let key = key.ok_or("a name has from 1 to 128 bytes, without a line break")?;
            keys::write_secret(&out, print(&key).as_bytes(), false)?;
            let public = key.public().to_string();
            let line = format!(
                "{} is made; let a database trust it in `plinth cli':\ntrustkey {name} {public}",
                out.display()
            );
            let object = json!({"file": out.display().to_string(), "name": name, "public": public});
            tell(json, &line, &object);
            Ok(())
        }
        Command::Public { key, json } => {
            let key = load(&key)?;
            let (name, public) = (key.name(), key.public().to_string());
            let object = json!({"name": name, "public": public});
            tell(json, &format!("{name} {public}"), &object);
            Ok(())
        }
        Command::Show { file, json } => {
            let (line, object) = show::show(&file)?;
            tell(json, &line, &object);
            Ok(())
        }
        Command::Sign(arguments) => {
            if arguments.read.is_empty()
                && arguments.write.is_empty()
                && arguments.tenant.is_empty()
            {
                wrong_usage(
                    "the token would grant nothing; name keys with --read or --write, or a tenant with --tenant",
                );
            }
            let key = load(&arguments.key)?;
            let claims = Claims {
                until: (unix_time_ms() / 1000).saturating_add(arguments.seconds),
                from: None,
                audience: arguments.cluster,
                subject: arguments.subject,
                read: arguments.read,
                write: arguments.write,
                tenants: arguments.tenant.into_iter().map(Tenant::Id).collect(),
            };
            let token = key.sign(&claims).map_err(|error| error.to_string())?;
            tell(
                arguments.json,
                &token,
                &json!({"token": token, "until": claims.until}),
            );
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_key_comes_back_from_its_file_and_damage_is_noticed() {
        let key = SigningKey::new("the web", [0xa5; 32]).expect("a name");
        let text = print(&key);
        let again = parse(&text).expect("it is whole");
        assert_eq!((again.name(), again.secret()), (key.name(), key.secret()));
        for wrong in [
            "",
            "plinth-sign-1 a5a5 web",
            &text.replace("sign-1", "sign-2"),
            &text.replace("a5a5", "a5"),
            &format!("{text}{text}"),
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn times_and_prefixes_are_read_as_they_are_written() {
        assert_eq!(parse_seconds("90s"), Ok(90));
        assert_eq!(parse_seconds("2h"), Ok(7200));
        assert_eq!(parse_seconds("90"), Ok(90));
        assert_eq!(parse_tenant("3"), Ok(3));
        assert!(parse_tenant("web").is_err_and(|line| line.contains("gettenant web")));
        assert_eq!(parse_seconds("30d"), Ok(30 * 24 * 3600));
        for wrong in ["", "h", "0s", "-1s", "5w", "99999999999999999999d", "é"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_prefix("app\\x00"), Ok(Bytes::from_static(b"app\0")));
        assert!(parse_prefix("app\\q").is_err());
        assert_eq!(parse_cluster("orders:a1_2"), Ok("orders:a1".into()));
        for wrong in ["foo", "foo:", "a:b@10.0.0.1:1", "", "a:b,c"] {
            assert!(parse_cluster(wrong).is_err(), "{wrong}");
        }
    }
}
