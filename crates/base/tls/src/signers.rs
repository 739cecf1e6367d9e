//! Whether two CA files trust the same people.

use crate::Source;
use crate::judge::Root;
use crate::material::roots;
use crate::settings::read;
use plinth_runtime::Boxed;

/// True if somebody may sign for both: the same key is in both files, or one file has the certificate of who has
/// signed one in the other. The error is a line for the user.
pub fn overlap<'a>(one: &'a Source, other: &'a Source) -> Boxed<'a, Result<bool, String>> {
    Box::pin(async move {
        let (one, other) = (read((one, "TLS CA")).await?, read((other, "TLS CA")).await?);
        let (one, other) = (roots(&one)?, roots(&other)?);
        let mut pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
        Ok(pairs.any(|(a, b)| have_one_key(a, b) || is_signed_by(a, b) || is_signed_by(b, a)))
    })
}

fn have_one_key(a: &Root, b: &Root) -> bool {
    a.anchor.subject_public_key_info == b.anchor.subject_public_key_info
}

/// By its name. Who has signed itself has no other signer.
fn is_signed_by(a: &Root, signer: &Root) -> bool {
    let issuer = &a.said.issuer.fields;
    *issuer != a.said.subject.fields && *issuer == signer.said.subject.fields
}
