//! The JSON of a token. No member may be there twice, and where an object belongs nothing else is taken.

use super::grant::{Grant, Tenant, range_of};
use super::signing::Claims;
use super::{TokenError, is_key_name, unbase64};
use bytes::Bytes;
use plinth_core::KeyRange;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Prefixes and tenants that a token grants.
pub const PREFIXES_MAX: usize = 64;

/// An object of JSON. A type that derives `Deserialize` would be read from a list as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Of<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Of(PhantomData))
    }
}

/// A member that may be left out, but is not `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default, deserialize_with = "present")]
    typ: Option<String>,
}

/// The name of the key that the header asks for.
pub(super) fn key_name(header: &[u8]) -> Result<String, TokenError> {
    let wrong = "its header is not an object of alg, kid and perhaps typ";
    let Ok(Object(header)) = serde_json::from_slice::<Object<Header>>(header) else {
        return Err(TokenError::Malformed(wrong));
    };
    if header.alg != "EdDSA" {
        return Err(TokenError::Algorithm);
    }
    if header
        .typ
        .is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT"))
    {
        return Err(TokenError::Malformed("its typ is not JWT"));
    }
    if !is_key_name(&header.kid) {
        return Err(TokenError::Malformed("its kid is empty or too long"));
    }
    Ok(header.kid)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NameOrId {
    Id(u64),
    Name(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plinth {
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    tenants: Vec<NameOrId>,
}

#[derive(Deserialize)]
struct Members {
    exp: u64,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    aud: Option<Audience>,
    #[serde(default, deserialize_with = "present")]
    sub: Option<String>,
    plinth: Object<Plinth>,
}

/// The range of a tenant's keys.
fn range_of_tenant(id: u64) -> Option<KeyRange> {
    i64::try_from(id).ok()?;
    range_of(&id.to_be_bytes())
}

fn ranges_of(prefixes: &[String]) -> Option<Vec<KeyRange>> {
    let range = |prefix: &String| range_of(&unbase64(prefix)?);
    prefixes.iter().map(range).collect()
}

fn members_of(claims: &[u8]) -> Result<Members, TokenError> {
    let wrong = "its claims are not an object with exp and plinth, or one of its members is of another type, unknown \
                 or there twice";
    let members = serde_json::from_slice::<Object<Members>>(claims);
    let Object(members) = members.map_err(|_| TokenError::Malformed(wrong))?;
    Ok(members)
}

/// What these claims say, whoever has signed them.
pub(super) fn said(claims: &[u8]) -> Result<Claims, TokenError> {
    let members = members_of(claims)?;
    let Object(plinth) = members.plinth;
    let bytes = |text: &String| {
        let wrong = TokenError::Malformed("a prefix or tenant is not base64url");
        unbase64(text).map(Bytes::from).ok_or(wrong)
    };
    let all = |texts: &[String]| texts.iter().map(bytes).collect::<Result<Vec<_>, _>>();
    let tenant = |tenant: &NameOrId| match tenant {
        NameOrId::Id(id) => Ok(Tenant::Id(*id)),
        NameOrId::Name(name) => bytes(name).map(Tenant::Name),
    };
    Ok(Claims {
        until: members.exp,
        from: members.nbf,
        audience: match members.aud {
            None => Vec::new(),
            Some(Audience::One(name)) => vec![name],
            Some(Audience::Several(names)) => names,
        },
        subject: members.sub,
        read: all(&plinth.read)?,
        write: all(&plinth.write)?,
        tenants: plinth
            .tenants
            .iter()
            .map(tenant)
            .collect::<Result<_, _>>()?,
    })
}

/// What these claims grant, after the key named `key` has signed them.
pub(super) fn granted(
    claims: &[u8],
    key: String,
    audience: &str,
    now: u64,
) -> Result<Grant, TokenError> {
    let members = members_of(claims)?;
    let is_meant = match &members.aud {
        None => true,
        Some(Audience::One(name)) => name == audience,
        Some(Audience::Several(names)) => names.iter().any(|name| name == audience),
    };
    if !is_meant {
        return Err(TokenError::Audience);
    }
    if let Some(from) = members.nbf.filter(|from| now < *from) {
        return Err(TokenError::TooEarly(from));
    }
    if now >= members.exp {
        return Err(TokenError::Over(members.exp));
    }
    let Object(plinth) = members.plinth;
    let items = plinth.read.len() + plinth.write.len() + plinth.tenants.len();
    if !(1..=PREFIXES_MAX).contains(&items) {
        return Err(TokenError::Malformed(
            "it grants nothing, or more prefixes than 64",
        ));
    }
    let wrong = "a prefix or tenant is not base64url, too long, or among the system keys";
    let mut reads = ranges_of(&plinth.read).ok_or(TokenError::Malformed(wrong))?;
    let mut writes = ranges_of(&plinth.write).ok_or(TokenError::Malformed(wrong))?;
    let mut tenants = Vec::new();
    for tenant in plinth.tenants {
        match tenant {
            NameOrId::Id(id) => {
                let range = range_of_tenant(id).ok_or(TokenError::Malformed(wrong))?;
                reads.push(range.clone());
                writes.push(range);
                tenants.push(Tenant::Id(id));
            }
            NameOrId::Name(name) => {
                let name = unbase64(name).ok_or(TokenError::Malformed(wrong))?;
                tenants.push(Tenant::Name(name.into()));
            }
        }
    }
    Ok(Grant::new(
        reads,
        writes,
        tenants,
        members.exp,
        key,
        members.sub,
    ))
}
