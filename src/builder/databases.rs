//! What all databases need so that a client for one can be built.

use std::sync::Arc;

use super::settings::NewClient;
use crate::base::error::Result;
#[cfg(feature = "tls-core")]
use crate::base::error::invalid;
#[cfg(feature = "tls-core")]
use crate::base::tls::Tls;
use crate::store::database::{DatabaseSettings, DatabaseUrl, Hosts};
#[cfg(feature = "tls-core")]
use crate::store::database::{Ssl, SslMode};
use crate::store::net::Network;
#[cfg(feature = "tls-core")]
use crate::store::tls::TlsClient;

/// Each connection is a process or a thread of the server, and those that commit at the same time
/// share a flush of its log.
const CONNECTIONS: usize = 4;

/// `verified`: the parameter of the URL with which certificates are checked, for messages.
#[cfg_attr(not(feature = "tls-core"), expect(unused_mut, unused_variables, reason = "no TLS"))]
pub(super) fn settings<M, K: Default>(
    mut url: DatabaseUrl<M>,
    create_schema: bool,
    client: &NewClient<'_>,
    verified: &str,
) -> Result<DatabaseSettings<M, K>> {
    #[cfg(feature = "tls-core")]
    let tls = tls_of(&mut url, client.settings.tls.as_ref(), verified)?;
    let hosts = Hosts {
        url,
        clock: client.clock.clone(),
        create_schema,
        #[cfg(feature = "tls-core")]
        tls,
        network: Network::counted_in(&client.traffic),
        last: Default::default(),
        known: K::default(),
    };
    Ok(DatabaseSettings {
        hosts: Arc::new(hosts),
        connections: client.settings.connections.unwrap_or(CONNECTIONS),
        io_timeout: client.io_timeout,
        background_timeout: client.background_timeout(),
    })
}

#[cfg(feature = "tls-core")]
fn tls_of<M>(
    url: &mut DatabaseUrl<M>,
    settings: Option<&Tls>,
    verified: &str,
) -> Result<Option<Arc<TlsClient>>> {
    let ssl = &mut url.ssl;
    if let Some(tls) = settings {
        if ssl.root.is_some() || ssl.identity.is_some() {
            return Err(invalid(
                "the URL and the settings both say how TLS is used; leave one out",
            ));
        }
        if ssl.said && ssl.mode != SslMode::VerifyFull {
            return Err(invalid(format!(
                "settings of TLS check the server's certificate: with them {verified}"
            )));
        }
        ssl.mode = SslMode::VerifyFull;
        return TlsClient::checked(tls.clone()).map(Some);
    }
    let Ssl { mode, root, identity, .. } = ssl;
    let tls = Tls::new();
    let tls = match mode {
        SslMode::Disable => return Ok(None),
        #[cfg(feature = "postgres")]
        SslMode::Allow => tls.danger_accept_any_certificate(),
        SslMode::Prefer | SslMode::Require => tls.danger_accept_any_certificate(),
        #[cfg(feature = "postgres")]
        SslMode::VerifyCa => root.iter().fold(tls.any_server_name(), |tls, root| tls.ca_file(root)),
        SslMode::VerifyFull => root.iter().fold(tls, |tls, root| tls.ca_file(root)),
    };
    let tls =
        identity.iter().fold(tls, |tls, (certificate, key)| tls.identity_files(certificate, key));
    let client = TlsClient::new(tls);
    if url.is_over_network() {
        client.check()?;
    }
    Ok(Some(Arc::new(client)))
}
