//! A lock over TLS, with a client certificate, from an authority of our own.
//!
//! With a URL it asks that server; without one it makes certificates in a temporary directory and
//! starts a server with them (LEASEHOLD_SERVER, or redis-server, built with TLS), and removes both
//! at the end.
//!
//! `cargo run --features tls --example tls`
//!
//! `cargo run --features tls --example tls -- rediss://host:6380/ ca.pem client.pem client.key`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, LockClient, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A server and its directory, both removed when this is dropped.
struct Server {
    process: Option<Child>,
    dir: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
fn make_certificates(dir: &Path) -> Outcome<()> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Different from the default name of the certificates below, or they would look self-signed.
    params.distinguished_name.push(DnType::CommonName, "our own authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    std::fs::write(dir.join("ca.pem"), authority.pem())?;
    for (name, hosts) in
        [("server", vec!["localhost".to_owned(), "127.0.0.1".to_owned()]), ("client", Vec::new())]
    {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(hosts)?.signed_by(&key, &authority)?;
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem())?;
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}

/// Also returns the URL.
fn start() -> Outcome<(Server, String)> {
    let dir = std::env::temp_dir().join(format!("leasehold-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let mut server = Server { process: None, dir: dir.clone() };
    make_certificates(&dir)?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let program = std::env::var("LEASEHOLD_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let process = Command::new(&program)
        .args([
            "--port",
            "0",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--tls-port",
            &port,
            "--tls-auth-clients",
            "yes",
        ])
        .args([
            "--tls-cert-file",
            "server.pem",
            "--tls-key-file",
            "server.key",
            "--tls-ca-cert-file",
            "ca.pem",
        ])
        .current_dir(&dir)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program} cannot be started ({e}); set LEASEHOLD_SERVER"))?;
    server.process = Some(process);
    Ok((server, format!("rediss://localhost:{port}/")))
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (server, url, [ca, certificate, key]) = match &args[..] {
        [] => {
            let (server, url) = start()?;
            let files = ["ca.pem", "client.pem", "client.key"].map(|name| server.dir.join(name));
            (Some(server), url, files)
        }
        [url, ca, certificate, key] => {
            (None, url.clone(), [ca, certificate, key].map(PathBuf::from))
        }
        _ => {
            return Err(
                "give no argument, or a URL, the authority, the client certificate and its key"
                    .into(),
            );
        }
    };
    let tls = Tls::new().ca_file(&ca).identity_files(certificate, key);
    let deadline = Instant::now() + Duration::from_secs(10);
    let client = loop {
        match LockClient::builder().url(&url).tls(tls.clone()).build() {
            // Our own server is still starting.
            Err(e) if e.kind() == ErrorKind::Unreachable && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            built => break built?,
        }
    };
    let guard = client.lock("job")?;
    println!("have the lock for {:?}, over TLS", guard.remaining());
    guard.unlock()?;

    // The errors say what is wrong, before any request is sent.
    for (what, tls) in [
        ("without its authority", Tls::new()),
        ("under another name", tls.server_name("redis.example")),
        ("without a client certificate", Tls::new().ca_file(&ca)),
    ] {
        let Err(error) = LockClient::builder().url(&url).tls(tls).build() else {
            println!("{what}: this server does not mind");
            continue;
        };
        println!("{what}: {error}");
    }
    drop(server);
    println!("only who has the right certificates is served");
    Ok(())
}
