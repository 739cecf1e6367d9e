//! Tokens: signed grants of parts of the key space until a time.
//!
//! A token is a JSON web token (RFC 7519) with an Ed25519 signature (RFC 8037), of at most [`TOKEN_BYTES_MAX`] bytes:
//!
//! ```text
//! header  {"alg": "EdDSA", "kid": "web", "typ": "JWT"}
//! claims  {"exp": 1767225600, "nbf": 1767139200, "aud": "test:a1B2", "sub": "the shop",
//!          "plinth": {"read": ["YXBwLw"], "write": ["YXBwL2NhcnQv"], "tenants": [17, "c2hvcA"]}}
//! ```
//!
//! | member | |
//! |---|---|
//! | `alg`, `kid` | required: no other algorithm, and the name of a trusted key |
//! | `typ` | may be left out |
//! | `exp` | required: the first second, counted from 1970, at which the token is over |
//! | `nbf` | the first second at which it is good |
//! | `aud` | a name or a list of names; if it is there, the cluster's must be among them |
//! | `sub` | who has it, for the log |
//! | `plinth` | required: what is granted, at most [`PREFIXES_MAX`] items in all |
//! | `read`, `write` | prefixes of keys, each in base64url; a right to write is no right to read |
//! | `tenants` | their ids, or their names in base64url; grants reads and writes of all their keys |
//!
//! Text in base64url has no padding. A header with another member is refused, and so is `plinth`: what this release
//! does not know may restrict the token. Other claims are ignored, as RFC 7519 demands. No token grants system keys:
//! the empty prefix grants the keys below `\xff`.
//!
//! Keys sign for the database that trusts them. Who wants a token for one of several clusters that trust one key names
//! it in `aud`.

mod claims;
mod grant;
mod signing;

#[cfg(test)]
mod tests;

pub use claims::PREFIXES_MAX;
pub use grant::{Grant, Tenant};
pub use signing::{Claims, SigningKey};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use plinth_core::key::printable;
use plinth_core::texts;
use ring::signature::{ED25519, UnparsedPublicKey};
use std::collections::BTreeMap;
use std::fmt;

/// A longer token is refused before it is looked at.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Length of the name of a key.
pub const KEY_NAME_BYTES_MAX: usize = 128;
const SIGNATURE_BYTES: usize = 64;

texts! {
    /// Why a token is refused.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum TokenError {
        TooLong(bytes: usize) = "the token has {bytes} bytes, more than {TOKEN_BYTES_MAX}; grant fewer prefixes";
        /// What of it is malformed.
        Malformed(what: &'static str) = "the token is malformed: {what}";
        /// It is not signed with Ed25519.
        Algorithm = "the token's alg is not EdDSA; sign it with an Ed25519 key";
        /// No trusted key has this name.
        UnknownKey(name: String) =
            "the token is signed with key {}, which is not trusted; trust it, or sign with another key",
            printable(name.as_bytes());
        /// The signature is not one of the key with this name.
        Signature(name: String) =
            "the token's signature is not one of key {}; it was changed, or signed with another key",
            printable(name.as_bytes());
        /// It is good from this second on.
        TooEarly(from: u64) = "the token is good from second {from} on; wait, or compare the clocks";
        /// It was good until this second.
        Over(until: u64) = "the token was good until second {until}; get a new one, or compare the clocks";
        /// It is for other clusters.
        Audience = "the token's aud names other clusters; get one for this cluster";
    }
}

impl std::error::Error for TokenError {}

/// An Ed25519 public key: 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; PublicKey::BYTES]);

impl PublicKey {
    pub const BYTES: usize = 32;

    pub fn new(bytes: [u8; PublicKey::BYTES]) -> PublicKey {
        PublicKey(bytes)
    }
    pub fn bytes(&self) -> &[u8; PublicKey::BYTES] {
        &self.0
    }
    /// From base64url, as it is printed and as `x` of a JSON web key has it.
    pub fn parse(text: &str) -> Option<PublicKey> {
        let bytes = unbase64(text)?;
        bytes.try_into().ok().map(PublicKey)
    }

    fn has_signed(&self, text: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(text, signature).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn to_base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn unbase64(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// True if a key may have this name.
pub fn is_key_name(name: &str) -> bool {
    (1..=KEY_NAME_BYTES_MAX).contains(&name.len())
}

/// The keys whose signatures count, by name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TrustedKeys(BTreeMap<String, PublicKey>);

impl TrustedKeys {
    pub fn new() -> TrustedKeys {
        TrustedKeys::default()
    }

    /// Trusts `key`, in place of another one of that name.
    pub fn trust(&mut self, name: impl Into<String>, key: PublicKey) {
        self.0.insert(name.into(), key);
    }

    /// False if there was no such key.
    pub fn revoke(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.0.iter().map(|(name, key)| (&name[..], key))
    }
}

/// What `token` grants at second `now` since 1970 to a client of the cluster named `audience`.
///
/// Until the signature is verified, no more is parsed of it than the name of the key.
pub fn verify(
    token: &[u8],
    keys: &TrustedKeys,
    audience: &str,
    now: u64,
) -> Result<Grant, TokenError> {
    let [header, claims, signature] = parts(token)?;
    let signed = &token[..header.len() + 1 + claims.len()];
    let name = claims::key_name(&decoded(header, "its header is not base64url")?)?;
    let Some(key) = keys.0.get(&name) else {
        return Err(TokenError::UnknownKey(name));
    };
    let signature = decoded(signature, "its signature is not base64url")?;
    if signature.len() != SIGNATURE_BYTES || !key.has_signed(signed, &signature) {
        return Err(TokenError::Signature(name));
    }
    claims::granted(
        &decoded(claims, "its claims are not base64url")?,
        name,
        audience,
        now,
    )
}

/// The name of the key that has signed `token`, as it says, and what it says that it grants. Nothing is verified: this
/// is for people who look at one, and gives nobody a right.
///
/// # Errors
/// It is no token.
pub fn said(token: &[u8]) -> Result<(String, Claims), TokenError> {
    let [header, claims, _] = parts(token)?;
    let name = claims::key_name(&decoded(header, "its header is not base64url")?)?;
    let claims = claims::said(&decoded(claims, "its claims are not base64url")?)?;
    Ok((name, claims))
}

/// Header, claims and signature, each in base64url.
fn parts(token: &[u8]) -> Result<[&[u8]; 3], TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::TooLong(token.len()));
    }
    let mut parts = token.split(|byte| *byte == b'.');
    match [parts.next(), parts.next(), parts.next(), parts.next()] {
        [Some(header), Some(claims), Some(signature), None] => Ok([header, claims, signature]),
        _ => Err(TokenError::Malformed("it does not have three parts")),
    }
}

fn decoded(part: &[u8], otherwise: &'static str) -> Result<Vec<u8>, TokenError> {
    unbase64(part).ok_or(TokenError::Malformed(otherwise))
}
