//! The certificate authority of a realm, and the certificates and keys that it issues.
//!
//! | file | contents | who needs it |
//! |---|---|---|
//! | `realm.pem` | the authority's certificate | all |
//! | `realm.key` | its private key | who issues |
//! | `KIND-NAME.pem`, `KIND-NAME.key` | the certificate and private key of a party | this party |
//!
//! Certificates are X.509 (RFC 5280) with keys on P-256. A party's identity is a URI among its alternative names. A broker's has a
//! host name besides, [`Identity::any_broker`], that clients check.

use crate::identity::{Identity, Kind, is_name};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// Days for which a realm's own certificate is valid.
const REALM_DAYS: u32 = 3650;
/// Days for which a party's certificate is valid if nobody says otherwise.
pub const DAYS: u32 = 365;
/// Most days.
pub const MOST_DAYS: u32 = 3650;
/// Largest file that is read.
const LARGEST: u64 = 64 << 10;

/// The reason why keys could not be made or used.
#[derive(Debug)]
pub struct KeyError {
    /// The file.
    pub file: PathBuf,
    /// The obstacle, and the remedy.
    pub because: String,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.because)
    }
}

impl std::error::Error for KeyError {}

fn error(file: &Path, because: impl fmt::Display) -> KeyError {
    KeyError { file: file.to_owned(), because: because.to_string() }
}

/// Makes the authority of a realm, and its files in `dir`, which is made if it is not there.
///
/// # Errors
/// A malformed name, a realm that is there already, or a file that cannot be written.
pub fn init(realm: &str, dir: &Path) -> Result<PathBuf, KeyError> {
    if !is_name(realm) {
        return Err(error(dir, crate::identity::Malformed(realm.to_owned())));
    }
    std::fs::create_dir_all(dir).map_err(|e| error(dir, e))?;
    let key = KeyPair::generate().map_err(|e| error(dir, e))?;
    let certificate = authority(realm).self_signed(&key).map_err(|e| error(dir, e))?;
    let (public, private) = (dir.join("realm.pem"), dir.join("realm.key"));
    write(&private, &key.serialize_pem(), true)?;
    write(&public, &certificate.pem(), false)?;
    Ok(public)
}

/// The parameters of an authority's certificate.
fn authority(realm: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::OrganizationName, "Thalweg realm");
    params.distinguished_name.push(DnType::CommonName, realm);
    (params.not_before, params.not_after) = validity(REALM_DAYS);
    params
}

/// An hour ago, because clocks differ, and so many days from now.
fn validity(days: u32) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now - Duration::hours(1), now + Duration::days(days.into()))
}

/// Issues the certificate and key of a party by the authority in `dir`, and writes them to `out`. Gives the file of the certificate.
///
/// # Errors
/// No authority there, a malformed name, a party that has a certificate already, or a file that cannot be written.
pub fn issue(dir: &Path, kind: Kind, name: &str, days: u32, out: &Path) -> Result<PathBuf, KeyError> {
    let (public, private) = (dir.join("realm.pem"), dir.join("realm.key"));
    let realm = realm_of(&public)?;
    let identity = Identity::new(&realm, kind, name).map_err(|e| error(dir, e))?;
    let key = KeyPair::from_pem(&read(&private)?).map_err(|e| error(&private, e))?;
    let issuer = Issuer::from_ca_cert_pem(&read(&public)?, key).map_err(|e| error(&public, e))?;
    let own = KeyPair::generate().map_err(|e| error(dir, e))?;
    let params = party(&identity, days).map_err(|e| error(dir, e))?;
    let certificate = params.signed_by(&own, &issuer).map_err(|e| error(&private, e))?;
    std::fs::create_dir_all(out).map_err(|e| error(out, e))?;
    let [public, private] = files(out, kind, name);
    write(&private, &own.serialize_pem(), true)?;
    write(&public, &certificate.pem(), false)?;
    Ok(public)
}

/// The parameters of a party's certificate.
fn party(identity: &Identity, days: u32) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name.push(DnType::CommonName, format!("{} {}", identity.kind(), identity.name()));
    params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(identity.to_string())?)];
    if identity.kind() == Kind::Broker {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(Identity::any_broker(identity.realm()))?));
    }
    (params.not_before, params.not_after) = validity(days.clamp(1, MOST_DAYS));
    Ok(params)
}

/// The files of a party's certificate and key.
fn files(dir: &Path, kind: Kind, name: &str) -> [PathBuf; 2] {
    ["pem", "key"].map(|end| dir.join(format!("{kind}-{name}.{end}")))
}

/// The keys of one party, and the certificate by which it checks others.
pub struct Keys {
    /// The party.
    pub identity: Identity,
    /// The authority's certificate.
    pub realm: CertificateDer<'static>,
    /// The party's certificate.
    pub certificate: CertificateDer<'static>,
    /// Its private key, as PEM.
    pub(crate) key: String,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys of {}", self.identity)
    }
}

impl Keys {
    /// The keys of a party in `dir`. Its certificate has to be of the realm there, and of this kind and name.
    ///
    /// # Errors
    /// A file that is missing, unreadable, too large or of another party.
    pub fn read(dir: &Path, kind: Kind, name: &str) -> Result<Self, KeyError> {
        let (authority, [public, private]) = (dir.join("realm.pem"), files(dir, kind, name));
        let realm = realm_of(&authority)?;
        let certificate = certificate_in(&public)?;
        let identity = identity_of(&certificate).map_err(|e| error(&public, e))?;
        let expected = Identity::new(&realm, kind, name).map_err(|e| error(dir, e))?;
        if identity != expected {
            return Err(error(&public, format!("is the certificate of {identity}: expected is {expected}")));
        }
        let keys = Self { identity, realm: certificate_in(&authority)?, certificate, key: read(&private)? };
        keys.private_key()
            .map_err(|e| error(&private, format!("no private key: {e}; `thalweg keys issue` makes one")))?;
        Ok(keys)
    }

    /// The private key.
    ///
    /// # Errors
    /// Its file had none.
    pub fn private_key(&self) -> Result<PrivateKeyDer<'static>, rustls::pki_types::pem::Error> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes())
    }
}

/// A certificate for people.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shown {
    /// The identity, or the realm.
    pub of: String,
    /// The realm that issued it.
    pub issuer: String,
    /// First and last second, in UTC.
    pub valid: [String; 2],
    /// `true` if it is an authority.
    pub authority: bool,
}

/// The contents of a certificate's file.
///
/// # Errors
/// No certificate there.
pub fn show(file: &Path) -> Result<Shown, KeyError> {
    let der = certificate_in(file)?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| error(file, e))?;
    let name = |name: &x509_parser::x509::X509Name<'_>| {
        name.iter_common_name().next().and_then(|cn| cn.as_str().ok()).unwrap_or("?").to_owned()
    };
    let of = identity_of(&der).map_or_else(|_| name(parsed.subject()), |identity| identity.to_string());
    let (first, last) = (parsed.validity().not_before.to_string(), parsed.validity().not_after.to_string());
    Ok(Shown { of, issuer: name(parsed.issuer()), valid: [first, last], authority: parsed.is_ca() })
}

/// The identity in a certificate. The certificate itself has to be checked before.
///
/// # Errors
/// No certificate, or none with exactly one identity.
pub fn identity_of(certificate: &CertificateDer<'_>) -> Result<Identity, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| format!("no certificate: {e}"))?;
    let names = parsed.subject_alternative_name().map_err(|e| format!("malformed alternative names: {e}"))?;
    let names = names.map(|extension| &extension.value.general_names[..]).unwrap_or_default();
    let uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with("thalweg://") => Some(*uri),
        _ => None,
    });
    let [uri] = uris.collect::<Vec<_>>()[..] else { return Err("has no identity of a realm".to_owned()) };
    uri.parse().map_err(|e: crate::identity::Malformed| e.to_string())
}

/// The identity in a certificate that the realm has issued, and its public key: a point on P-256. The certificate has to be valid at this time
/// (seconds since 1970).
///
/// # Errors
/// The certificate is no such one.
pub(crate) fn issued(
    certificate: &CertificateDer<'_>,
    realm: &CertificateDer<'_>,
    unix_s: i64,
) -> Result<(Identity, Vec<u8>), String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| format!("no certificate: {e}"))?;
    let (_, authority) = X509Certificate::from_der(realm).map_err(|e| format!("no certificate of a realm: {e}"))?;
    let signed = parsed.verify_signature(Some(authority.public_key()));
    signed.map_err(|_| "the realm has not issued its certificate".to_owned())?;
    let at = ASN1Time::from_timestamp(unix_s).map_err(|e| format!("no time: {e}"))?;
    if !parsed.validity().is_valid_at(at) {
        return Err(format!("its certificate is not valid at {at}"));
    }
    let key = parsed.public_key().subject_public_key.data.to_vec();
    Ok((identity_of(certificate)?, key))
}

/// The realm's certificate in a directory of keys.
///
/// # Errors
/// There is none.
pub fn realm_in(dir: &Path) -> Result<CertificateDer<'static>, KeyError> {
    let file = dir.join("realm.pem");
    realm_of(&file)?;
    certificate_in(&file)
}

/// The name of the realm whose certificate this file has.
fn realm_of(file: &Path) -> Result<String, KeyError> {
    let shown = show(file)?;
    if !shown.authority || !is_name(&shown.of) {
        return Err(error(file, "is not the certificate of a realm; `thalweg keys init` makes one"));
    }
    Ok(shown.of)
}

fn certificate_in(file: &Path) -> Result<CertificateDer<'static>, KeyError> {
    CertificateDer::from_pem_slice(read(file)?.as_bytes())
        .map_err(|e| error(file, format!("no certificate: {e}; `thalweg keys` makes them")))
}

fn read(file: &Path) -> Result<String, KeyError> {
    let mut text = String::new();
    let opened =
        std::fs::File::open(file).map_err(|e| error(file, format!("cannot be read: {e}; `thalweg keys` makes it")))?;
    opened.take(LARGEST).read_to_string(&mut text).map_err(|e| error(file, e))?;
    Ok(text)
}

/// Writes a new file; a private one for its owner only. An existing one stays: others may rely on it.
fn write(file: &Path, text: &str, private: bool) -> Result<(), KeyError> {
    let mode = if private { 0o600 } else { 0o644 };
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            error(file, "is there already: remove it first if nobody uses it any more")
        }
        _ => error(file, format!("cannot be written: {e}")),
    })?;
    opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all()).map_err(|e| error(file, e))
}
