//! The ACL rule of Redis, for an administrator.

/// The patterns of a lock's keys, for each name or pattern of names.
const NAMES: [&str; 3] = ["~<names>", "~{<names>}:*", "~<names>:*"];

const RULE: &str = "\
~redisson_lock_token:* ~redisson_lock_queue:* ~redisson_lock_timeout:* ~leasehold_writer:* ~leasehold_once:* \
~leasehold_data:* ~leasehold_client:* ~leasehold_job:* ~leasehold_done:* ~leasehold_last:* \
&redisson_lock__channel:* &redisson_rwlock:* &redisson_sc:* &redisson_countdownlatch__channel__* &leasehold_done:* \
+hset +hget +hdel +hexists +hgetall +hlen +exists +del +get +set +incr +incrby +decrby +pttl +pexpire +pexpireat \
+persist +time +lindex +lrange +linsert +rpush +lpop +lrem +zadd +zrem +zscore +zmscore +zcard +zcount +zrange \
+zrangebyscore +publish +subscribe +unsubscribe +psubscribe +punsubscribe +ping +echo +eval +evalsha +script|load \
+client|setname +client|info +client|kill +info";

const FOR_REDLOCK: &str = "~leasehold:node +hmget +hkeys";
const IN_CLUSTER: &str =
    "+cluster|slots +asking +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub";
const LOOKING: &str =
    "+scan +pubsub|channels +pubsub|numsub +pubsub|shardchannels +pubsub|shardnumsub +config|get";

/// What the URLs say about the servers.
pub(super) struct Servers {
    pub(super) redlock: bool,
    pub(super) cluster: bool,
}

/// Lines for an ACL file or `ACL SETUSER`. `prefix`: the prefix of all names.
pub(super) fn rule(prefix: &str, servers: &Servers) -> String {
    // If the prefix contains braces, all keys do.
    let names = NAMES.iter().filter(|name| !(prefix.contains('{') && name.starts_with("~{")));
    let names: Vec<String> =
        names.map(|name| name.replace("<names>", &format!("{prefix}*"))).collect();
    let mut rule = format!("{} {RULE}", names.join(" "));
    for (is_used, more) in [(servers.redlock, FOR_REDLOCK), (servers.cluster, IN_CLUSTER)] {
        if is_used {
            rule = format!("{rule} {more}");
        }
    }
    format!(
        "# For programs that use locks, and for `leasehold run` and `leasehold ls`. Replace the user and the password:\n\
         ACL SETUSER app on >password {rule}\n\
         # Additionally, in a database other than 0:\n\
         ACL SETUSER app +select\n\
         # Additionally, to inspect locks (ls and top with waiters, ls --all, doctor); Redis 6.2 does not support\n\
         # subcommands here: use +scan +pubsub +config\n\
         ACL SETUSER app {LOOKING}\n"
    )
}
