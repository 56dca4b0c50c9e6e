//! What each call answers while something is wrong.
//!
//! This page is generated from the table that the tests use: each call of the crate is made under
//! each condition, beside a hold and calls that have nothing to do with it, and must answer what is
//! said here. An error is an [`ErrorKind`](crate::ErrorKind); its message names the condition.
//!
//! In every row:
//!
//! - Calls that send nothing ([`is_held`](crate::ReentrantMutexGuard::is_held), ...) answer at
//!   once, and a guard that is dropped blocks no longer than its `unlock`.
//! - A call ends within three [I/O timeouts](crate::Builder::io_timeout), beside the time that it
//!   was given to wait, and [`diagnose`](crate::LockClient::diagnose) within ten.
//! - A call that waits already goes on when the condition is over, unless the table says something
//!   else, or it took longer than the [outage timeout](crate::Builder::outage_timeout). A wait of
//!   a [rate limiter](crate::RateLimiter) asks nothing until its permits come back.
//! - When the condition is over, nothing is left. What could not be given back is given back in
//!   the background; where the server refused it, it ends with its lease.
//! - Other locks of the same client are not affected by a condition of one lock, and other clients
//!   of the program by none.
//! - The client has no more [connections](crate::guide::operations#connections) than it may have.
//!
//! # One Redis
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The server hangs: it accepts connections and answers nothing | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The network drops all packets | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Connections are ended and refused | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each connection ends in the middle of a reply | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each request runs, and its connection ends before the reply | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each reply comes 5 ms late | works | works | works | works | works | works | works | works | works |
//! | Each reply comes 50 ms late | works | works | works | works | works | works | works | works | works |
//! | Each reply comes 3 s late, later than the I/O timeout | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | All idle connections are ended, as by the server's `timeout` | works | works | works | works | works | works | works | works | works |
//! | All idle connections are ended, and a proxy hides that until they are used | works | works | works | works | works | works | works | works or `Unreachable` | works |
//! | The server has reached its `maxclients`, and ends the connections that it has | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` or `Unreachable` | `NotReady` |
//! | The server has reached its `maxmemory` | works or `Full` | `Full` | works or `Full` | works | works | works or `Full` | works or `Full` | works or `Full` | works |
//! | The server has become a replica | `ReadOnly` | `ReadOnly` | works | works or `ReadOnly` | `ReadOnly` | `ReadOnly` | works or `ReadOnly` | works or `ReadOnly` | `ReadOnly` |
//! | The server has too few replicas (`min-replicas-to-write`) | `ReadOnly` | `ReadOnly` | works | works | works | `ReadOnly` | works or `ReadOnly` | works or `ReadOnly` | `ReadOnly` |
//! | The server is busy with somebody's endless script | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | The server is paused (`CLIENT PAUSE`) for longer than the I/O timeout | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server's writes are paused (`CLIENT PAUSE ... WRITE`) | `Unreachable` | `Unreachable` | works | works or `Unreachable` | works or `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server forgets all scripts, over and over (`SCRIPT FLUSH`) | works | works | works | works | works | works | works | works | works |
//! | Each name that was free is taken by a value of another program | `WrongType` | works | works | works or `WrongType` | works or `WrongType` | works | works or `WrongType` | works or `WrongType` | works |
//! | The server is killed, and comes back with its data | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server was killed, and has come back empty | works | `Conflict` | works or `Conflict` | works | works | `Lost` | works, `Stale` or `Lost` | works | works or `Lost` |
//! | The server cannot write its snapshot (`MISCONF`) | `ReadOnly` | `ReadOnly` | works | works | works | `ReadOnly` | works or `ReadOnly` | works or `ReadOnly` | `ReadOnly` |
//! | The server is loading its data (`LOADING`) | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | The server's clock is set forward by 3 s | works | works | works | works | works | works | works | works | works |
//! | The server's clock is set forward by an hour | works | works | works | works | works | `Lost` | works or `Lost` | works | works or `Lost` |
//! | The server's clock is set back by an hour | works | works | works | works | works | works | works | works | works |
//! | The connections end while the name server hangs | works | works | works | works | works | works | works | works | works |
//! | The connections end while the name server fails | works | works | works | works | works | works | works | works | works |
//! | The connections end, and the name has an address where nobody listens | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The connections end while the provider of credentials hangs | works | works | works | works | works | works | works | works | works |
//! | The connections end while the provider of credentials fails | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The connections end while the provider of credentials panics | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The connections end while the provider has a wrong password | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The user's listener panics, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The user's listener blocks for 100 ms, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The process may open no more files | works | works | works | works | works | works | works | works | works |
//! | The process may open no more files, and its connections end | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The program's logger panics, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The program's logger blocks for 20 ms, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The program's tracer panics, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The program's tracer blocks for 20 ms, whenever it is called | works | works | works | works | works | works | works | works | works |
//! | The user may do nothing any more | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The replica that `replicas(1)` needs hangs | `NotReplicated` | `NotReplicated` | works | works | works | works or `NotReplicated` | works | works | works |
//! | The replica that `replicas(1)` needs is down | `NotReplicated` | `NotReplicated` | works | works | works | works or `NotReplicated` | works | works | works |
//! | The replica that `replicas(1)` needs has each write 50 ms late | works | works | works | works | works | works | works | works | works |
//!
//! # Redlock
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | Each reply of one of three masters comes 1 ms late | works | not supported | works | works | works | works | not supported | works | works |
//! | Each reply of one of three masters comes 5 ms late | works | not supported | works | works | works | works | not supported | works | works |
//! | Each reply of one of three masters comes 20 ms late | works | not supported | works | works | works | works | not supported | works | works |
//! | One of three masters hangs | works | not supported | works | works | works | works | not supported | works | works |
//! | The network to one of three masters drops all packets | works | not supported | works | works | works | works | not supported | works | works |
//! | One of three masters ends and refuses connections | works | not supported | works | works | works | works | not supported | works | works |
//! | One of three masters runs each request, and its connection ends before the reply | works | not supported | works | works | works | works | not supported | works | works |
//! | One of three masters was killed, and has come back empty: it has no vote | works | not supported | works | works | works | works | not supported | works | works |
//! | One of three masters ends its connections while its name server hangs | works | not supported | works | works | works | works | not supported | works | works |
//! | The clock of one of three masters is stepped forward by a minute | works | not supported | works | works | works | works | not supported | works | works |
//! | The clock of one of three masters is stepped back by an hour | works | not supported | works | works | works | works | not supported | works | works |
//! | Two of three masters hang | `NoQuorum` or `Unreachable` | not supported | works | `NoQuorum` or `Unreachable` | `NoQuorum` or `Unreachable` | `NoQuorum` or `Unreachable` | not supported | `NoQuorum` or `Unreachable` | `NoQuorum` or `Unreachable` |
//! | Two of three masters end and refuse connections | `NoQuorum` | not supported | works | `NoQuorum` | `NoQuorum` | `NoQuorum` | not supported | `NoQuorum` | `NoQuorum` |
//!
//! # Sentinels
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The master hangs, and the sentinels have not found out | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The master is killed, and then a replica is promoted | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Another server was made the master (`SENTINEL FAILOVER`) | works | works | works | works | works | works | works | works | works |
//! | The connections end while one of three sentinels is down | works | works | works | works | works | works | works | works | works |
//! | The connections end while two of three sentinels are down | works | works | works | works | works | works | works | works | works |
//! | All sentinels are down, and the connections are open | works | works | works | works | works | works | works | works | works |
//! | The connections end while all sentinels are down | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//!
//! # Cluster
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The primary of a shard hangs | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The primary of a shard is killed, and then its replica takes over | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The replica of a shard has become its primary (`CLUSTER FAILOVER`) | works | works | works | works | works | works | works | works | works |
//! | A slot has moved to another shard | works | works | works | works | works | works | works | works | works |
//! | A slot stays half moved to another shard | `NotReady` | `NotReady` | works | works or `NotReady` | works or `NotReady` | works or `NotReady` | works or `NotReady` | works or `NotReady` | works or `NotReady` |
//!
//! # PostgreSQL
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The server hangs: it accepts connections and answers nothing | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The network drops all packets | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Connections are ended and refused | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each connection ends in the middle of a reply | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each request runs, and its connection ends before the reply | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each reply comes 5 ms late | works | works | works | works | works | works | works | works | works |
//! | Each reply comes 50 ms late | works | works | works | works | works | works | works | works | works |
//! | Each reply comes 3 s late, later than the I/O timeout | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | All of the client's backends are ended (`pg_terminate_backend`) | works | works | works | works | works | works | works | works | works |
//! | All of the client's backends are ended, and a proxy hides that until they are used | works | works | works | works | works | works | works | works | works |
//! | The server has reached its `max_connections`, and the client's have ended | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | The process may open no more files | works | works | works | works | works | works | works | works | works |
//! | The role has a `statement_timeout` of 200 ms | works | works | works | works | works | works | works | works | works |
//! | The role has a `lock_timeout` of 200 ms | works | works | works | works | works | works | works | works | works |
//! | The role has an `idle_session_timeout` of 200 ms | works | works | works | works | works | works | works | works | works |
//! | The role has an `idle_in_transaction_session_timeout` of 200 ms | works | works | works | works | works | works | works | works | works |
//! | The role's sessions begin anew, and read only (`default_transaction_read_only`) | `ReadOnly` | `ReadOnly` | works | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` |
//! | The server becomes read-only (`default_transaction_read_only`) | `ReadOnly` | `ReadOnly` | works | works or `ReadOnly` | works or `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` |
//! | The server's clock is set back by an hour | works | works | works | works | works | works | works | works | works |
//! | The server's clock is set ahead by an hour | works | works | works | works | works | works or `Lost` | works or `Lost` | works | works or `Lost` |
//! | The server's synchronous standby is missing, so that commits wait for it | `Unreachable` | `Unreachable` | works | works or `Unreachable` | works or `Unreachable` | works, `Unreachable` or `NotReady` | `Unreachable` | works, `Unreachable` or `NotReady` | works, `Unreachable` or `NotReady` |
//! | The server is killed, and comes back | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The primary has ended, and its standby is promoted later | `ReadOnly` | `ReadOnly` | works | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` |
//! | The primary has ended, and its standby was promoted | works | works | works | works | works | works | works | works | works |
//! | A stranger has locked a table of the locks (`LOCK TABLE`) | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | A stranger has locked the rows of the locks (`SELECT .. FOR UPDATE`) | `NotReady` | `NotReady` | works | works | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | The same for a moment, and the call may wait for longer | works | works | works | works | works | works | works | works | works |
//! | A stranger has forgotten a transaction that has read and written | works | works | works | works | works | works | works | works | works |
//! | The role may use the tables no more | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The role may log in no more, and its connections have ended | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//!
//! # MySQL
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The server does not answer (it is suspended) | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The connections of the client were ended (`KILL`) | works | works | works | works | works | works | works | works | works |
//! | The server is killed, and comes back | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server becomes read-only (`read_only`), and connections begin anew | `ReadOnly` | `ReadOnly` | works | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` | `ReadOnly` |
//! | The server has reached its `max_connections`, and the client's have ended | `NotReady` | `NotReady` | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//! | The process may open no more files | works | works | works | works | works | works | works | works | works |
//! | A stranger has locked the rows of the locks (`SELECT .. FOR UPDATE`) | `NotReady` | `NotReady` | works | works | works | `NotReady` | `NotReady` | `NotReady` | `NotReady` |
//!
//! # ZooKeeper
//!
//! | condition | takes a lock | takes a permit | waits already | reads | lists | extends, re-enters or downgrades | changes something else | frees by force | gives back |
//! |---|---|---|---|---|---|---|---|---|---|
//! | The server hangs: it accepts connections and answers nothing | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The network drops all packets | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | Each reply comes 50 ms late | works | works | works | works | works | works | works | works | works |
//! | Each reply comes 3 s late, later than the I/O timeout | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The connection is ended | works | works | works | works | works | works | works | works or `Unreachable` | works |
//! | The server is killed, and comes back with its data | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server was killed, and has come back with its data | works | works | works | works | works | works | works | works | works |
//! | The server comes back, and grants shorter sessions (`maxSessionTimeout`) | works | works | works | works | works | works | works | works | works |
//! | The server has reached its `maxClientCnxns`, and the client's connection is ended | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The server of the client's connection is killed, and two others serve | works | works | works | works | works | works | works | works or `Unreachable` | works |
//! | The leader was killed, and another was elected | works | works | works | works | works | works | works | works or `Unreachable` | works |
//! | Two of three servers are killed | `Unreachable` | `Unreachable` | works | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` | `Unreachable` |
//! | The ACL of the nodes allows the client nothing | `Denied` | `Denied` | works or `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` | `Denied` |
//! | The server comes back, and demands an identity (`enforce.auth.schemes`) | `Denied` or `Unreachable` | `Denied` or `Unreachable` | works or `Denied` | `Denied` or `Unreachable` | `Denied` or `Unreachable` | `Denied` or `Unreachable` | `Denied` or `Unreachable` | `Denied` or `Unreachable` | `Denied` or `Unreachable` |
