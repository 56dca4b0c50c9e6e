//! What to do about an error or a finding, as a value.

use std::borrow::Cow;
use std::fmt;

/// What to do about an [`Error`](crate::Error) or a [`Finding`](crate::observe::Finding).
///
/// A value, because whoever prints it chooses the words: `Display` names the methods of this crate
/// and the chapters of its guide; the command `leasehold` names its options and subcommands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Advice that names nothing of this crate.
    Words(Cow<'static, str>),
    /// Give the user the rights of the ACL rule for a Redis server.
    GrantRights,
    /// Have an administrator install the schema in the PostgreSQL database.
    InstallSchema,
    /// Give the PostgreSQL role the rights that it needs.
    GrantRoleRights,
    /// Have an administrator create the tables in the MySQL database.
    CreateTables,
    /// Give the user of the MySQL database the rights that it needs.
    GrantDatabaseRights,
    /// The server is a node of a cluster: connect to it as such.
    ConnectToCluster,
    /// The server is not a node of a cluster: connect to it as to a single server.
    ConnectToServer,
    /// The server is a sentinel: connect to the primary that it watches, or let sentinels name it.
    ConnectToSentinels,
    /// Check the user and the password.
    CheckCredentials,
    /// Set a password.
    SetPassword,
    /// Choose another name, or a prefix of names.
    ChooseName,
    /// Wait until the masters vote, or let those without data vote at once.
    AdmitFreshNodes,
    /// Let calls wait longer for a server that is away.
    RaiseOutageTimeout,
    /// Take a lock with a fixed lease.
    FixLease,
    /// Set the number of permits of the semaphore.
    SetPermits,
    /// Build with this cargo feature.
    EnableFeature(&'static str),
    /// Set the rate of the limiter.
    SetRate,
}

impl Advice {
    /// All that name something of this crate, so that whoever prints them in other words can test
    /// that none is missing.
    #[doc(hidden)]
    pub const NAMED: [Self; 17] = [
        Self::GrantRights,
        Self::InstallSchema,
        Self::GrantRoleRights,
        Self::CreateTables,
        Self::GrantDatabaseRights,
        Self::ConnectToCluster,
        Self::ConnectToServer,
        Self::ConnectToSentinels,
        Self::CheckCredentials,
        Self::SetPassword,
        Self::ChooseName,
        Self::AdmitFreshNodes,
        Self::RaiseOutageTimeout,
        Self::FixLease,
        Self::SetPermits,
        Self::EnableFeature("tls"),
        Self::SetRate,
    ];

    fn words(&self) -> &str {
        match self {
            Self::Words(words) => words,
            Self::GrantRights => "guide::operations has the ACL rule",
            Self::InstallSchema => {
                "have an administrator run leasehold::POSTGRES_SCHEMA, and grant the rights of guide::postgres"
            }
            Self::GrantRoleRights => "guide::postgres has the rights that a role needs",
            Self::CreateTables => {
                "have an administrator run leasehold::MYSQL_SCHEMA, and grant the rights of guide::mysql"
            }
            Self::GrantDatabaseRights => "guide::mysql has the rights that a user needs",
            Self::ConnectToCluster => "use Builder::cluster, or a URL redis+cluster://host",
            Self::ConnectToServer => "use Builder::redis, or a URL redis://host",
            Self::ConnectToSentinels => {
                "connect to the primary that it watches, or use Builder::sentinel"
            }
            Self::CheckCredentials => {
                "check both, in the URL or in the settings credentials or password_file, and whether the user is on"
            }
            Self::SetPassword => {
                "set it as in redis://user:password@host, or by the setting credentials"
            }
            Self::ChooseName => "use another name or a key_prefix",
            Self::AdmitFreshNodes => {
                "wait for the longest lease, or, only if no lock was ever taken there, use Redlock::admit_fresh_nodes"
            }
            Self::RaiseOutageTimeout => {
                "Builder::outage_timeout is how long a call waits for a server"
            }
            Self::FixLease => "use with_lease for a lease that is not renewed",
            Self::SetPermits => "set them with try_set_permits",
            Self::EnableFeature(_) => "turn on the cargo feature",
            Self::SetRate => "set it with try_set_rate",
        }
    }
}

/// The words of a Rust program.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())?;
        if let Self::EnableFeature(feature) = self { write!(f, " {feature:?}") } else { Ok(()) }
    }
}

impl From<&'static str> for Advice {
    fn from(words: &'static str) -> Self {
        Self::Words(words.into())
    }
}

impl From<String> for Advice {
    fn from(words: String) -> Self {
        Self::Words(words.into())
    }
}
