//! Certificate that proves over a network that an address is the pool's, made by the pool itself,
//! and its key.
//!
//! A client that has the certificate trusts exactly that one, and checks no names, authorities or
//! dates. The certificate is not secret; the key is. Clients are authenticated separately, by the
//! token within TLS.

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

/// Name in every certificate; informative only, nobody checks it.
pub const NAME: &str = "tidemill";

/// Certificate and key of a pool. The text of both is secret: keep it in files that only their
/// owner reads.
#[derive(Clone)]
pub struct Identity {
    certificate: Certificate,
    key: String,
}

/// Certificate of a pool, for its clients. It is not secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(String);

/// Error of a certificate or key that could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The text contains no certificate.
    #[error("there is no certificate in the text: give that of the pool, from its file")]
    Certificate,
    /// The text contains no key, a key of another kind, or not the key of the certificate.
    #[error("there is no key in the text that belongs to the certificate: give both of the pool, from its file")]
    Key,
    /// Generating the certificate failed.
    #[error("no certificate could be made: {0}")]
    NotMade(String),
}

impl Identity {
    /// Generates a new key and a certificate for it.
    pub fn generate() -> Result<Self, IdentityError> {
        let failed = |error: rcgen::Error| IdentityError::NotMade(error.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let parameters = CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
        let certificate = Certificate(parameters.self_signed(&key).map_err(failed)?.pem());
        Ok(Self { certificate, key: key.serialize_pem() })
    }

    /// Reads the text of [`Self::to_pem`]; ignores anything else around it.
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        let certificate = Certificate::from_pem(text)?;
        let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
        let from = text.find(begin).ok_or(IdentityError::Key)?;
        let length = text[from..].find(end).ok_or(IdentityError::Key)? + end.len();
        let identity = Self { certificate, key: text[from..from + length].to_owned() + "\n" };
        identity.config().map(|_| identity)
    }

    /// Text of the certificate and the key.
    pub fn to_pem(&self) -> String {
        format!("{}{}", self.certificate.0, self.key)
    }

    /// Certificate for the clients.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// TLS configuration of a node with this identity.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| IdentityError::Key)?;
        let versions = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = versions.map_err(not_made)?.with_no_client_auth();
        let certificates = vec![self.certificate.der()?];
        let mut config = builder.with_single_cert(certificates, key).map_err(|_| IdentityError::Key)?;
        config.send_tls13_tickets = 0; // connections are few, and last
        Ok(Arc::new(config))
    }
}

impl Certificate {
    /// Reads the first certificate in a text; ignores anything else around it.
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let from = text.find(begin).ok_or(IdentityError::Certificate)?;
        let length = text[from..].find(end).ok_or(IdentityError::Certificate)? + end.len();
        let certificate = Self(text[from..from + length].to_owned() + "\n");
        certificate.der().map(|_| certificate)
    }

    /// Text of the certificate.
    pub fn to_pem(&self) -> &str {
        &self.0
    }

    fn der(&self) -> Result<CertificateDer<'static>, IdentityError> {
        CertificateDer::from_pem_slice(self.0.as_bytes()).map_err(|_| IdentityError::Certificate)
    }

    /// TLS configuration of a client that trusts only this certificate.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let provider = provider();
        let only = Arc::new(PinnedCertificate { certificate: self.der()?, provider: provider.clone() });
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
fn not_made(error: Error) -> IdentityError {
    IdentityError::NotMade(error.to_string())
}

/// Verifier that trusts one certificate: the server must show it, and prove that it has its key.
#[derive(Debug)]
struct PinnedCertificate {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
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
        Err(Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic)) // TLS 1.2 is not offered
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
        assert_eq!(Identity::from_pem("").unwrap_err(), IdentityError::Certificate);
        assert_eq!(Identity::from_pem(made.certificate().to_pem()).unwrap_err(), IdentityError::Key);
        let mixed = format!("{}{}", made.certificate().to_pem(), other.key);
        assert_eq!(Identity::from_pem(&mixed).unwrap_err(), IdentityError::Key);
        let cut = "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n";
        assert_eq!(Certificate::from_pem(cut).unwrap_err(), IdentityError::Certificate);
    }

    #[test]
    fn a_key_is_not_shown_by_chance() {
        let made = Identity::generate().unwrap();
        assert!(!format!("{made:?}").contains("BEGIN"));
    }
}
