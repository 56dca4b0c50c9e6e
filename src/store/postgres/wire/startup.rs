//! The start of a connection: TLS, log-in, and the process id of the backend.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::messages::{Transport, malformed};
use super::password::{ignored_file, password_for};
use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::store::postgres::url::{Binding, PostgresUrl};

/// Why a log-in failed.
pub(super) struct Refusal {
    pub(super) error: Error,
    /// The server permits no connection of this kind (with TLS, or without), and did not even ask
    /// for a password.
    pub(super) by_rule: bool,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, by_rule: false }
    }
}

/// Logs in. Returns the process id that the other end reports for the backend.
pub(super) fn log_in(
    transport: &mut Transport,
    url: &PostgresUrl,
) -> std::result::Result<i32, Refusal> {
    let mut parameters =
        vec![("user", &*url.user), ("database", &*url.database), ("client_encoding", "UTF8")];
    let application = url.more.application_name.as_deref();
    parameters.extend(application.map(|name| ("application_name", name)));
    if let Some(options) = &url.more.options {
        parameters.push(("options", options));
    }
    send(transport, |out| frontend::startup_message(parameters, out))?;
    let mut log_in = LogIn { url, scram: None, asked: false, done: false, proven: false };
    let mut pid = None;
    loop {
        let deadline = transport.deadline();
        match transport.recv(deadline)? {
            Message::AuthenticationOk => log_in.done(transport)?,
            Message::BackendKeyData(body) => pid = Some(body.process_id()),
            Message::ReadyForQuery(_) if log_in.done => break,
            Message::ErrorResponse(body) => {
                let refused =
                    ServerError::read(&body).map_err(|_| malformed(&transport.address))?;
                let by_rule = refused.is_by_rule() && !log_in.asked;
                return Err(Refusal { error: refused.to_error(), by_rule });
            }
            Message::NoticeResponse(_) | Message::ParameterStatus(_) => {}
            message => log_in.answer(transport, message)?,
        }
    }
    pid.ok_or_else(|| malformed(&transport.address).into())
}

fn send(
    transport: &mut Transport,
    write: impl FnOnce(&mut BytesMut) -> std::io::Result<()>,
) -> Result<()> {
    let mut out = BytesMut::new();
    write(&mut out).map_err(|e| invalid("the URL cannot be sent").caused_by(e))?;
    transport.send(&out)
}

const NO_SCRAM: &str = "the server did not ask for SCRAM, which channel_binding=require needs";

struct LogIn<'u> {
    url: &'u PostgresUrl,
    scram: Option<ScramSha256>,
    /// Whether the server has asked for a proof.
    asked: bool,
    done: bool,
    /// Whether the server has proved that it knows the password, too.
    proven: bool,
}

impl LogIn<'_> {
    fn done(&mut self, transport: &Transport) -> Result<()> {
        // A server in the middle could leave out the proof that it is the right one.
        if self.scram.is_some() && !self.proven {
            return Err(malformed(&transport.address));
        }
        if self.url.more.binding == Binding::Require && self.scram.is_none() {
            return Err(denied(NO_SCRAM));
        }
        self.done = true;
        Ok(())
    }

    fn password(&self, transport: &Transport) -> Result<String> {
        password_for(self.url, &transport.address).ok_or_else(|| match ignored_file(self.url) {
            None => denied(
                "the server asks for a password, and there is none in the URL, in PGPASSWORD and in the password \
                 file (PGPASSFILE, ~/.pgpass)",
            ),
            Some(file) => denied(&format!(
                "the server asks for a password, and the password file {} is ignored because others may read it: \
                 set its mode to 0600",
                file.display()
            )),
        })
    }

    fn answer(&mut self, transport: &mut Transport, message: Message) -> Result<()> {
        if self.done {
            return Err(malformed(&transport.address));
        }
        self.asked = true;
        // Checked before the password is sent: a server that asks for it like this may be in the
        // middle.
        let is_bare = matches!(
            message,
            Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_)
        );
        if is_bare && self.url.more.binding == Binding::Require {
            return Err(denied(NO_SCRAM));
        }
        match message {
            Message::AuthenticationCleartextPassword => {
                let password = self.password(transport)?;
                send(transport, |out| frontend::password_message(password.as_bytes(), out))
            }
            Message::AuthenticationMd5Password(body) => {
                let password = self.password(transport)?;
                let hash = md5_hash(self.url.user.as_bytes(), password.as_bytes(), body.salt());
                send(transport, |out| frontend::password_message(hash.as_bytes(), out))
            }
            Message::AuthenticationSasl(body) => self.begin_scram(transport, &body),
            Message::AuthenticationSaslContinue(body) => {
                let address = transport.address.clone();
                let scram = self.scram.as_mut().ok_or_else(|| malformed(&address))?;
                check_iterations(body.data())?;
                scram.update(body.data()).map_err(|e| malformed(&address).caused_by(e))?;
                let reply = scram.message().to_vec();
                send(transport, |out| frontend::sasl_response(&reply, out))
            }
            Message::AuthenticationSaslFinal(body) => {
                let scram = self.scram.as_mut().ok_or_else(|| malformed(&transport.address))?;
                scram.finish(body.data()).map_err(|e| {
                    denied("the server could not prove that it knows the password: it may be another one").caused_by(e)
                })?;
                self.proven = true;
                Ok(())
            }
            Message::AuthenticationGss
            | Message::AuthenticationSspi
            | Message::AuthenticationKerberosV5 => Err(Error::new(
                ErrorKind::Unsupported,
                "the server asks for Kerberos, GSSAPI or SSPI; use SCRAM, a password or a client certificate",
            )),
            _ => Err(malformed(&transport.address)),
        }
    }

    fn begin_scram(
        &mut self,
        transport: &mut Transport,
        body: &AuthenticationSaslBody,
    ) -> Result<()> {
        let offered: Vec<&str> =
            body.mechanisms().collect().map_err(|_| malformed(&transport.address))?;
        let hash = match self.url.more.binding {
            Binding::Disable => None,
            Binding::Prefer | Binding::Require => end_point_hash(transport),
        };
        let offers_binding = offered.contains(&SCRAM_SHA_256_PLUS);
        let (mechanism, binding) = match hash {
            Some(Some(hash)) if offers_binding => {
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash))
            }
            Some(None) if self.url.more.binding == Binding::Require => {
                return Err(denied(
                    "channel_binding=require: the server's certificate is signed in a way for which no binding is \
                     defined (Ed25519, say); use one that is signed with RSA or ECDSA",
                ));
            }
            _ if self.url.more.binding == Binding::Require => {
                return Err(denied(
                    "channel_binding=require needs TLS and a server that offers SCRAM-SHA-256-PLUS",
                ));
            }
            // A server that does offer it notices that somebody has removed the offer.
            Some(Some(_)) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            Some(None) | None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        if !offered.contains(&mechanism) {
            let why = "the server does not offer the log-in that is supported here: SCRAM-SHA-256";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let scram = ScramSha256::new(self.password(transport)?.as_bytes(), binding);
        send(transport, |out| frontend::sasl_initial_response(mechanism, scram.message(), out))?;
        self.scram = Some(scram);
        Ok(())
    }
}

/// The data that binds a log-in to the TLS connection, if there is one: a hash of the server's
/// certificate, if one is defined.
fn end_point_hash(transport: &Transport) -> Option<Option<Vec<u8>>> {
    #[cfg(feature = "tls-core")]
    return transport
        .stream
        .server_certificate()
        .map(|der| crate::store::tls::end_point_hash(&der));
    #[cfg(not(feature = "tls-core"))]
    {
        let _ = transport;
        None
    }
}

/// How many rounds of hashing a server may ask for: each connect takes that long, whatever the I/O
/// timeout is, and a wrong server is recognized only afterwards.
const MOST_ITERATIONS: u64 = 1_000_000;

/// `message`: the first message of a server in SCRAM, `r=..,s=..,i=4096`.
pub(super) fn check_iterations(message: &[u8]) -> Result<()> {
    let iterations = message.split(|byte| *byte == b',').find_map(|part| part.strip_prefix(b"i="));
    let iterations =
        iterations.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    // A number that cannot be read is refused by the parser of the message.
    match iterations {
        Some(iterations) if iterations > MOST_ITERATIONS => Err(denied(&format!(
            "the server asks for {iterations} rounds of SCRAM, which would take minutes, and {MOST_ITERATIONS} is the \
             limit: it may be another server, or set the password anew with fewer (scram_iterations)"
        ))),
        _ => Ok(()),
    }
}

#[cold]
fn denied(why: &str) -> Error {
    Error::new(ErrorKind::Denied, why)
}
