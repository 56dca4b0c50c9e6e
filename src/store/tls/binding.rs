//! The data that binds a log-in to a TLS connection (RFC 5929, `tls-server-end-point`): a hash of
//! the server's certificate, with the hash function of the certificate's signature.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::der::{SEQUENCE, element};

const IDENTIFIER: u8 = 0x06;
/// The first parameter of an RSA-PSS signature: its hash function.
const HASH: u8 = 0xa0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// `None` if the certificate's signature algorithm has no defined hash function (Ed25519), or is
/// not known here.
pub(crate) fn end_point_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match hash_of_signature(certificate)? {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

/// The signature algorithm is a sequence after the signed part: its identifier, and its parameters.
fn hash_of_signature(certificate: &[u8]) -> Option<Hash> {
    let (parts, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(parts, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    let (identifier, parameters) = element(algorithm, IDENTIFIER)?;
    match identifier {
        // RSA with MD5 and with SHA-1, and ECDSA with SHA-1: the RFC replaces these by SHA-256.
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04"
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"
        | b"\x2a\x86\x48\xce\x3d\x04\x01"
        // RSA and ECDSA with SHA-256.
        | b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
        | b"\x2a\x86\x48\xce\x3d\x04\x03\x02" => Some(Hash::Sha256),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0e" | b"\x2a\x86\x48\xce\x3d\x04\x03\x01" => Some(Hash::Sha224),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c" | b"\x2a\x86\x48\xce\x3d\x04\x03\x03" => Some(Hash::Sha384),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d" | b"\x2a\x86\x48\xce\x3d\x04\x03\x04" => Some(Hash::Sha512),
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a" => hash_of_pss(parameters),
        _ => None,
    }
}

/// RSA-PSS names its hash function, unless it is SHA-1, which is replaced by SHA-256.
fn hash_of_pss(parameters: &[u8]) -> Option<Hash> {
    let (parameters, _) = element(parameters, SEQUENCE)?;
    let Some((hash, _)) = element(parameters, HASH) else { return Some(Hash::Sha256) };
    let (hash, _) = element(hash, SEQUENCE)?;
    match element(hash, IDENTIFIER)?.0 {
        b"\x2b\x0e\x03\x02\x1a" | b"\x60\x86\x48\x01\x65\x03\x04\x02\x01" => Some(Hash::Sha256),
        b"\x60\x86\x48\x01\x65\x03\x04\x02\x02" => Some(Hash::Sha384),
        b"\x60\x86\x48\x01\x65\x03\x04\x02\x03" => Some(Hash::Sha512),
        b"\x60\x86\x48\x01\x65\x03\x04\x02\x04" => Some(Hash::Sha224),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let certificate =
            rcgen::CertificateParams::new(["h".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(end_point_hash(certificate.der()).unwrap().len(), 48);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(["h".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(end_point_hash(certificate.der()).unwrap().len(), 32);
        for end in 0..60 {
            assert!(end_point_hash(&certificate.der()[..end]).is_none());
        }
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let certificate =
            rcgen::CertificateParams::new(["h".to_owned()]).unwrap().self_signed(&key).unwrap();
        assert_eq!(end_point_hash(certificate.der()), None);
    }

    /// In the form that `openssl x509 -sigopt rsa_padding_mode:pss` writes.
    #[test]
    fn a_signature_with_pss_names_its_hash() {
        let with = |hash: &[u8]| {
            let hash = [
                &[
                    SEQUENCE,
                    u8::try_from(hash.len()).unwrap() + 4,
                    IDENTIFIER,
                    u8::try_from(hash.len()).unwrap(),
                ],
                hash,
                &[5, 0],
            ]
            .concat();
            let hash = [&[HASH, u8::try_from(hash.len()).unwrap()], &hash[..]].concat();
            hash_of_pss(&[&[SEQUENCE, u8::try_from(hash.len()).unwrap()], &hash[..]].concat())
        };
        assert_eq!(with(b"\x60\x86\x48\x01\x65\x03\x04\x02\x01"), Some(Hash::Sha256));
        assert_eq!(with(b"\x60\x86\x48\x01\x65\x03\x04\x02\x03"), Some(Hash::Sha512));
        assert_eq!(with(b"\x60"), None);
        assert_eq!(hash_of_pss(&[SEQUENCE, 0]), Some(Hash::Sha256));
    }

    #[test]
    fn each_algorithm_has_the_hash_of_the_rfc() {
        let sequence =
            |content: &[u8]| [&[SEQUENCE, u8::try_from(content.len()).unwrap()], content].concat();
        let hash = |identifier: &[u8]| {
            let identifier =
                [&[IDENTIFIER, u8::try_from(identifier.len()).unwrap()], identifier].concat();
            hash_of_signature(&sequence(&[sequence(&[]), sequence(&identifier)].concat()))
        };
        let rsa =
            |last: u8| hash(&[b"\x2a\x86\x48\x86\xf7\x0d\x01\x01".as_slice(), &[last]].concat());
        let ecdsa =
            |last: u8| hash(&[b"\x2a\x86\x48\xce\x3d\x04\x03".as_slice(), &[last]].concat());
        assert_eq!([4, 5, 11, 12, 13, 14].map(rsa).map(Option::unwrap), {
            use Hash::{Sha224, Sha256, Sha384, Sha512};
            [Sha256, Sha256, Sha256, Sha384, Sha512, Sha224]
        });
        assert_eq!([1, 2, 3, 4].map(ecdsa).map(Option::unwrap), {
            use Hash::{Sha224, Sha256, Sha384, Sha512};
            [Sha224, Sha256, Sha384, Sha512]
        });
        assert_eq!(hash(b"\x2a\x86\x48\xce\x3d\x04\x01"), Some(Hash::Sha256));
        assert_eq!((rsa(99), ecdsa(9)), (None, None));
    }
}
