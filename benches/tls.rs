//! The cycle of the plain lock over TLS: compared with the same over plain TCP, and with the bare
//! scripts over TLS. All run on one server, alternating.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use leasehold::{LockClient, Tls};
use redis::Value;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::load::rate_of;
use crate::common::primitive::{Ours, Primitive, Raw};
use crate::common::scripts::script;
use crate::common::server::{Server, find_server, free_port};
use crate::common::table::{Table, median};
use crate::common::{Bench, open};

/// Leasehold's defaults.
const LEASE_MS: u64 = 30_000;
const TOKEN_TTL_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) fn cycle(bench: &Bench, table: &mut Table) {
    let Some((server, port)) = start() else {
        return table.note("TLS: not measured, because the server is built without it".to_owned());
    };
    let ca = server.dir.join("ca.pem");
    let (rounds, span) = bench.rounds((21, 120), (5, 40));
    let mut raw = Raw::new(Primitive::Mutex, &server.url, "raw");
    let mut raw_over_tls = RawOverTls::new(port, &ca);
    let plain = open(&server.url);
    let secure = LockClient::builder()
        .url(format!("rediss://127.0.0.1:{port}/"))
        .tls(Tls::new().ca_file(&ca))
        .build();
    let secure = secure.expect("the private server answers");
    let (plain, secure) = (
        Ours::new(Primitive::Mutex, &plain, "plain"),
        Ours::new(Primitive::Mutex, &secure, "secure"),
    );
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        rates[0].push(rate_of(span, || raw.cycle()));
        rates[1].push(rate_of(span, || raw_over_tls.cycle()));
        rates[2].push(rate_of(span, || plain.once(&mut || ())));
        rates[3].push(rate_of(span, || secure.once(&mut || ())));
    }
    let [raw, raw_over_tls, plain, secure] = rates.map(|rates| median(&rates));
    table.compare("lock + unlock over TLS, to raw over TLS", raw_over_tls, secure, None, "raw");
    table.compare("  to the same over plain TCP", plain, secure, None, "plain");
    table.compare("  raw over TLS, to raw over plain TCP", raw, raw_over_tls, None, "raw");
}

/// A server with a plain port and a TLS port; `None` if it was built without TLS.
fn start() -> Option<(Server, u16)> {
    let asked = Command::new(find_server())
        .args(["--port", "0", "--tls-port", "1"])
        .output()
        .expect("a server");
    if !String::from_utf8_lossy(&asked.stdout).contains("No tls-cert-file configured") {
        return None;
    }
    let port = free_port();
    let server = Server::start_with(true, |dir| {
        // It is self-signed, so it is its own authority.
        let made =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let path = |name: &str| dir.join(name).display().to_string();
        std::fs::write(path("ca.pem"), made.cert.pem()).expect("a file");
        std::fs::write(path("key"), made.signing_key.serialize_pem()).expect("a file");
        let args = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path("ca.pem")),
            ("--tls-key-file", path("key")),
            ("--tls-ca-cert-file", path("ca.pem")),
            ("--tls-auth-clients", "no".to_owned()),
        ];
        args.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
    });
    Some((server, port))
}

struct RawOverTls {
    stream: StreamOwned<ClientConnection, TcpStream>,
    parser: redis::Parser,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl RawOverTls {
    fn new(port: u16, ca: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(ca).expect("a certificate"))
            .expect("a certificate");
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("TLS 1.2 and 1.3")
                .with_root_certificates(roots)
                .with_no_client_auth();
        let name = "127.0.0.1".try_into().expect("an address");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("the private server answers");
        socket.set_nodelay(true).expect("a socket takes it");
        let stream = StreamOwned::new(session, socket);
        let mut raw =
            Self { stream, parser: redis::Parser::new(), acquire: Vec::new(), release: Vec::new() };
        let shas = ["mutex_acquire", "mutex_release"].map(|name| {
            let loaded = raw.ask_packed(
                &redis::cmd("SCRIPT").arg("LOAD").arg(script(name)).get_packed_command(),
            );
            redis::from_redis_value::<String>(loaded).expect("the script is loaded")
        });
        let holder = "00000000-0000-8000-8000-000000000000:1";
        let keys = ["over-tls", "redisson_lock_token:{over-tls}"];
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(&shas[0]).arg(keys.len()).arg(&keys).arg(holder).arg(LEASE_MS).arg(0);
        raw.acquire = evalsha.arg(TOKEN_TTL_MS).arg(1).arg(0).arg(0).get_packed_command();
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha
            .arg(&shas[1])
            .arg(1)
            .arg(keys[0])
            .arg(holder)
            .arg(1)
            .arg("redisson_lock__channel:{over-tls}");
        raw.release = evalsha.get_packed_command();
        raw
    }

    fn ask_packed(&mut self, request: &[u8]) -> Value {
        self.stream
            .write_all(request)
            .and_then(|()| self.stream.flush())
            .expect("the private server answers");
        self.parser.parse_value(&mut self.stream).expect("an answer")
    }

    fn cycle(&mut self) {
        let (acquire, release) =
            (std::mem::take(&mut self.acquire), std::mem::take(&mut self.release));
        for request in [&acquire, &release] {
            let reply = self.ask_packed(request);
            let first = if let Value::Array(parts) = &reply { parts.first() } else { None };
            assert!(matches!(first, Some(Value::Int(1..))), "nobody else uses it: {reply:?}");
        }
        (self.acquire, self.release) = (acquire, release);
    }
}
