//! TLS in front of a Unix socket, as a cloud provider or stunnel offers it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::{Certificates, Proxy};

#[derive(Default)]
struct State {
    /// The maximum number of bytes in one record to the client; 0 for no limit.
    piece: AtomicUsize,
    stop: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

pub struct TlsFront {
    port: u16,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

impl TlsFront {
    pub fn start(certificates: &Certificates, upstream: PathBuf) -> Self {
        Self::listen(certificates, upstream, |_| Ok(()))
    }

    /// In front of a PostgreSQL, whose clients ask whether the server supports TLS before they
    /// start it.
    pub fn before_postgres(certificates: &Certificates, upstream: PathBuf) -> Self {
        Self::listen(certificates, upstream, |mut client| {
            client.read_exact(&mut [0; 8])?;
            client.write_all(b"S")
        })
    }

    fn listen(
        certificates: &Certificates,
        upstream: PathBuf,
        prelude: fn(&TcpStream) -> std::io::Result<()>,
    ) -> Self {
        let identity = certificates.server();
        let chain = CertificateDer::pem_file_iter(&identity.certificate)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let acceptor = std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(server) = UnixStream::connect(&upstream) else { continue };
                client.set_nodelay(true).unwrap();
                shared.streams.lock().push(client.try_clone().unwrap());
                let (state, session) =
                    (shared.clone(), ServerConnection::new(config.clone()).unwrap());
                std::thread::spawn(move || {
                    if prelude(&client).is_ok() {
                        carry(session, &client, &server, &state);
                    }
                });
            }
        });
        Self { port, state, acceptor: Some(acceptor) }
    }

    pub fn of(certificates: &Certificates, proxy: &Proxy) -> Self {
        Self::start(certificates, proxy.path().to_owned())
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}/", self.port)
    }

    pub fn postgres_url(&self, user: &str, parameters: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres?{parameters}", self.port)
    }

    /// Limits records to the client to this many bytes from now on.
    pub fn send_in_pieces_of(&self, bytes: usize) {
        self.state.piece.store(bytes, Ordering::SeqCst);
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        for stream in self.state.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn carry(mut session: ServerConnection, client: &TcpStream, server: &UnixStream, state: &State) {
    let mut socket = client;
    if !(session.is_handshaking() && session.complete_io(&mut socket).is_err()) {
        let session = Mutex::new(session);
        std::thread::scope(|s| {
            s.spawn(|| {
                let _ = downstream(&session, client, server, state);
                close(client, server);
            });
            let _ = upstream(&session, client, server);
            close(client, server);
        });
    }
    close(client, server);
}

/// Closes without TLS's close_notify, like a server that dies.
fn close(client: &TcpStream, server: &UnixStream) {
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn upstream(
    session: &Mutex<ServerConnection>,
    mut client: &TcpStream,
    mut server: &UnixStream,
) -> std::io::Result<()> {
    let mut chunk = [0; 4096];
    loop {
        let mut plain = Vec::new();
        {
            let mut session = session.lock();
            session.process_new_packets().map_err(std::io::Error::other)?;
            match session.reader().read_to_end(&mut plain) {
                Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
                _ => {}
            }
        }
        server.write_all(&plain)?;
        let length = client.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        let mut session = session.lock();
        let mut rest = &chunk[..length];
        while !rest.is_empty() {
            session.read_tls(&mut rest)?;
            session.process_new_packets().map_err(std::io::Error::other)?;
        }
    }
}

fn downstream(
    session: &Mutex<ServerConnection>,
    mut client: &TcpStream,
    mut server: &UnixStream,
    state: &State,
) -> std::io::Result<()> {
    let mut chunk = [0; 1 << 16];
    loop {
        let length = server.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        let piece = match state.piece.load(Ordering::SeqCst) {
            0 => length,
            piece => piece,
        };
        for part in chunk[..length].chunks(piece) {
            let mut session = session.lock();
            session.writer().write_all(part)?;
            while session.wants_write() {
                session.write_tls(&mut client)?;
            }
        }
    }
}
