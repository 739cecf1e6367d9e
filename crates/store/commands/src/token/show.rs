//! What is in a file of rights: a token, a key that signs tokens, or the keys of a cluster. Never a secret.

use super::{FORMAT, parse};
use crate::keys::list;
use plinth_core::key::printable;
use plinth_identity::files::FileKind;
use plinth_identity::keys::KeyFile;
use plinth_identity::tokens::{Claims, Tenant, said};
use plinth_runtime::unix_time_ms;
use plinth_terminal::Outcome;
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::seconds::spanned;
use plinth_terminal::token::is_one;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// A longer file has none of them.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// With this word lines of key files begin.
const KEY_LINE: &str = "plinth-key-";

/// What there is to say about a file, or about standard input: for people, and for programs.
pub fn show(path: &Path) -> Outcome<(String, Value)> {
    // A token in place of its file is not repeated: others see what is on a screen.
    if path.to_str().is_some_and(is_one) {
        return Err(
            "that is a token itself; name its file, or give it on standard input with -".into(),
        );
    }
    let at = |what: String| format!("{}: {what}", path.display());
    let cannot = |error: std::io::Error| at(why_not_read(&error, ""));
    let mut bytes = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin()
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes),
        false => {
            let file = std::fs::OpenOptions::new().read(true).open(path);
            file.map_err(cannot)?
                .take(FILE_BYTES_MAX + 1)
                .read_to_end(&mut bytes)
        }
    };
    read.map_err(cannot)?;
    let text = String::from_utf8(bytes).ok();
    let text = text.filter(|text| text.len() as u64 <= FILE_BYTES_MAX);
    let text = text.ok_or_else(|| at("it is no text of a token or of keys".into()))?;
    shown(&text, unix_time_ms() / 1000).map_err(at)
}

fn shown(text: &str, now: u64) -> Outcome<(String, Value)> {
    let has_lines_of = |begin: &str| text.lines().any(|line| line.starts_with(begin));
    if has_lines_of(KEY_LINE) {
        let file = KeyFile::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let (lines, mut object) = list(&file);
        object["kind"] = json!("keys");
        return Ok((
            format!("keys of a cluster; their ids and whose they are:\n{lines}"),
            object,
        ));
    }
    if has_lines_of(FORMAT) {
        let key = parse(text).ok_or("it is a damaged signing key")?;
        let (name, public) = (printable(key.name().as_bytes()), key.public().to_string());
        let object = json!({"kind": "signing key", "name": key.name(), "public": public});
        return Ok((
            format!("signing key {name}; its public key is {public}"),
            object,
        ));
    }
    if let Some(other) = FileKind::Token.instead(text.as_bytes()) {
        return Err(format!("{other}; there is nothing to show of it"));
    }
    let token = text.trim();
    if !token.contains('.') {
        return Err("it is neither a token nor a file of keys".into());
    }
    let (key, claims) = said(token.as_bytes()).map_err(|error| error.to_string())?;
    Ok((lines(&key, &claims, now), as_json(&key, &claims, now)))
}

fn listed(items: impl Iterator<Item = String>, none: &str) -> String {
    let items: Vec<String> = items.collect();
    match items.is_empty() {
        true => none.to_owned(),
        false => items.join(", "),
    }
}

/// A prefix as it is written. The empty one is that of every key.
fn prefix(bytes: &[u8]) -> String {
    match bytes {
        [] => "all keys".into(),
        bytes => printable(bytes),
    }
}

fn lines(key: &str, claims: &Claims, now: u64) -> String {
    let tenants = claims.tenants.iter().map(|tenant| match tenant {
        Tenant::Id(id) => format!("number {id}"),
        Tenant::Name(name) => printable(name),
    });
    let clusters = claims
        .audience
        .iter()
        .map(|name| printable(name.as_bytes()));
    let subject = claims.subject.iter().map(|name| printable(name.as_bytes()));
    let rows = [
        (
            "reads",
            listed(claims.read.iter().map(|one| prefix(one)), "-"),
        ),
        (
            "writes",
            listed(claims.write.iter().map(|one| prefix(one)), "-"),
        ),
        ("tenants", listed(tenants, "-")),
        ("clusters", listed(clusters, "all that trust the key")),
        ("who has it", listed(subject, "not said")),
        ("good", good(claims, now)),
    ];
    let key = printable(key.as_bytes());
    let head = format!("token signed by key {key}; whether that is so is for the database to say");
    let rows = rows.map(|(name, what)| format!("  {name:<11}{what}"));
    std::iter::once(head)
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

/// When a token is good.
fn good(claims: &Claims, now: u64) -> String {
    let Claims { from, until, .. } = *claims;
    match from.filter(|from| now < *from) {
        _ if now >= until => format!("no more: it is over since {}", spanned(now - until)),
        Some(from) => format!(
            "in {}, for {}",
            spanned(from - now),
            spanned(until.saturating_sub(from))
        ),
        None => format!(
            "for {} more, until second {until} since 1970",
            spanned(until - now)
        ),
    }
}

fn as_json(key: &str, claims: &Claims, now: u64) -> Value {
    let prefixes = |all: &[bytes::Bytes]| all.iter().map(|one| printable(one)).collect::<Vec<_>>();
    let tenant = |tenant: &Tenant| match tenant {
        Tenant::Id(id) => json!(id),
        Tenant::Name(name) => json!(printable(name)),
    };
    json!({
        "kind": "token",
        "key": key,
        "read": prefixes(&claims.read),
        "write": prefixes(&claims.write),
        "tenants": claims.tenants.iter().map(tenant).collect::<Vec<_>>(),
        "clusters": claims.audience,
        "subject": claims.subject,
        "from": claims.from,
        "until": claims.until,
        "is_over": now >= claims.until,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::print;
    use bytes::Bytes;
    use plinth_identity::tokens::SigningKey;

    const NOW: u64 = 1_000_000;

    fn signer() -> SigningKey {
        SigningKey::new("web", [0xa5; 32]).expect("a name")
    }

    #[test]
    fn a_token_in_place_of_its_file_is_not_repeated() {
        let claims = Claims {
            until: NOW + 1,
            read: vec![Bytes::new()],
            ..Claims::default()
        };
        let token = signer().sign(&claims).expect("it is within its bounds");
        let line = show(Path::new(&token)).expect_err("it is no file");
        assert!(
            !line.contains(&token) && line.contains("name its file"),
            "{line}"
        );
    }

    #[test]
    fn a_token_tells_what_it_grants_to_whom_and_for_how_long_and_nothing_that_grants_it() {
        let claims = Claims {
            until: NOW + 43_200,
            read: vec![Bytes::from_static(b"app/"), Bytes::new()],
            write: vec![Bytes::from_static(b"app/\x00")],
            tenants: vec![Tenant::Id(3), Tenant::Name(Bytes::from_static(b"shop"))],
            subject: Some("billing\n\x1b[2J".into()),
            ..Claims::default()
        };
        let token = signer().sign(&claims).expect("it is within its bounds");
        let (text, object) = shown(&format!("{token}\n"), NOW).expect("a token");
        for words in [
            "signed by key web;",
            "reads      app/, all keys",
            "writes     app/\\x00",
            "tenants    number 3, shop",
            "clusters   all that trust the key",
            "who has it billing\\x0a\\x1b[2J",
            "good       for 12 h 0 min more",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(
            (&object["until"], &object["is_over"]),
            (&json!(NOW + 43_200), &json!(false))
        );
        for part in token.split('.') {
            assert!(
                !text.contains(part) && !object.to_string().contains(part),
                "{text}"
            );
        }
        let (late, _) = shown(&token, NOW + 43_261).expect("a token");
        assert!(late.contains("it is over since 1 min 1 s"), "{late}");
    }

    #[test]
    fn keys_tell_their_names_and_never_themselves() {
        let text = print(&signer());
        let (told, object) = shown(&text, NOW).expect("a signing key");
        assert!(
            told.starts_with("signing key web; its public key is "),
            "{told}"
        );
        let keys = KeyFile::new_root([0xa5; 32]);
        let id = keys.keys().next().expect("a key").id().to_string();
        let (listed, ids) = shown(&keys.print(), NOW).expect("keys");
        assert!(
            listed.contains(&id) && listed.contains("server"),
            "{listed}"
        );
        for all in [told, object.to_string(), listed, ids.to_string()] {
            assert!(!all.contains("a5a5"), "{all}");
        }
    }

    #[test]
    fn what_is_none_of_them_is_said_to_be_none() {
        for text in [
            "",
            "hello",
            "a.b",
            "a.b.c",
            "plinth-sign-1 a5 web",
            "plinth-key-1 x",
        ] {
            let line = shown(text, NOW).expect_err(text);
            assert!(!line.is_empty() && !line.contains('\n'), "{line}");
        }
    }
}
