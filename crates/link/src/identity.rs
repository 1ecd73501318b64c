//! What proves over a network that an address is the pool's: one certificate that the pool made itself, and its key.
//!
//! Whoever has the certificate trusts exactly that one: no names are looked at, no authorities, no dates. It is not secret; the key
//! is. That a client may come in is another matter: it proves that with the token, inside.

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    version::TLS13,
};
use std::{fmt, sync::Arc};

/// The name in every certificate: it says what it is, nobody checks it.
pub const NAME: &str = "tidemill";

/// A pool's certificate and its key. Its text is secret: for files that only their owner reads.
#[derive(Clone)]
pub struct Identity {
    certificate: Certificate,
    key: String,
}

/// A pool's certificate, for its clients. It is no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(String);

/// A certificate or key could not be made, or a text is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityRefused {
    /// There is no certificate in the text.
    #[error("there is no certificate in the text: give that of the pool, from its file")]
    Certificate,
    /// There is no key in the text, or one of another kind, or not that of the certificate.
    #[error("there is no key in the text that belongs to the certificate: give both of the pool, from its file")]
    Key,
    /// None could be made.
    #[error("no certificate could be made: {0}")]
    NotMade(String),
}

impl Identity {
    /// A new certificate with a new key, of nobody else.
    pub fn generate() -> Result<Self, IdentityRefused> {
        let failed = |error: rcgen::Error| IdentityRefused::NotMade(error.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let parameters = CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
        let certificate = Certificate(parameters.self_signed(&key).map_err(failed)?.pem());
        Ok(Self { certificate, key: key.serialize_pem() })
    }

    /// The one in a text as [`Self::to_pem`] gives it; what else stands there does not matter.
    pub fn from_pem(text: &str) -> Result<Self, IdentityRefused> {
        let certificate = Certificate::from_pem(text)?;
        let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
        let from = text.find(begin).ok_or(IdentityRefused::Key)?;
        let length = text[from..].find(end).ok_or(IdentityRefused::Key)? + end.len();
        let identity = Self { certificate, key: text[from..from + length].to_owned() + "\n" };
        identity.config().map(|_| identity)
    }

    /// As text, with the key.
    pub fn to_pem(&self) -> String {
        format!("{}{}", self.certificate.0, self.key)
    }

    /// What its clients need.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// How a node speaks with it.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, IdentityRefused> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| IdentityRefused::Key)?;
        let versions = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = versions.map_err(not_made)?.with_no_client_auth();
        let certificates = vec![self.certificate.der()?];
        let mut config = builder.with_single_cert(certificates, key).map_err(|_| IdentityRefused::Key)?;
        config.send_tls13_tickets = 0; // connections are few, and last
        Ok(Arc::new(config))
    }
}

impl Certificate {
    /// The first one in a text as [`Self::to_pem`] gives it; what else stands there does not matter.
    pub fn from_pem(text: &str) -> Result<Self, IdentityRefused> {
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let from = text.find(begin).ok_or(IdentityRefused::Certificate)?;
        let length = text[from..].find(end).ok_or(IdentityRefused::Certificate)? + end.len();
        let certificate = Self(text[from..from + length].to_owned() + "\n");
        certificate.der().map(|_| certificate)
    }

    /// As text.
    pub fn to_pem(&self) -> &str {
        &self.0
    }

    fn der(&self) -> Result<CertificateDer<'static>, IdentityRefused> {
        CertificateDer::from_pem_slice(self.0.as_bytes()).map_err(|_| IdentityRefused::Certificate)
    }

    /// How a client speaks that trusts this one and no other.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, IdentityRefused> {
        let provider = provider();
        let only = Arc::new(Only { certificate: self.der()?, provider: provider.clone() });
        let versions = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = versions.map_err(not_made)?.dangerous().with_custom_certificate_verifier(only);
        let mut config = builder.with_no_client_auth();
        (config.resumption, config.enable_sni) = (Resumption::disabled(), false);
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn not_made(error: Error) -> IdentityRefused {
    IdentityRefused::NotMade(error.to_string())
}

/// Trusts one certificate: the other side shows it, and proves that it has the key.
#[derive(Debug)]
struct Only {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *shown == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic)) // no such version is offered
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_read_again_from_its_text_whatever_stands_around_it() {
        let made = Identity::generate().unwrap();
        let read = Identity::from_pem(&format!("a pool's file\n{}more", made.to_pem())).unwrap();
        assert_eq!(read.to_pem(), made.to_pem());
        assert_eq!(Certificate::from_pem(&made.to_pem()).unwrap(), *made.certificate());
        assert_ne!(Identity::generate().unwrap().certificate(), made.certificate(), "each is another");
        assert!(!made.certificate().to_pem().contains("KEY"));
    }

    #[test]
    fn what_is_no_identity_is_told_with_what_is_wrong_with_it() {
        let (made, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert_eq!(Identity::from_pem("").unwrap_err(), IdentityRefused::Certificate);
        assert_eq!(Identity::from_pem(made.certificate().to_pem()).unwrap_err(), IdentityRefused::Key);
        let mixed = format!("{}{}", made.certificate().to_pem(), other.key);
        assert_eq!(Identity::from_pem(&mixed).unwrap_err(), IdentityRefused::Key);
        let cut = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
        assert_eq!(Certificate::from_pem(cut).unwrap_err(), IdentityRefused::Certificate);
    }

    #[test]
    fn a_key_is_not_shown_by_chance() {
        let made = Identity::generate().unwrap();
        assert!(!format!("{made:?}").contains("BEGIN"));
    }
}
