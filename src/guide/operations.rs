//! Running it in production: log lines, permissions, keys, limits, health.
//!
//! # Checklist
//!
//! - Set `maxmemory-policy noeviction`. A lock that is evicted is lost. A client that finds a
//!   `maxmemory` with another policy logs that once, at WARN. A server that is full then refuses
//!   new locks, but holds are renewed and released.
//! - Give the Redis user the rights in the [ACL rule](#acl-rule) below.
//! - Count [connections](#connections) against `maxclients`.
//! - Choose the lease from your failover time:
//!   [`choosing_a_lease`](crate::guide::choosing_a_lease).
//! - Send the [log lines](#log-lines) at WARN to whoever is on call.
//! - Keep the servers' clocks from being stepped. With Redlock a jump of a single master's clock
//!   can cost exclusion, and in PostgreSQL [one that is set
//!   ahead](crate::guide::postgres#the-servers-clock).
//! - PostgreSQL: leave no transaction open for long, in any database of the server. It makes [locks
//!   that are taken often](crate::guide::postgres#long-transactions) slower.
//!
//! # Log lines
//!
//! The crate logs through the `log` crate. Nothing is logged at ERROR, and passwords and fencing
//! tokens are never logged. Each line has the whole chain of causes. A logger may block, and may
//! use the client: nothing is logged under a mutex of the client.
//!
//! At WARN (each loss once, by whichever finds it first: the background thread, or the guard when
//! it is dropped or unlocked):
//!
//! | what the line says | what it means | what to do |
//! |---|---|---|
//! | leases cannot be renewed; how many, when the first ends, and the cause | an outage has begun. Logged once per outage, not for each renewal | bring the server back before that time |
//! | leases are renewed again, and after how long | the outage is over | look for lines about lost leases in between |
//! | the lease of one lock cannot be renewed | the server refuses this lock alone: a key of the wrong type, a missing permission | read the cause; look at the key |
//! | a lock is lost: its lease could not be renewed, or was not renewed in time | **lost by time**: the outage, or a pause of the process, was too long | check what the job did meanwhile; use a longer lease |
//! | a lock is lost: its `max_hold` was over, or its fixed lease ended | the holder took longer than the limit that its program had set | look at that holder |
//! | a lock is lost: it was taken away | **lost by the server**: a flush, an eviction, a failover, `force_unlock` | find out which; see [`servers`](crate::guide::servers#when-the-server-forgets) |
//! | a lock was held for its `max_hold`, and when it ends | a holder hangs, or its work takes longer than you thought | look at that holder |
//! | releasing a lock failed | the server was down when a guard was dropped. The release is repeated in the background | nothing, if the server is back; the lock is free after a lease at most |
//! | returning permits failed | the same, for permits without leases | nothing: this is repeated until the server answers |
//! | permits of a counting semaphore could not be given back for certain | a reply was lost and the server could not be reached for half a minute, or it refused for ten minutes, or the client ended; this is not retried | compare the count with what you expect; `add_permits` with the number in the line, if it is too low |
//! | a lock stays as it is for now | a thread that undoes something could not be started; the next lock call tries again; `is left as it is`: the client was closed meanwhile, and nobody does | raise the limit of threads |
//! | too many unknown outcomes | 10 000 are kept, and beyond that the oldest is dropped | nothing: the lease ends it (ZooKeeper: the session; permits without leases: see above) |
//! | the end of an attempt could not be recorded | a [scheduled job](crate::guide::scheduled_jobs) has failed while the server was down | nothing: the next attempt begins when the lease is over |
//! | an election cannot be stood for | no server can be reached; this is tried again | bring the server back |
//! | the leader of an election failed, or panicked, and stands again | its closure returned an error, or panicked | read the cause |
//! | a thread ended with a hold | its guards were forgotten | fix the program: drop guards |
//! | release messages cannot be received | the user may not subscribe. Waiters poll in bursts: see [`waiting`](crate::guide::waiting#how-a-waiter-is-woken) | fix the ACL rule |
//! | no thread for ... | the system allows no more threads: waiters use timers, and callbacks run late | raise the limit |
//! | the server may evict locks | see the checklist | `maxmemory-policy noeviction` |
//! | TLS: a file cannot be used; the certificates that were read before stay in use | a new certificate is not valid. Logged once for each change of a file | repair the file, before the old certificate expires |
//! | TLS: the certificates of servers are not checked | `danger_accept_any_certificate` is set, or PostgreSQL's `sslmode` is below `verify-ca` (as the default is) | name the authority instead |
//! | the sentinels name another master | a failover. All holds are renewed there at once | look for lines about lost leases |
//! | a failover would not be noticed, and the cause; the sentinels name the master again | too few sentinels can be reached, or they do not agree. Open connections continue to work | bring them back before the master fails |
//! | a master gets its vote in ... | Redlock: it restarted or is new, and is in [quarantine](crate::guide::redlock#masters-that-forget) | wait; find out why it restarted |
//! | a master did not say what it remembers, or could not be given its vote | Redlock: the master refuses a script; this is tried again | read the cause: a right that its user lacks, as a rule |
//! | the thread that watches the sentinels panicked | a bug. The thread continues | report it |
//! | calls wait for a lock that no client has, and a process | PostgreSQL: somebody's transaction has locked its row, or the table. Logged once in a while | end that transaction |
//! | the ZooKeeper session has expired; the servers refuse the ZooKeeper session, and give a new one | all holds of this client are **lost**: the client was cut off for longer than its session, or the servers have lost their data | check what the jobs did meanwhile; see [`zookeeper`](crate::guide::zookeeper) |
//! | the server grants a session of ... and not of ... | ZooKeeper limits sessions. The granted time is the lease | raise `maxSessionTimeout`, or set a lease that the servers grant |
//! | the nodes of a name will soon reach the number 2^31 | ZooKeeper numbers the nodes of a name, and at that number the lock is refused | leave the lock unused for a minute, so that ZooKeeper restarts its numbering |
//! | a node could not be deleted | the user may not delete it. The lock stays taken until the session ends | fix the ACL of the nodes |
//! | the password file is ignored | PostgreSQL: other users may read the file | set its mode to 0600 |
//! | the listener, or the tracer, of this client panicked | a bug in your [`Listener`](crate::observe::Listener) or your subscriber of `tracing`. Logged once; the call continued | fix it |
//! | the watchdog panicked, or ended | a bug. After a panic it continues; if it ends, all its leases are lost | report it |
//!
//! At INFO: the schema was installed, the rows of some names were locked for a quarter of the I/O
//! timeout, or connections lead to another server process than before (PostgreSQL); the tables were
//! created (MySQL); once per client, that its user may not write or read [who holds a
//! lock](#looking-at-a-lock), with the missing rule.
//!
//! At DEBUG: connections, each failed renewal, unknown outcomes that cannot be resolved yet, a jump
//! of the wall clock.
//!
//! # ACL rule
//!
//! A user with an ACL needs these, the first three for each name or pattern of names, prefix
//! included, such as `app:*`, and the third only for names with braces: `~<names> ~{<names>}:*
//! ~<names>:* ~redisson_lock_token:* ~redisson_lock_queue:* ~redisson_lock_timeout:*
//! ~leasehold_writer:* ~leasehold_once:* ~leasehold_data:* ~leasehold_client:* ~leasehold_job:*
//! ~leasehold_done:* ~leasehold_last:* &redisson_lock__channel:* &redisson_rwlock:* &redisson_sc:*
//! &redisson_countdownlatch__channel__* &leasehold_done:* +hset +hget +hdel +hexists +hgetall +hlen
//! +exists +del +get +set +incr +incrby +decrby +pttl +pexpire +pexpireat +persist +time +lindex
//! +lrange +linsert +rpush +lpop +lrem +zadd +zrem +zscore +zmscore +zcard +zcount +zrange
//! +zrangebyscore +publish +subscribe +unsubscribe +psubscribe +punsubscribe +ping +echo +eval
//! +evalsha +script|load +client|setname +client|info +client|kill +info`.
//!
//! - [`Builder::redlock`][crate::Builder::redlock] needs `~leasehold:node +hmget +hkeys` and `info`
//!   as well. [`Redis::replicas`][crate::Redis::replicas] needs `+wait`. A database other than 0
//!   needs `+select`.
//! - [`LockClient::locks`](crate::LockClient::locks) needs `+scan` for the user that calls it. The
//!   number of waiters, and what they wait for, needs `+pubsub|channels` and `+pubsub|numsub` (in a
//!   cluster `+pubsub|shardchannels` and `+pubsub|shardnumsub`; on Redis 6.2 `+pubsub`).
//!   `leasehold doctor --acl` prints all of these rules for a prefix.
//! - [`Builder::sentinel`][crate::Builder::sentinel] needs `info`; it also says what the sentinels'
//!   own user needs.
//! - [`Builder::cluster`][crate::Builder::cluster] needs `+cluster|slots +asking`, and for sharded
//!   channels `+spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub` in place of `publish` and
//!   `subscribe`.
//! - Without `~leasehold_client:*` nobody can see [who holds a lock](#looking-at-a-lock); nothing
//!   else changes.
//! - Without `echo`, a connection carries one batch of requests at a time: a client with many
//!   threads has more connections, and is slower.
//! - Without `client|kill` or `info`, an acquisition whose reply was lost is resolved by a time
//!   limit instead, which takes an I/O timeout longer.
//! - An ACL cannot name the pattern on which a client's fair waiters listen when there are many
//!   (16). Under a rule that restricts channels, each fair waiter therefore has a subscription of
//!   its own.
//! - Connecting reports missing commands (on Redis 6.2 all but `hset`, `incr` and `rpush`) as
//!   [`Denied`](crate::ErrorKind::Denied), and those that the server itself does not have (renamed,
//!   or switched off) as [`Unsupported`](crate::ErrorKind::Unsupported). Behind a proxy without
//!   `SCRIPT LOAD` or `EVALSHA`, `EVAL` alone is enough. Missing rights to keys are reported by the
//!   first call, as `Denied` too. Connecting finds nothing for a user who may not use the key
//!   `redisson_lock_token:{<prefix>leasehold:probe}`.
//!
//! # Keys and channels
//!
//! These are the keys and channels of a lock `N`. Where the table has `{N}`, a name that has braces
//! of its own, like `a{b}c`, gets no others around it (except in the channel of a latch, which
//! always has them):
//!
//! | key or channel | contents |
//! |---|---|
//! | `N` | a lock: hash, holder id → hold count (and `mode` of a read-write lock), with the lease as its TTL; `:kept` after the id of a holder that has released it, while it stays taken ([`min_hold`](crate::ReentrantMutex::min_hold)); a latch or semaphore: the count |
//! | `redisson_lock_token:{N}` | the last fencing token; forgotten a day after the last grant. 150 to 190 bytes for each name of the last day: with many short-lived names and no use of tokens, turn [`fencing`](crate::Builder::fencing) off |
//! | `redisson_lock_queue:{N}`, `redisson_lock_timeout:{N}` | the waiters of a fair lock, and when each counts as dead |
//! | `{N}:<holder>:rwlock_timeout:<level>` | one reader's lease |
//! | `{N}:timeout` | a semaphore's permits, and when the lease of each ends |
//! | `{N}:value`, `{N}:permits` | a rate limiter: how many permits are free; what was taken within the last interval, about 120 bytes for each acquisition. `N` is a hash then: `rate`, `interval` in ms, `type`, `keepAliveTime`. They never expire. `show NAME` shows it, a list of locks does not |
//! | `leasehold_job:{N}` | the lease of the [scheduled job](crate::ScheduledJob) `N`, a lock like `N`; its fencing token and its channel are those of a lock of this name. Not Redisson's |
//! | `leasehold_done:{N}/<occurrence>` | a hash: the attempts at an occurrence, and by whom and when it was done, about 250 bytes; lives for [`keep`](crate::ScheduledJob::keep). Also the channel that wakes who waits for it. Not Redisson's |
//! | `leasehold_last:{N}` | a hash: the newest occurrence that was done, and the one that was begun last; lives for a year. Not Redisson's |
//! | `leasehold_writer:{N}` | a writer waits; lives for `waiter_timeout`. Not Redisson's |
//! | `leasehold_once:{N}:<id>` | the reply to a change of a count, in case the request is repeated; lives for a minute (for permits that were taken from a counting semaphore: until they are back, ten minutes at most). Not Redisson's |
//! | `leasehold_once:{N}:opened` | when a latch was last opened; lives for a minute. Not Redisson's |
//! | `leasehold_data:{N}` | what the last holder with [data](crate::ReentrantMutex::with_data) has written: its id, the number of the change, the data, when its hold ends or ended (epoch ms); lives for its lease and an hour. Not Redisson's |
//! | `leasehold_client:{<prefix><client id>}` | [who a client is](#looking-at-a-lock), while it holds something: its owner, what it holds and since when; 17 KB at most; lives for a lease, and is deleted when the client is closed. Not Redisson's |
//! | `leasehold_client:{index}` | a sorted set: which clients have such a key, and when it expires; lives as long as the last of these. Not Redisson's |
//! | `leasehold:node` | what a Redlock master remembers about itself: whether it may vote, its highest token; never expires. Not Redisson's |
//! | `redisson_lock__channel:{N}`, `redisson_rwlock:{N}`, `redisson_sc:{N}`, `redisson_countdownlatch__channel__{N}` | the messages that wake waiters. Each fair waiter has a channel of its own that ends in `:<holder>` |
//!
//! # Names
//!
//! A name has 1 to 1024 bytes, its [prefix](crate::Builder::key_prefix) included. All of these keys
//! must have one hash tag: a name has no braces, or its first pair has something in it, as `a{b}c`.
//! Other names are refused with [`InvalidInput`](crate::ErrorKind::InvalidInput), and so is a name
//! that, with its prefix, is one of the other keys: `{x}:timeout`, `redisson_lock_token:{x}`,
//! `leasehold:node` ([the whole list](crate::guide::redisson#names)). Other stores have rules of
//! their own. [`escape_name`](crate::escape_name) makes any input, such as what a user typed, a
//! valid name on every store, or a part of one.
//!
//! Give each latch, semaphore, counting semaphore and fenced value a name of its own. A fenced
//! value under the name of a lock is refused with [`WrongType`](crate::ErrorKind::WrongType), and
//! the other way round. A client refuses a name that it uses for another kind of count, but it
//! cannot see what *other* clients use the name for: taking a permit would count down their latch.
//!
//! A hash of another application under the name of a lock is left alone. It looks like a lock only
//! if each field is a holder (a UUID, a colon and more) with a count from 1 to 9999. Otherwise
//! `holder` and `force_unlock` say `WrongType`, and so does a call that would take the lock; if the
//! hash has a TTL, that call may find the name taken instead, until the TTL is over.
//!
//! # Looking at a lock
//!
//! The module [`observe`](crate::observe) has all calls that show something in one table, and what
//! each of them returns.
//!
//! | question | call | in `redis-cli` |
//! |---|---|---|
//! | what is locked by this library, or waited for | [`announced_locks`](crate::LockClient::announced_locks), `leasehold ls` | `ZRANGE leasehold_client:{index} 0 -1`, and for each `GET leasehold_client:{<member>}` |
//! | what is locked by anybody, Java included | [`locks`](crate::LockClient::locks), `leasehold ls --all`: a search over all keys | |
//! | everything about one name | [`inspect`](crate::LockClient::inspect), `leasehold show` | |
//! | who has it, and for how long | [`holder`](crate::ReentrantMutex::holder) | `HGETALL N`, `PTTL N`, and for the part of each holder id before the colon: `GET leasehold_client:{<prefix><client id>}` |
//! | how many waiters a fair lock has | [`queue_len`](crate::FairMutex::queue_len) | `LRANGE redisson_lock_queue:{N} 0 -1` |
//! | how many permits are free, and held | [`available_permits`](crate::Semaphore::available_permits), [`acquired_permits`](crate::Semaphore::acquired_permits) | `GET N`, `ZCARD {N}:timeout` |
//! | which client that is | [`LockClient::id`](crate::LockClient::id): the first part of its holder ids | `CLIENT LIST` shows [`client_name`](crate::Builder::client_name) |
//! | free it by force | [`force_unlock`](crate::ReentrantMutex::force_unlock), `leasehold unlock` | not with `DEL`: it wakes nobody |
//!
//! Each client says who it is: a label ([`Builder::owner`](crate::Builder::owner), by default the
//! name of the program), the process id and the host. A [`LockHolder`](crate::observe::LockHolder)
//! has these, and its `Display` is meant for log lines:
//!
//! ```text
//! held by billing-7 (pid 4711 on host-a) for 12 s, its lease ends in 21 s
//! ```
//!
//! This record is written in the background, over the connection for renewals. A client with a
//! label writes it as soon as it holds something or waits in the queue of a fair lock, a client
//! without one when a hold has lasted for a second (with leases below 10 s, for a tenth of the
//! lease). Both write it again every third of a lease while they hold anything, or a second after
//! the last time if a new hold has lasted that long. The record names the holds, the oldest first,
//! up to 16 KB. It is deleted when the client is closed, and expires a lease after the last hold,
//! so a killed process is known for as long as its locks are taken. No call and no renewal waits
//! for it, and a failure has no other effect. With
//! [`Builder::announce_owner`](crate::Builder::announce_owner) off, nothing is written or read.
//! Anybody who can read the server can see the record, and anybody who can write there can forge
//! it.
//!
//! # Health of the servers
//!
//! [`LockClient::diagnose`](crate::LockClient::diagnose), and `leasehold doctor`, check what
//! matters to locks on each server, and say what to do. Run one of them before the first
//! deployment, after each change of the servers, and when something is wrong. They take no lock,
//! and write nothing but what every client leaves on masters of Redlock that may have forgotten
//! locks.
//!
//! [`LockClient::nodes`](crate::LockClient::nodes) returns, for each server and without I/O, its
//! address, its state ([`NodeState`](crate::observe::NodeState): voting, quarantined, down), how
//! long its last reply took (Redlock), and its last error. Export it as a metric. With Redlock,
//! alert when any master does not vote: part of your redundancy is gone. Also watch
//! [`token_rounds`](crate::LockClient::token_rounds): if it grows quickly, a clock is behind.
//!
//! # Figures
//!
//! [`LockClient::stats`](crate::LockClient::stats) reports, without I/O, what a client has done
//! since it was built: for each primitive, for the 64 names that matter most, and for its
//! connections. `Display` writes a table for people;
//! [`to_prometheus`](crate::observe::Stats::to_prometheus) writes the text for a scrape (the
//! example `metrics` serves it over a socket). The same series, histograms with their buckets, go
//! to a registry of the crate `prometheus-client` by `observe::Collector` (cargo feature
//! `prometheus-client`), and to the recorder of the crate `metrics` by `Stats::publish` (feature
//! `metrics`). With the feature `serde` the figures can be
//! written [as JSON](crate::observe#as-json). Counting takes no mutex during a call.
//!
//! | metric | meaning | alarm |
//! |---|---|---|
//! | `leasehold_lost_total` | holds that were lost: somebody else may have had the lock meanwhile | any increase, if a job without [fencing](crate::guide::fencing) uses it |
//! | `leasehold_renewal_failures_total` | renewals that failed and are retried: leases end if this lasts for most of a lease | while it grows for longer than a third of the lease |
//! | `leasehold_unknown_outcomes` | requests that may have run; each can keep a lock taken for a lease | above 0 for longer than a lease |
//! | `leasehold_errors_total{error=..}` | calls to take something or to wait for it that failed, by [`ErrorKind`](crate::ErrorKind) | `unreachable`, `no_quorum`, `not_replicated`, `not_ready`, `denied`, `tls`, `full`, `read_only`: the servers; `conflict`, `invalid_input`: the program |
//! | `leasehold_calls_total{outcome=..}` | how calls ended, one outcome for each call: `granted_at_once`, `granted_after_wait`, `reentered`, `busy` (a `try_` call), `timed_out`, `stopped` (by a cancel token, by [stopping all waits](crate::LockClient::stop_waiting) or by closing the client), `failed` | an unusual share of `timed_out` |
//! | `leasehold_contended_total` | calls that found the lock taken; divide by all calls | |
//! | `leasehold_wait_seconds`, `leasehold_wait_max_seconds` | how long those calls waited that had to, whatever their outcome. Bucket bounds grow by half at most, so a `histogram_quantile` is off by no more than that | p99 above what your callers accept |
//! | `leasehold_hold_seconds`, `leasehold_hold_max_seconds` | how long completed holds lasted; current holds are in the [snapshot](#a-job-hangs) | p99 near the lease of a fixed lease, or far above what the job takes |
//! | `leasehold_waiting`, `leasehold_holds` | calls that wait now, and present holds; lost holds are not counted | `waiting` that stays above 0 while nothing is granted |
//! | `leasehold_hand_overs_total{how=..}` | grants without a request of the caller: `passed_on` and `joined` from another thread of the client, `with_release` by the release of the holder before (of a fair lock, in any client) | |
//! | `leasehold_renewals_total` | renewals that were confirmed | none, while leases are held for long |
//! | `leasehold_connections_broken_total`, `leasehold_reconnects_total` | connections that the other end closed or that did not answer in time, and those that replaced them | a steady increase: the idle timeout of a proxy, or a server that restarts |
//! | `leasehold_requests_total`, `leasehold_sent_bytes_total`, `leasehold_received_bytes_total` | traffic with the servers that keep the locks (not with sentinels); a client in memory has none of these | |
//! | `leasehold_name_..{name=..}` | calls, contention, waiting, holding and losses of the names with the most waiting time | which name to look at first |
//! | `leasehold_job_runs_total{name=..,outcome=..}` | calls for a [scheduled job](crate::guide::scheduled_jobs): `done`, `failed`, `unrecorded` (the work may be done again), `already_done`, `gave_up` (nobody tries this occurrence again), `not_run` | any `gave_up`; `unrecorded`, if the work must not be done twice |
//! | `leasehold_job_last_done_timestamp_seconds{name=..}` | the newest success that the client knows of, its own or another's, since 1970 | the `max` over all clients is older than the interval of the job and what it takes |
//! | `leasehold_terms_total{name=..}`, `leasehold_leads{name=..}` | terms that were led in an [election](crate::Election), and 1 while this client leads | the `sum` of `leasehold_leads` is 0 for longer than a lease; many terms in a short time |
//!
//! The first 64 names of a client have figures of their own. After that, a name with more total
//! waiting time replaces the name with the least. A name's metrics can therefore disappear, and
//! return at their old value: use `rate` over a period and not the counts themselves. A recorder of
//! the crate `metrics` keeps what was published last: set its idle timeout. Names are label values,
//! so a program with one name for each customer shows those in its metrics.
//!
//! Those are the figures of one client. What is locked in a store, by any client, is served by the
//! command: `leasehold exporter --listen 127.0.0.1:9843` polls the store every 15 s, and answers
//! scrapes with what it saw: `leasehold_store_up`, locks and waiters by kind, for how long each
//! name has been held, when its lease ends, and what `leasehold doctor` finds.
//! `leasehold exporter --help` lists the metrics.
//!
//! The folder `packaging/watching` of the repository has alerts for Prometheus, and a dashboard for
//! Grafana. This picture shows its panels with what a Prometheus answered to its queries, while
//! threads shared a few locks and somebody freed one by force (it was not drawn by Grafana):
//!
#![doc = include_str!("dashboard.svg")]
//!
//! A [`Listener`](crate::observe::Listener) is called for each event as it happens.
//!
//! # Spans
//!
//! With the cargo feature `tracing`, each wait and each hold is a span for the subscriber of the
//! crate [`tracing`](https://docs.rs/tracing) that the program has installed, and with the layer of
//! `tracing-opentelemetry` one for OpenTelemetry. The trace of a slow request then shows for which
//! lock it waited and for how long; a search for `leasehold.hold` with the same `lock.name` finds
//! who had it meanwhile. The example `spans` prints them.
//!
//! | span | from | until |
//! |---|---|---|
//! | `leasehold.wait` | a call finds the lock taken (a latch closed, too few permits) | the call ends, whatever its outcome |
//! | `leasehold.hold` | a call gets it; a call that adds a level to a hold makes no span | its last level is given up and the release was sent; for a hold that is lost or closed, when that is noticed |
//!
//! | field | value | on |
//! |---|---|---|
//! | `lock.name`, `lock.kind` | the name, and the [primitive](crate::Primitive) | both |
//! | `lock.owner`, `lock.client` | the client: "billing-7 (pid 4711 on host-a)", also if [announcing it](crate::Builder::announce_owner) is off; and its [name](crate::Builder::client_name) | both |
//! | `lock.store`, `lock.servers` | `redis`, `redlock`, `postgresql`, `mysql`, `zookeeper` or `memory`; the addresses of the servers when the client was built | both |
//! | `lock.outcome` | `granted`, `timed_out`, `stopped` (by a cancel token, by stopping all waits or by a close), `failed` | wait |
//! | `lock.outcome` | `released`, `lost`, `closed` (by closing the client), `forgotten` (its guard was: the permits stay taken) | hold |
//! | `lock.token` | the [fencing token](crate::guide::fencing), if it has one | hold |
//! | `lock.lost` | why it was lost: the [reason](crate::LossReason) as in the figures, such as `not_renewed` | lost |
//! | `lock.error` | what went wrong, as text | failed, stopped, lost |
//! | `otel.status_code` | `ERROR`; the layer for OpenTelemetry makes it the status of the span | failed, lost |
//!
//! The spans have the level INFO and the target `leasehold`, so a filter turns them off
//! (`leasehold=warn`), and then nothing is made. They belong to the span that the calling thread
//! is in, and the library enters none of its own: a guard may move to another thread. A multi-lock
//! has a hold for each name, and a wait with the name that it found taken first. Log lines of the
//! library go to the crate `log`, as without the feature.
//!
//! A hold costs about 0.1 µs more while no subscriber wants the spans, and 0.3 µs with an empty
//! registry of `tracing-subscriber`; what yours does with them comes on top.
//!
//! The subscriber runs on the thread of the call, and delays it, but neither renewals nor, once a
//! lock is taken or released, other threads. The spans of holds that a closed client or an ended
//! thread had end there, after all of them were released; permits of a counting semaphore with
//! their guard. The span of a hold that is lost ends on a thread for callbacks, or on that of the
//! guard if this finds the loss. A subscriber must not wait for the lock that the span is about. A
//! panic in it is caught, and logged once for each client.
//!
//! # A job hangs
//!
//! Start outside the program, with the command `leasehold` (`cargo install leasehold-cli`; the URL
//! of the store in `LEASEHOLD_URL`). `show` sees all clients, including Java's; `ls` and `top` see
//! Java's clients with `--all`, or once somebody waits:
//!
//! ```text
//! $ leasehold show nightly:report
//! nightly:report
//!   kind     mutex
//!   held by  billing-7 (pid 4711 on host-a) for 48m12s, its lease ends in 21.4 s, id 8a2c..:3
//!   token    1795384469368111, the last one that was issued
//! ```
//!
//! | output | cause | next step |
//! |---|---|---|
//! | `free` | nobody has the lock: the job waits for something else, or for another name | `leasehold ls`: is there a similar name? Then the snapshot below |
//! | `held by`, for long, and its lease is renewed (`leasehold watch NAME` shows it) | that process is alive and does not finish | take its snapshot or a thread dump: its host and process id are in the output |
//! | `held by` an id without a name | a Redisson client, or one that does not announce its owner | the id is in Redisson's own logs; `CLIENT LIST` has the addresses |
//! | `its lease ends in` falls and never rises | the holder was killed, cannot reach the server, or has a fixed lease, which is never renewed: the lock is released when its lease ends | wait that long; for a long lease `leasehold unlock NAME --ask` |
//! | some places in the queue are `expired` | waiters were killed; the others pass them | nothing |
//! | the holder changes all the time (`leasehold top`, column RATE/s) | the lock is not stuck, but contended | protect less with one name |
//! | `leasehold: ..`, status 69 | the store is down, cut off, not ready or full | `leasehold doctor`: it says which server, and what to do |
//! | everything is in order, but slow | latency, a full server, a throttled disk | `leasehold doctor`, which times round trips |
//!
//! `leasehold unlock` frees a lock by force. It names the holder and says what happens to it. It
//! refuses while the holder lives and, without `--force`, if that cannot be seen, as with a fixed
//! lease of a Java client. Only [fencing tokens](crate::fencing) can refuse what the holder does
//! until it notices.
//!
//! Then look inside. [`LockClient::snapshot`](crate::LockClient::snapshot) shows what the client
//! holds and waits for now, with threads and times. It asks no server, so it works while one hangs.
//! Have a thread of your program print it when the process gets `SIGUSR1` (not the handler itself:
//! a snapshot takes mutexes, which the interrupted thread may hold):
//!
//! ```text
//! let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR1])?;
//! let client = client.clone();
//! std::thread::spawn(move || {
//!     for _ in signals.forever() {
//!         eprintln!("{}\n{}", client.snapshot(), client.stats());
//!     }
//! });
//! ```
//!
//! What its lines mean:
//!
//! | line | cause | what to do |
//! |---|---|---|
//! | `deadlock: "a" waits for "b" ("x"), "b" waits for "a" ("y")` | two threads take two locks in different orders | take them as one with [`multi`](crate::LockClient::multi), or in one order everywhere; meanwhile only a timeout ends the deadlock |
//! | `waiting "x" .. held by "worker-3"` | a thread of this process has it | find the thread by its name in a thread dump: it is working, or waits for something other than a lock |
//! | `waiting "x" .. held by an owned guard that "worker-3" took` | a guard that moved, perhaps into a queue or a struct that nobody drops | find out where the guard is now |
//! | `waiting "x" .. another client has it` | another process | `leasehold show x` says who; then take the snapshot there |
//! | `waiting "x" once .. it is not done` | nobody has done the occurrence, and perhaps nobody runs the job | `leasehold show x` says who runs it |
//! | `waiting "x" ..` for long, and the server says that it is free | the client cannot reach the server: look for `leasehold_errors_total`, broken connections, and [`nodes`](crate::LockClient::nodes) | bring the server back; the call ends after [`outage_timeout`](crate::Builder::outage_timeout) |
//! | `held .. lease ends in 0.4s (its last renewal failed)` | renewals fail | the [log line](#log-lines) has the cause |
//! | `held .. LOST` | the job continues although its lock was lost | have it check [`ensure_held`](crate::ReentrantMutexGuard::ensure_held), see [`losing_a_lock`](crate::guide::losing_a_lock) |
//! | `held .. its release is under way` | the server does not answer the release | see what the server does, as for any server that hangs |
//! | no line about the job's lock | it waits for something else | a thread dump |
//!
//! # The command
//!
//! `leasehold` is for shells, crontabs, and whoever is on call. `leasehold SUBCOMMAND --help`
//! documents it; `leasehold man` and `leasehold completions SHELL` print the man page and
//! completions.
//!
//! | subcommand | what it does |
//! |---|---|
//! | `run NAME -- command` | runs a command under a lock, a read or write lock or a permit: the lease is renewed while the command runs, and the command is ended if the lock is lost, or `leasehold` is killed |
//! | `run --once KEY=OCCURRENCE -- command`, `run --once KEY --every 1d --offset 2h -- command` | runs it [once for each occurrence](crate::guide::scheduled_jobs), whoever else starts it: the success is recorded |
//! | `once forget KEY=OCCURRENCE`, `once force-out KEY` | lets an occurrence run again; ends the lease of the run that is under way |
//! | `ls [PATTERN]`, `show NAME` | what is locked by this library or waited for (`--all`: by anybody, found by a search over all keys); everything about one name |
//! | `top`, `watch NAME` | a live screen of these locks; a time line of one, also as an SVG |
//! | `unlock NAME` | frees a lock by force |
//! | `permits NAME N` | sets the number of permits of a semaphore |
//! | `doctor` | what is wrong with the servers, and how fast they answer |
//! | `doctor --acl`, `schema --postgres`, `schema --mysql` | what an administrator has to permit or to install |
//!
//! ```text
//! LEASEHOLD_URL=redis://cache/
//! 5 3 * * * ~/.cargo/bin/leasehold run job -nq --conflict-status 0 --min-hold 5m -- /opt/job.sh
//! ```
//!
//! Install this crontab on every machine: one of them runs the job, and the others are silent. cron
//! finds commands only in `/usr/bin` and `/bin`. `cargo install` puts `leasehold` into
//! `~/.cargo/bin`, hence the path; with the `.deb`, or `cargo install --root /usr`, it is
//! `/usr/bin/leasehold`. A `PATH=` line of the crontab does the same, if it spells the home
//! directory: cron expands no variable there.
//!
//! A job that must not be done again by a machine that is late is `--once job --every 1d` in place
//! of `job --min-hold 5m`; several lines then try it again, and do nothing if it was done. One that
//! finds all attempts used up says so and ends with 75, also with `-q` and `--conflict-status 0`.
//!
//! `--min-hold` keeps the lock taken after a quick job, for as long as clocks may differ, also if
//! the job has failed; with `--min-hold-on-success` another machine may then do it. `-nq`
//! (`--no-wait --quiet`) with `--conflict-status 0` keeps cron from sending mails about the
//! machines that lose: otherwise they say who has the lock, and end with status 75. `--retry-store
//! 10m` waits for a store that is down when the job should start. The command's environment has
//! `LEASEHOLD_TOKEN`, the fencing token, and `LEASEHOLD_NAME`. A command is a program and its
//! arguments; what needs a shell is `-- sh -c 'cd /opt && ./report.sh'`. In a crontab a `%` ends
//! the line: write `\%`, as in `date +\%F`.
//!
//! On Unix, `run` passes signals on (its help lists them), and a second process, `lh-backstop`,
//! ends the command's process group if `run` is killed, before the lease ends. What has left that
//! group goes on; so does a command whose `run` and `lh-backstop` are killed together, or, not on
//! Linux, whose `run` is killed in the moment in which it starts it. On Windows, the command of a
//! `run` that is killed goes on.
//!
//! The store is given by `--url` or `LEASEHOLD_URL`. Everybody on the machine can see arguments, so
//! `--url` refuses a password: put the URL into `LEASEHOLD_URL`, or the password into a file for
//! `--password-file`. With `--json`, subcommands that show something print [the JSON of
//! `observe`](crate::observe#as-json); `leasehold schema` describes it. Exit statuses: 0 done, 75
//! somebody else has the lock, 70 it was lost, 69 the store cannot be used, 64 bad arguments, 77
//! denied, 76 nothing that can be locked, or a semaphore with another number of permits than
//! `--permits` gives. Otherwise `run` ends with the status of the command, `show` with 1 if the
//! name is free, and `doctor` with 1 for warnings and 2 for problems.
//!
//! # Connections
//!
//! | connection | how many per client |
//! |---|---|
//! | lock calls | up to [`connections`](crate::Builder::connections) (8 by default, with PostgreSQL and MySQL 4), to each master with Redlock |
//! | renewals and unknown outcomes | 1, from the first hold on |
//! | release messages | 1, from the first wait on, to each master with Redlock |
//! | where a new one is needed | 1 for a moment: to list locks; with PostgreSQL, or without the right to `CLIENT KILL`, to repeat calls whose reply was lost; with Redlock, for a query |
//! | [`diagnose`](crate::LockClient::diagnose) | 2 for each that is under way, to each server; the second for a moment |
//! | to each sentinel | 2: one for requests, one for its messages |
//! | in a cluster | all of the above for each primary that has a name in use: lock calls from the first call on, renewals from the first hold, messages from the first wait; and 1 to each other primary while the map of the slots is read |
//!
//! So a client has at most [`connections`](crate::Builder::connections) and three to a server
//! beside those of a diagnosis, also after a fault that ended all of them. New ones are made one
//! after the other. While the server cannot be reached or refuses them, all threads of a client
//! together try again after one pause, which grows to a quarter of a second. With Redlock, queries
//! (`is_locked`, `inspect`, ...) and `force_unlock` ask all masters, and have at most half of the
//! connections, so that a master that hangs keeps no lock call from its round. A query counts
//! those that answer, and asks none that is late unless it needs it: a lock on just a majority, one
//! of which is late or away, looks free.
//!
//! At `maxclients` a new client fails with [`NotReady`](crate::ErrorKind::NotReady). A client that
//! has a connection keeps working: if the server or the system (open files) allows no more, lock
//! calls and renewals share what there is.
//!
//! # Threads
//!
//! A client has no thread until it needs one (with Redlock: the first one from the start). A thread
//! dump shows their names; Linux keeps 15 bytes of them.
//!
//! | name | what it does | starts with |
//! |---|---|---|
//! | `lh-renew-<client name>` | renews leases, notices losses, resolves unknown outcomes; with Redlock it probes masters | the first hold |
//! | `lh-notify-<client name>` | receives release messages | the first wait |
//! | `lh-loss-<client name>` | keeps the deadlines of leases that have callbacks | the first `on_lost` or `lost` |
//! | `lh-on-lost` | runs callbacks, and notifies the [listener](crate::observe::Listener) of losses and failed renewals; up to 16 at once, and 16 more in a `close`; each ends when nothing is left to run | a loss |
//! | `lh-sentinel-<client name>` | watches the [sentinels][crate::Builder::sentinel] for failovers | the first connection |
//! | `lh-zk-<client name>` | with ZooKeeper: reads all replies and events, keeps the session alive | the first call |
//! | `lh-name`, `lh-credentials` | ask the system for the addresses of a host, and a credentials provider; each ends with the answer | a connect that needs it |
//! | `lh-master` | with Redlock: connects to one master while the call waits for all; ends with it | a round in which several masters have no connection |
//! | `lh-connect` | makes one more connection for lock calls, and ends; in a cluster, one for messages | all connections are busy; a wait |
//! | `lh-cluster`, `lh-renew-node` | in a cluster: ask nodes for its slots, renew at several primaries in parallel; each ends with its exchange | a slot that has moved, a wait, a renewal |
//! | `lh-diagnose` | query all servers in parallel; each ends with its queries | [`diagnose`](crate::LockClient::diagnose) |
//! | `lh-sentinel-ask`, `-sub` | query all sentinels in parallel, for each connect and once a second; each ends with its exchange | a query |
#![cfg_attr(not(feature = "redis"), doc = include_str!("../links/redis.md"))]
#![cfg_attr(not(feature = "redlock"), doc = include_str!("../links/redlock.md"))]
