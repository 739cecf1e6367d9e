//! Thirty-two secret bytes, and what is derived from them.

use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub const SECRET_BYTES: usize = 32;

/// Salt of everything that is derived without one of its own.
const SALT: &[u8] = b"plinth-identity-1";

/// Overwritten in memory when it is dropped. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    pub fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// HKDF-SHA-256 (RFC 5869). From the result nobody learns this secret, nor what another label gives.
    pub fn derive(&self, label: &str) -> Secret {
        self.derive_with_salt(SALT, label)
    }

    pub fn derive_with_salt(&self, salt: &[u8], label: &str) -> Secret {
        let mut bytes = Zeroizing::new([0; SECRET_BYTES]);
        Salt::new(HKDF_SHA256, salt)
            .extract(&self.0[..])
            .expand(&[label.as_bytes()], HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut bytes[..]))
            .expect("one block of output is in the bounds of HKDF");
        Secret(bytes)
    }

    pub fn hmac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0[..])
    }

    /// The first bytes of a hash that says which secret it is, and from which the secret cannot be found.
    pub fn fingerprint(&self, label: &str) -> [u8; 8] {
        let mut text = Zeroizing::new(Vec::with_capacity(label.len() + 1 + SECRET_BYTES));
        text.extend_from_slice(label.as_bytes());
        text.push(0);
        text.extend_from_slice(&self.0[..]);
        let mut first = [0; 8];
        first.copy_from_slice(&digest(&SHA256, &text).as_ref()[..8]);
        first
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.0[..].ct_eq(&other.0[..]).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::hkdf::{KeyType, Okm};

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex
            .bytes()
            .map(|digit| char::from(digit).to_digit(16).expect("hex") as u8)
            .collect();
        digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
    }

    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn hkdf_gives_the_first_vector_of_rfc_5869() {
        let salt = Salt::new(HKDF_SHA256, &bytes_of("000102030405060708090a0b0c"));
        let key = salt.extract(&[0x0b; 22]);
        let info = bytes_of("f0f1f2f3f4f5f6f7f8f9");
        let info = [&info[..]];
        let derived: Okm<'_, Length> = key.expand(&info, Length(42)).expect("short");
        let mut bytes = [0; 42];
        derived.fill(&mut bytes).expect("of that length");
        let expected =
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(bytes[..], bytes_of(expected));
    }

    #[test]
    fn hmac_gives_the_second_vector_of_rfc_4231() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        let tag = hmac::sign(&key, b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(tag.as_ref(), bytes_of(expected));
    }

    #[test]
    fn labels_and_salts_give_different_secrets_and_the_same_ones_the_same() {
        let secret = Secret::new([7; SECRET_BYTES]);
        assert_eq!(secret.derive("a"), secret.derive("a"));
        assert_ne!(secret.derive("a"), secret.derive("b"));
        assert_ne!(secret.derive("a"), secret.derive_with_salt(b"c", "a"));
        assert_ne!(secret.derive("a"), secret);
        assert_eq!(secret.fingerprint("a"), secret.fingerprint("a"));
        assert_ne!(secret.fingerprint("a"), secret.fingerprint("b"));
    }

    #[test]
    fn debug_output_does_not_show_a_secret() {
        assert_eq!(format!("{:?}", Secret::new([0x41; 32])), "Secret(…)");
    }
}
