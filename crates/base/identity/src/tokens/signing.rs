//! Making tokens: for tools and tests.

use super::grant::Tenant;
use super::{PublicKey, TokenError, TrustedKeys, is_key_name, to_base64, verify};
use crate::secret::{SECRET_BYTES, Secret};
use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::fmt;

/// What a token is to grant.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Claims {
    /// The first second since 1970 at which it is over.
    pub until: u64,
    pub from: Option<u64>,
    /// The clusters that it is for; all, if none is named.
    pub audience: Vec<String>,
    pub subject: Option<String>,
    pub read: Vec<Bytes>,
    pub write: Vec<Bytes>,
    pub tenants: Vec<Tenant>,
}

impl Claims {
    fn json(&self) -> Value {
        let text = |bytes: &Bytes| to_base64(bytes);
        let tenant = |tenant: &Tenant| match tenant {
            Tenant::Id(id) => json!(id),
            Tenant::Name(name) => json!(to_base64(name)),
        };
        let plinth = json!({
            "read": self.read.iter().map(text).collect::<Vec<_>>(),
            "write": self.write.iter().map(text).collect::<Vec<_>>(),
            "tenants": self.tenants.iter().map(tenant).collect::<Vec<_>>(),
        });
        let mut claims = json!({ "exp": self.until, "plinth": plinth });
        if let Some(from) = self.from {
            claims["nbf"] = json!(from);
        }
        if !self.audience.is_empty() {
            claims["aud"] = json!(self.audience);
        }
        if let Some(subject) = &self.subject {
            claims["sub"] = json!(subject);
        }
        claims
    }
}

/// An Ed25519 private key and its name.
pub struct SigningKey {
    name: String,
    secret: Secret,
    pair: Ed25519KeyPair,
}

impl SigningKey {
    /// The key of these 32 secret bytes (RFC 8032's private key). For a new key they come from the operating system.
    /// `None` if it cannot have this name.
    pub fn new(name: impl Into<String>, secret: [u8; SECRET_BYTES]) -> Option<SigningKey> {
        let (name, secret) = (name.into(), Secret::new(secret));
        let pair = Ed25519KeyPair::from_seed_unchecked(secret.bytes()).ok()?;
        is_key_name(&name).then_some(SigningKey { name, secret, pair })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret, to be kept in a file of mode 0600.
    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        self.secret.bytes()
    }

    /// What others need to trust it.
    pub fn public(&self) -> PublicKey {
        let bytes = self.pair.public_key().as_ref().try_into();
        PublicKey::new(bytes.expect("an Ed25519 key has 32 bytes"))
    }

    /// A token with these claims. Claims that no database would take are refused here.
    pub fn sign(&self, claims: &Claims) -> Result<String, TokenError> {
        let header = json!({ "alg": "EdDSA", "kid": self.name, "typ": "JWT" });
        let token = self.sign_parts(&header.to_string(), &claims.json().to_string());
        let mut keys = TrustedKeys::new();
        keys.trust(self.name.clone(), self.public());
        let audience = claims.audience.first().map_or("", |name| &name[..]);
        let last = claims.until.saturating_sub(1);
        verify(token.as_bytes(), &keys, audience, last)?;
        Ok(token)
    }

    /// A token of any header and claims.
    pub(super) fn sign_parts(&self, header: &str, claims: &str) -> String {
        let signed = format!(
            "{}.{}",
            to_base64(header.as_bytes()),
            to_base64(claims.as_bytes())
        );
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", to_base64(signature.as_ref()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signing key {} ({})", self.name, self.public())
    }
}
