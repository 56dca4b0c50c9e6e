//! The store's part of every handshake: scripts to load, and a probe of the user's rights.

use super::{CONNECT_PROBE, LOADED, LOADED_INTO_MASTERS, fail_on_error, unexpected};
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::keys::probe_names;
use crate::store::redis::wire::{
    Handshake, Reply, Request, WHERE_IT_IS_NOT_OFF, says_unknown_command,
};

/// The probe finds out whether the user may publish, because Redis does not roll back what a script
/// did before a publish that is refused. Its names begin with the prefix, because the ACL may
/// permit no others.
pub(crate) fn handshake(key_prefix: &str) -> Handshake {
    let (key, channels) = probe_names(key_prefix);
    Handshake {
        scripts: LOADED,
        probe: connect_probe(&key, &channels),
        check: refuse_missing_permissions,
    }
}

/// The same for the nodes of a cluster. If the probe passed its key as a key, all nodes but one
/// would redirect it, and nothing would be learned about them.
pub(crate) fn handshake_in_cluster(key_prefix: &str) -> Handshake {
    let (key, channels) = probe_names(key_prefix);
    let probe = with_args(Request::script(&CONNECT_PROBE, &[]).arg(key), &channels);
    Handshake { probe, ..handshake(key_prefix) }
}

/// The same for a master of a Redlock.
pub(crate) fn handshake_with_master(key_prefix: &str) -> Handshake {
    Handshake { scripts: LOADED_INTO_MASTERS, ..handshake(key_prefix) }
}

fn connect_probe(key: &str, channels: &[String]) -> Request {
    with_args(Request::script(&CONNECT_PROBE, &[key.as_bytes()]), channels)
}

fn with_args(request: Request, args: &[String]) -> Request {
    args.iter().fold(request, |request, arg| request.arg(arg))
}

/// What the server or the user cannot do, as far as the probe shows.
#[derive(Default)]
pub(crate) struct Refused {
    /// What the user may not do: the error texts, each after the command and a colon.
    pub(crate) commands: Vec<String>,
    /// What the server does not have: the same.
    pub(crate) unknown: Vec<String>,
    /// The probe's own key was refused, which says nothing about the keys of the locks.
    pub(crate) key: bool,
}

/// Other reasons why a command can fail, such as a replica that takes no writes, or a key of
/// another node of a cluster, have nothing to do with rights.
pub(crate) fn refused_by_probe(reply: Reply) -> Result<Refused> {
    if matches!(&reply, Reply::Error(e) if e.code == "NOPERM" && e.text.contains("key")) {
        return Ok(Refused { key: true, ..Refused::default() });
    }
    let Reply::Array(texts) = fail_on_error(reply)? else {
        return Err(unexpected("the probe of permissions", "no list"));
    };
    let mut refused = Refused::default();
    for text in texts {
        let Reply::Bytes(text) = text else { continue };
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        // Texts of Redis 7, 6.2 and Valkey.
        if says_unknown_command(&text) {
            refused.unknown.push(text);
        } else if text.contains("permission") || text.contains("user executing the script") {
            let is_about_key = text.contains("keys");
            refused.key |= is_about_key;
            refused.commands.extend((!is_about_key).then_some(text));
        }
    }
    Ok(refused)
}

fn refuse_missing_permissions(probe: Reply) -> Result<()> {
    // The scripts were flushed between the load and the probe: nothing was learned, and nothing is
    // wrong.
    if probe.is_error("NOSCRIPT") {
        return Ok(());
    }
    let refused = refused_by_probe(probe)?;
    if let Some(text) = refused.unknown.first() {
        let why = format!("the server does not have a command that locks need ({text})");
        return Err(Error::new(ErrorKind::Unsupported, why).advise(WHERE_IT_IS_NOT_OFF));
    }
    if let Some(text) = refused.commands.first() {
        let why = format!("the user lacks a permission that locks need ({text})");
        return Err(Error::new(ErrorKind::Denied, why).advise(Advice::GrantRights));
    }
    Ok(())
}
