//! Statements of a party, signed by the key of its certificate: whoever has the realm's certificate can check one later, without asking anybody.
//!
//! The signature is ECDSA on P-256 with SHA-256 (FIPS 186-5), over the bytes of the text.

use crate::identity::Identity;
use crate::keys::{Keys, issued};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest certificate or signature that is read, in letters.
const LONGEST: usize = 8192;

/// A text with its author's signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// The text.
    pub text: String,
    /// Its author's certificate: DER, in Base64 (RFC 4648 §4).
    pub certificate: String,
    /// The signature: ASN.1, in Base64.
    pub signature: String,
}

impl Signed {
    /// Its author, if the text is as it was written, and the certificate was the realm's at that time (seconds since 1970).
    ///
    /// # Errors
    /// The reason why it proves nothing.
    pub fn author(&self, realm: &CertificateDer<'_>, unix_s: i64) -> Result<Identity, String> {
        let read = |what: &str, text: &str| {
            let bytes =
                Some(text).filter(|text| text.len() <= LONGEST).and_then(|text| BASE64_STANDARD.decode(text).ok());
            bytes.ok_or_else(|| format!("its {what} is malformed"))
        };
        let certificate = CertificateDer::from(read("certificate", &self.certificate)?);
        let (author, key) = issued(&certificate, realm, unix_s)?;
        let signature = read("signature", &self.signature)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
        let checked = key.verify(self.text.as_bytes(), &signature);
        checked.map_err(|_| format!("it is not as {author} has signed it"))?;
        Ok(author)
    }
}

/// Who signs.
pub struct Signer {
    identity: Identity,
    key: EcdsaKeyPair,
    certificate: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signer {}", self.identity)
    }
}

impl Signer {
    /// The party of these keys.
    ///
    /// # Errors
    /// The private key is none on P-256 in PKCS #8, which `thalweg keys issue` makes.
    pub fn new(keys: &Keys) -> Result<Self, String> {
        let unfit = || "the private key is none on P-256 in PKCS #8; `thalweg keys issue` makes one".to_owned();
        let PrivateKeyDer::Pkcs8(key) = keys.private_key().map_err(|error| error.to_string())? else {
            return Err(unfit());
        };
        let (kind, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::from_pkcs8(kind, key.secret_pkcs8_der(), &random).map_err(|_| unfit())?;
        Ok(Self { identity: keys.identity.clone(), key, certificate: BASE64_STANDARD.encode(&keys.certificate) })
    }

    /// The party.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Signs a text.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn sign(&self, text: String) -> Result<Signed, String> {
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes());
        let signature = signature.map_err(|_| "the system gives no random numbers".to_owned())?;
        Ok(Signed { text, certificate: self.certificate.clone(), signature: BASE64_STANDARD.encode(signature) })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::identity::Kind;
    use crate::keys::{init, issue};
    use std::path::PathBuf;

    /// A new realm: its authority's certificate, and brokers of these names. `test` is no other test's.
    pub(crate) fn realm<const N: usize>(test: &str, brokers: [&str; N]) -> (CertificateDer<'static>, [Signer; N]) {
        let dir: PathBuf = std::env::temp_dir().join(format!("thalweg-signature-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        init("realm", &dir).unwrap();
        let signers = brokers.map(|name| {
            issue(&dir, Kind::Broker, name, 1, &dir).unwrap();
            Signer::new(&Keys::read(&dir, Kind::Broker, name).unwrap()).unwrap()
        });
        let realm = crate::keys::realm_in(&dir).unwrap();
        let _ = std::fs::remove_dir_all(&dir);
        (realm, signers)
    }

    fn now() -> i64 {
        time::OffsetDateTime::now_utc().unix_timestamp()
    }

    #[test]
    fn a_text_that_was_signed_names_its_author() {
        let (realm, [signer]) = realm("author", ["base"]);
        let signed = signer.sign("a text".to_owned()).unwrap();
        assert_eq!(signed.author(&realm, now()).as_ref(), Ok(signer.identity()));
    }

    #[test]
    fn what_was_changed_or_comes_from_another_realm_or_time_proves_nothing() {
        let (own, [signer]) = realm("own", ["base"]);
        let (other, [stranger]) = realm("other", ["base"]);
        let signed = signer.sign("a text".to_owned()).unwrap();
        let foreign = stranger.sign("a text".to_owned()).unwrap();
        let day = 24 * 3600;
        assert!(signed.author(&other, now()).is_err(), "another authority of the same name");
        assert!(signed.author(&own, now() - day).is_err() && signed.author(&own, now() + 2 * day).is_err());
        let with = |change: &dyn Fn(&mut Signed)| {
            let mut changed = signed.clone();
            change(&mut changed);
            changed.author(&own, now())
        };
        assert!(with(&|one| one.text.push('.')).unwrap_err().contains("not as thalweg://realm/broker/base"));
        assert!(with(&|one| one.signature.clone_from(&foreign.signature)).is_err());
        assert!(with(&|one| one.certificate.clone_from(&foreign.certificate)).is_err());
        for malformed in ["", "0", "zz zz", "é123", &"0".repeat(LONGEST + 4)] {
            assert!(with(&|one| malformed.clone_into(&mut one.signature)).is_err(), "{malformed}");
            assert!(with(&|one| malformed.clone_into(&mut one.certificate)).is_err(), "{malformed}");
        }
    }
}
