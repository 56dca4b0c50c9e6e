//! What binds a log-in to a TLS connection (RFC 5929, `tls-server-end-point`): a hash of the
//! server's certificate, by the hash function with which it was signed.

use rustls::SupportedCipherSuite;
use rustls::crypto::{hash::HashAlgorithm, ring};

use super::der::{SEQUENCE, element};

/// `None` if the certificate is signed in a way for which no hash is defined or known here.
pub(crate) fn end_point_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match signature_algorithm(certificate)? {
        // RSA with MD5, with SHA-1 and with SHA-256; ECDSA with SHA-1 and with SHA-256.
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
        | b"\x2a\x86\x48\xce\x3d\x04\x01"
        | b"\x2a\x86\x48\xce\x3d\x04\x03\x02" => HashAlgorithm::SHA256,
        // RSA and ECDSA with SHA-384.
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c" | b"\x2a\x86\x48\xce\x3d\x04\x03\x03" => HashAlgorithm::SHA384,
        _ => return None,
    };
    let hash = ring::ALL_CIPHER_SUITES.iter().find_map(|suite| match suite {
        SupportedCipherSuite::Tls13(suite) if suite.common.hash_provider.algorithm() == algorithm => {
            Some(suite.common.hash_provider)
        }
        _ => None,
    })?;
    Some(hash.hash(certificate).as_ref().to_vec())
}

/// The object identifier of a certificate's signature algorithm: behind the signed part stands a
/// sequence that begins with it.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const IDENTIFIER: u8 = 0x06;
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(parts, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    element(algorithm, IDENTIFIER).map(|(identifier, _)| identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let certificate = rcgen::CertificateParams::new(["h".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(end_point_hash(certificate.der()).unwrap().len(), 48);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["h".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(end_point_hash(certificate.der()).unwrap().len(), 32);
        for end in 0..60 {
            assert!(end_point_hash(&certificate.der()[..end]).is_none());
        }
    }
}
