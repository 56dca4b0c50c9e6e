//! Certificates for servers with TLS and for their clients, as PEM files.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::fresh_dir;

const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The files of a certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A CA, and the certificates that it signed for a server at 127.0.0.1 and for a client. The files
/// are removed with this value.
pub struct Certificates {
    dir: PathBuf,
    ca: CertifiedIssuer<'static, KeyPair>,
    server: Identity,
    client: Identity,
}

impl Certificates {
    pub fn new() -> Self {
        let dir = fresh_dir();
        let ca = authority("test CA");
        std::fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
        let server = sign(&dir, "server", server_params(&NAMES), Some(&ca));
        let mut params = server_params(&[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, "client");
        let client = sign(&dir, "client", params, Some(&ca));
        Self { dir, ca, server, client }
    }

    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// The certificate for localhost, 127.0.0.1 and ::1.
    pub fn server(&self) -> &Identity {
        &self.server
    }

    pub fn client(&self) -> &Identity {
        &self.client
    }

    /// Another valid certificate for the server.
    pub fn renewed(&self) -> Identity {
        sign(&self.dir, "renewed", server_params(&NAMES), Some(&self.ca))
    }

    pub fn expired(&self) -> Identity {
        let mut params = server_params(&NAMES);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        sign(&self.dir, "expired", params, Some(&self.ca))
    }

    /// Signed with SHA-512 by RSA, which requires other keys than those generated here.
    pub fn with_sha512(&self) -> Identity {
        let key = KeyPair::from_pem_and_sign_algo(include_str!("rsa.key"), &rcgen::PKCS_RSA_SHA512)
            .unwrap();
        write(&self.dir, "sha512", &server_params(&NAMES).self_signed(&key).unwrap(), &key)
    }

    /// Signed with Ed25519, for which no channel binding is defined.
    pub fn with_ed25519(&self) -> Identity {
        let ca = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let ca = CertifiedIssuer::self_signed(CertificateParams::default(), ca).unwrap();
        let key = KeyPair::generate().unwrap();
        write(&self.dir, "ed25519", &server_params(&NAMES).signed_by(&key, &ca).unwrap(), &key)
    }

    /// A certificate for another server's name.
    pub fn other_name(&self) -> Identity {
        sign(&self.dir, "other-name", server_params(&["redis.example"]), Some(&self.ca))
    }

    pub fn self_signed(&self) -> Identity {
        sign(&self.dir, "self-signed", server_params(&NAMES), None)
    }

    /// A certificate for the right names, but signed by an untrusted CA.
    pub fn other_ca(&self) -> Identity {
        sign(&self.dir, "other-ca", server_params(&NAMES), Some(&authority("another CA")))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Servers are also clients of each other.
fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.distinguished_name.push(DnType::CommonName, "server");
    params
}

/// Writes the files; without a CA the certificate is self-signed.
fn sign(
    dir: &Path,
    name: &str,
    params: CertificateParams,
    ca: Option<&CertifiedIssuer<'static, KeyPair>>,
) -> Identity {
    let key = KeyPair::generate().unwrap();
    let signed = match ca {
        Some(ca) => params.signed_by(&key, ca),
        None => params.self_signed(&key),
    };
    write(dir, name, &signed.unwrap(), &key)
}

fn write(dir: &Path, name: &str, certificate: &Certificate, key: &KeyPair) -> Identity {
    let files = Identity {
        certificate: dir.join(format!("{name}.pem")),
        key: dir.join(format!("{name}.key")),
    };
    std::fs::write(&files.certificate, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}
