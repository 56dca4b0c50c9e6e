//! What an error of TLS means, and what has to be changed.

use std::fmt;
use std::io;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription as Alert, CertificateError, Error};

use crate::base::error::ErrorKind;

/// Why TLS failed, as an [`io::Error`] carries it.
#[derive(Debug)]
pub(crate) struct TlsFailure {
    pub(crate) kind: ErrorKind,
    what: String,
    /// The port may not be a TLS port.
    may_be_plain: bool,
    cause: String,
}

impl TlsFailure {
    /// `has_identity`: a client certificate was given.
    pub(crate) fn of(error: Error, has_identity: bool) -> Self {
        let (kind, what) = match &error {
            Error::InvalidCertificate(why) => (ErrorKind::Tls, certificate(why)),
            Error::AlertReceived(alert) => alerted(*alert, has_identity),
            Error::PeerIncompatible(why) => (
                ErrorKind::Tls,
                format!(
                    "shares no TLS version or cipher with this client ({why:?}); it needs TLS 1.2 or 1.3"
                ),
            ),
            Error::NoCertificatesPresented => (ErrorKind::Tls, "shows no certificate".to_owned()),
            Error::InvalidMessage(_) => (ErrorKind::Protocol, "does not speak TLS".to_owned()),
            _ => (ErrorKind::Protocol, format!("broke the TLS protocol ({error})")),
        };
        let may_be_plain = matches!(error, Error::InvalidMessage(_));
        Self { kind, what, may_be_plain, cause: error.to_string() }
    }

    pub(crate) fn invalid(what: &str, cause: impl fmt::Display) -> Self {
        let kind = ErrorKind::InvalidInput;
        let what = what.to_owned();
        Self { kind, what, may_be_plain: false, cause: cause.to_string() }
    }

    /// A text that follows the server's address: "127.0.0.1:6380 ...". `plain`: the URL without
    /// TLS.
    pub(crate) fn says(&self, plain: &str) -> String {
        if self.may_be_plain {
            format!("{}; if the port is one without TLS, the URL is {plain}", self.what)
        } else {
            self.what.clone()
        }
    }

    /// The connection ended, or nothing came in time, before the session was established. A Redis
    /// port without TLS takes the first TLS message for a long command, and waits for its end.
    pub(crate) fn in_handshake(error: io::Error) -> io::Error {
        use io::ErrorKind as Io;
        let is_timeout = matches!(error.kind(), Io::WouldBlock | Io::TimedOut);
        let what = match error.kind() {
            _ if is_timeout => {
                "did not complete the TLS handshake within the I/O timeout (io_timeout)"
            }
            Io::UnexpectedEof | Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe => {
                "ended the connection during the TLS handshake: it may take no more clients (maxclients, \
                 maxClientCnxns)"
            }
            _ => return error,
        };
        // The system's text for a read that reached its limit is of no use.
        let cause = if is_timeout { what.to_owned() } else { error.to_string() };
        let kind = ErrorKind::Unreachable;
        let what = what.to_owned();
        Self { kind, what, may_be_plain: true, cause }.into()
    }

    /// The TLS failure in `error`, if there is one.
    pub(crate) fn in_error(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for TlsFailure {}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        Self::other(failure)
    }
}

/// What is wrong with the server's certificate.
fn certificate(why: &CertificateError) -> String {
    use CertificateError as Why;
    match why {
        Why::ExpiredContext { time, not_after } => format!(
            "has a certificate that expired {} ago; it must be renewed there, unless this machine's clock is wrong",
            apart(*not_after, *time)
        ),
        Why::Expired => "has a certificate that has expired; it must be renewed there".to_owned(),
        Why::NotValidYetContext { time, not_before } => format!(
            "has a certificate that is valid only in {}; this machine's clock or the server's is wrong",
            apart(*time, *not_before)
        ),
        Why::NotValidYet => "has a certificate that is not valid yet".to_owned(),
        Why::UnknownIssuer => "has a certificate of an authority that is not trusted here, or one that is \
                               self-signed; name its authority with Tls::ca_file"
            .to_owned(),
        Why::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            // The form in which rustls prints them: `DnsName("a.example")`.
            let bare = |name: &String| name.split(['(', ')', '"']).rfind(|part| !part.is_empty()).map(str::to_owned);
            let names = match &presented[..] {
                [] => "no host at all (it has no subjectAltName)".to_owned(),
                names => names.iter().filter_map(bare).collect::<Vec<_>>().join(", "),
            };
            format!(
                "has a certificate for {names} and not for {expected:?}; connect by a name that it has, or set \
                 Tls::server_name to one"
            )
        }
        Why::NotValidForName => "has a certificate for another name; connect by a name that it has, or set \
                                 Tls::server_name to one"
            .to_owned(),
        Why::Revoked => "has a certificate that was revoked; it needs a new one".to_owned(),
        Why::BadSignature => "has a certificate that the authority known here has not signed (name the right one \
                              with Tls::ca_file), or not its key"
            .to_owned(),
        // Usually a certificate from `openssl req -x509`.
        Why::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "uses the certificate of an authority (CA:TRUE) as its own; it needs one that an authority has signed"
                .to_owned()
        }
        why => format!("has a certificate that cannot be accepted: {why}"),
    }
}

/// What the server reports as wrong with this client.
fn alerted(alert: Alert, has_identity: bool) -> (ErrorKind, String) {
    let what = match alert {
        Alert::CertificateRequired => ASKS.to_owned(),
        // The alert of Java servers, with each version.
        Alert::BadCertificate if !has_identity => ASKS.to_owned(),
        // The alert of a server with TLS 1.2.
        Alert::HandshakeFailure if !has_identity => {
            format!("refused the TLS handshake: it has no cipher in common, or {ASKS}")
        }
        Alert::HandshakeFailure => {
            "refused the TLS handshake: it has no cipher in common, or refused the client certificate".to_owned()
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError
            if has_identity =>
        {
            format!(
                "refused the client certificate ({alert:?}): it has expired, or the server does not trust its authority"
            )
        }
        Alert::UnrecognisedName => "does not know the name it was asked for; see Tls::server_name".to_owned(),
        Alert::ProtocolVersion | Alert::InsufficientSecurity => {
            format!(
                "refused the TLS handshake ({alert:?}): it has no version or cipher in common with TLS 1.2 and 1.3 here"
            )
        }
        _ => return (ErrorKind::Protocol, format!("ended TLS with the alert {alert:?}")),
    };
    (ErrorKind::Tls, what)
}

const ASKS: &str = "asks for a client certificate; give one with Tls::identity_files";

/// The time from `from` to `to`, in the largest unit that fits.
fn apart(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..7_200 => format!("{:?}", Duration::from_secs(seconds)),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_to_act_is_said() {
        let says = |error: Error, has_identity: bool, kind: ErrorKind, text: &str| {
            let failure = TlsFailure::of(error, has_identity);
            assert!(failure.what.contains(text), "{failure:?} does not say {text:?}");
            assert_eq!(failure.kind, kind, "{failure:?}");
        };
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let expired =
            CertificateError::ExpiredContext { time: at(90 + 5 * 86_400), not_after: at(90) };
        says(expired.into(), false, ErrorKind::Tls, "expired 5 days ago");
        let early = CertificateError::NotValidYetContext { time: at(0), not_before: at(3 * 3_600) };
        says(early.into(), false, ErrorKind::Tls, "valid only in 3 hours");
        let names = ["DnsName(\"a.example\")", "IpAddress(10.0.0.1)"].map(str::to_owned);
        let expected = rustls::pki_types::ServerName::try_from("b.example").unwrap();
        let other = CertificateError::NotValidForNameContext { expected, presented: names.into() };
        says(
            other.into(),
            false,
            ErrorKind::Tls,
            "for a.example, 10.0.0.1 and not for \"b.example\"",
        );
        says(CertificateError::Revoked.into(), false, ErrorKind::Tls, "revoked");
        let alert = Error::AlertReceived;
        says(
            alert(Alert::HandshakeFailure),
            false,
            ErrorKind::Tls,
            "asks for a client certificate",
        );
        says(alert(Alert::BadCertificate), false, ErrorKind::Tls, "asks for a client certificate");
        says(alert(Alert::BadCertificate), true, ErrorKind::Tls, "refused the client certificate");
        says(
            alert(Alert::HandshakeFailure),
            true,
            ErrorKind::Tls,
            "refused the client certificate",
        );
        says(
            alert(Alert::UnknownCA),
            true,
            ErrorKind::Tls,
            "refused the client certificate (UnknownCA)",
        );
        says(alert(Alert::ProtocolVersion), true, ErrorKind::Tls, "ProtocolVersion");
        // Data that was corrupted on the way may arrive intact the next time.
        says(alert(Alert::BadRecordMac), true, ErrorKind::Protocol, "BadRecordMac");
        says(Error::DecryptError, true, ErrorKind::Protocol, "broke the TLS protocol");
    }
}
