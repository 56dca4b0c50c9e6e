//! The start of a connection: the greeting of the server, TLS, and the log-in.

use sha1_smol::Sha1;
use sha2::{Digest, Sha256};

use super::fields::Fields;
use super::packet::{Transport, malformed};
use super::server_error::ServerError;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::database::Malformed;
use crate::store::mysql::url::MysqlUrl;

// What the client can do. LONG_PASSWORD, FOUND_ROWS (an UPDATE counts the rows that it finds, so
// that a repeat answers the same), LONG_FLAG, CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS,
// SECURE_CONNECTION, MULTI_STATEMENTS, MULTI_RESULTS, PLUGIN_AUTH.
const CAPABILITIES: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x3_0000 | 0x8_0000;
/// Both sides can do TLS.
const TLS: u32 = 0x800;
/// Characters are `utf8mb4`.
const CHARSET: u8 = 45;
const LONGEST_PACKET: u32 = 0xff_ffff;

const NATIVE: &str = "mysql_native_password";
const CACHING: &str = "caching_sha2_password";

/// The first packet of the server.
pub(super) struct Greeting {
    /// The number of the connection, as the other end gives it.
    pub(super) id: u32,
    #[cfg_attr(
        not(any(feature = "tls-core", test)),
        expect(dead_code, reason = "with TLS it is needed")
    )]
    pub(super) has_tls: bool,
    nonce: Vec<u8>,
    plugin: String,
}

impl Greeting {
    pub(super) fn receive(transport: &mut Transport) -> Result<Self> {
        let deadline = transport.deadline();
        let packet = transport.recv(deadline)?;
        if packet.first() == Some(&0xff) {
            return Err(refused(&packet, transport));
        }
        Self::read(&packet).map_err(|_| malformed(&transport.address))
    }

    pub(super) fn read(packet: &[u8]) -> std::result::Result<Self, Malformed> {
        let mut fields = Fields(packet);
        if fields.byte()? != 10 {
            return Err(Malformed);
        }
        fields.until_zero()?;
        let id = fields.integer(4)? as u32;
        let mut nonce = fields.take(8)?.to_vec();
        fields.take(1)?;
        let low = fields.integer(2)? as u32;
        fields.take(3)?;
        let capabilities = low | (fields.integer(2)? as u32) << 16;
        if capabilities & CAPABILITIES & !1 != CAPABILITIES & !1 {
            return Err(Malformed);
        }
        let length = usize::from(fields.byte()?);
        fields.take(10)?;
        nonce.extend(fields.take(length.saturating_sub(8).max(13))?);
        nonce.truncate(20);
        let plugin = String::from_utf8_lossy(fields.until_zero()?).into_owned();
        Ok(Self { id, has_tls: capabilities & TLS != 0, nonce, plugin })
    }
}

fn head(has_tls: bool) -> Vec<u8> {
    let mut head = Vec::with_capacity(32);
    head.extend((CAPABILITIES | if has_tls { TLS } else { 0 }).to_le_bytes());
    head.extend(LONGEST_PACKET.to_le_bytes());
    head.push(CHARSET);
    head.extend([0; 23]);
    head
}

/// Asks the server to begin TLS.
#[cfg(feature = "tls-core")]
pub(super) fn ask_for_tls(transport: &mut Transport) -> Result<()> {
    let packet = transport.reader.pack(false, &[&head(true)])?;
    transport.send(&packet)
}

/// Logs in. `is_secret`: nobody can read what is sent (TLS, or a unix socket).
pub(super) fn log_in(
    transport: &mut Transport,
    greeting: &Greeting,
    url: &MysqlUrl,
    has_tls: bool,
    is_secret: bool,
) -> Result<()> {
    let password = url.password.as_deref().unwrap_or_default().as_bytes();
    // An unknown way is named by the server in its answer.
    let plugin = if greeting.plugin == NATIVE { NATIVE } else { CACHING };
    let proof = proof(plugin, password, &greeting.nonce).unwrap_or_default();
    let length = [proof.len() as u8];
    let parts: [&[u8]; 9] = [
        &head(has_tls),
        url.user.as_bytes(),
        &[0],
        &length,
        &proof,
        url.database.as_bytes(),
        &[0],
        plugin.as_bytes(),
        &[0],
    ];
    let packet = transport.reader.pack(false, &parts)?;
    transport.send(&packet)?;
    let deadline = transport.deadline();
    // The server asks for at most one other way, and for the password itself.
    for _ in 0..4 {
        let packet = transport.recv(deadline)?;
        let answer = match *packet {
            [0, ..] => return Ok(()),
            [0xff, ..] => return Err(refused(&packet, transport)),
            [0xfe, ref switch @ ..] => {
                let mut fields = Fields(switch);
                let plugin = fields.until_zero().map_err(|_| malformed(&transport.address))?;
                let nonce = fields.0.get(..20).unwrap_or(fields.0);
                self::proof(&String::from_utf8_lossy(plugin), password, nonce)?
            }
            // The hash was in the server's cache: OK follows.
            [1, 3] => continue,
            [1, 4] if is_secret => [password, &[0]].concat(),
            [1, 4] => return Err(needs_secrecy()),
            _ => return Err(malformed(&transport.address)),
        };
        let packet = transport.reader.pack(false, &[&answer])?;
        transport.send(&packet)?;
    }
    Err(malformed(&transport.address))
}

/// What shows that the client knows the password.
fn proof(plugin: &str, password: &[u8], nonce: &[u8]) -> Result<Vec<u8>> {
    let xor = |one: &[u8], other: &[u8]| one.iter().zip(other).map(|(a, b)| a ^ b).collect();
    let sha1 = |bytes: &[u8]| Sha1::from(bytes).digest().bytes();
    match plugin {
        NATIVE | CACHING if password.is_empty() => Ok(Vec::new()),
        NATIVE => {
            let hash = sha1(password);
            Ok(xor(&hash, &sha1(&[nonce, &sha1(&hash)].concat())))
        }
        CACHING => {
            let hash = Sha256::digest(password);
            let twice = Sha256::digest(hash);
            Ok(xor(&hash, &Sha256::digest([&twice[..], nonce].concat())))
        }
        // The server asks the system who is at the other end of the unix socket.
        "auth_socket" | "unix_socket" => Ok(Vec::new()),
        other => {
            let why = format!(
                "the server asks the user to log in by {other:?}; create the user with {CACHING} or {NATIVE}"
            );
            Err(Error::new(ErrorKind::Unsupported, why))
        }
    }
}

#[cold]
fn refused(packet: &[u8], transport: &Transport) -> Error {
    match ServerError::read(packet) {
        Ok(error) => error.to_error(),
        Err(Malformed) => malformed(&transport.address),
    }
}

#[cold]
fn needs_secrecy() -> Error {
    Error::new(
        ErrorKind::Denied,
        "the server does not have the user's password in its cache and asks for the password itself, which is sent over \
         TLS or a unix socket only: use ssl-mode=required (cargo feature tls), a unix socket, or a user with \
         mysql_native_password",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As another implementation of the hashes makes them.
    #[test]
    fn proofs_are_those_of_the_protocol() {
        let nonce: Vec<u8> = (1..=20).collect();
        let hex = |plugin| {
            let proof = proof(plugin, b"secret", &nonce).unwrap();
            proof.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hex(NATIVE), "b32bb3a583e1340c0a1108d58b1be49781ad8c2f");
        let caching = "746ebe205d56a0707acb3e796e834e0dd7b1d61743b26bd5202c7a623230c7c9";
        assert_eq!(hex(CACHING), caching);
        assert!(proof(NATIVE, b"", &nonce).unwrap().is_empty());
        assert_eq!(
            proof("sha256_password", b"x", &nonce).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
