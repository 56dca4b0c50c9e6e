//! Uses a lock over TLS with aws-lc-rs instead of ring, with `--features fips` as it is validated
//! according to FIPS 140-3. Starts its own server: LEASEHOLD_SERVER, built with TLS.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::CryptoProvider;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A server and its directory, both removed when this is dropped.
struct Server {
    process: Child,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn make_certificates(dir: &Path) -> Outcome<()> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the authority of this test");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &authority)?;
    std::fs::write(dir.join("ca.pem"), authority.pem())?;
    std::fs::write(dir.join("server.pem"), certificate.pem())?;
    Ok(std::fs::write(dir.join("server.key"), key.serialize_pem())?)
}

/// Also returns the URL.
fn start() -> Outcome<(Server, String)> {
    let dir = std::env::temp_dir().join(format!("leasehold-providers-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    make_certificates(&dir)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let process = Command::new(std::env::var("LEASEHOLD_SERVER").map_err(|_| "set LEASEHOLD_SERVER")?)
        .args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--tls-port", &port, "--tls-auth-clients", "no"])
        .args(["--tls-cert-file", "server.pem", "--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.pem"])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .spawn()?;
    Ok((Server { process, dir }, format!("rediss://localhost:{port}/")))
}

fn main() -> Outcome<()> {
    let (server, url) = start()?;
    let tls = Tls::new().ca_file(server.dir.join("ca.pem"));
    let refused = |tls: &Tls, says: &str| {
        let error = LockClient::builder().url(&url).tls(tls.clone()).build().expect_err("it must be refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(&tls, "install_default");

    let is_fips = cfg!(feature = "fips");
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    assert_eq!(provider.fips(), is_fips);
    provider.install_default().map_err(|_| "none is installed yet")?;
    assert!(CryptoProvider::get_default().is_some());

    let tls = if is_fips { tls.require_fips() } else { tls };
    let deadline = Instant::now() + Duration::from_secs(10);
    let client = loop {
        match LockClient::builder().url(&url).tls(tls.clone()).build() {
            Err(e) if e.kind() == ErrorKind::Unreachable && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            built => break built?,
        }
    };
    let guard = client.lock("job")?;
    assert!(guard.is_held());
    guard.unlock()?;
    if !is_fips {
        refused(&tls.require_fips(), "not validated");
    }
    println!(
        "locked over TLS with aws-lc-rs, {}",
        if is_fips { "validated for FIPS" } else { "not the validated one" }
    );
    Ok(())
}
