//! The ACL rule of Redis, for an administrator.

/// For each name or pattern of names: those of the keys of a lock.
const NAMES: [&str; 3] = ["~<names>", "~{<names>}:*", "~<names>:*"];

const RULE: &str = "\
~redisson_lock_token:* ~redisson_lock_queue:* ~redisson_lock_timeout:* ~leasehold_writer:* ~leasehold_once:* \
~leasehold_client:* &redisson_lock__channel:* &redisson_rwlock:* &redisson_sc:* &redisson_countdownlatch__channel__* \
+hset +hget +hdel +hexists +hgetall +hlen +exists +del +get +set +incr +incrby +decrby +pttl +pexpire +pexpireat \
+persist +time +lindex +lrange +linsert +rpush +lpop +lrem +zadd +zrem +zscore +zmscore +zcard +zcount +zrange \
+zrangebyscore +publish +subscribe +unsubscribe +psubscribe +punsubscribe +ping +eval +evalsha +script|load \
+client|setname +client|info +client|kill +info";

const FOR_REDLOCK: &str = "~leasehold:node +hmget +hkeys";
const IN_CLUSTER: &str = "+cluster|slots +asking +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub";
const LOOKING: &str = "+scan +pubsub|channels +pubsub|numsub +pubsub|shardchannels +pubsub|shardnumsub +config|get";

/// What the URLs say of the servers.
pub(super) struct Servers {
    pub(super) redlock: bool,
    pub(super) cluster: bool,
}

/// Lines for an ACL file or `ACL SETUSER`. `prefix`: that of all names.
pub(super) fn rule(prefix: &str, servers: &Servers) -> String {
    // A prefix with braces has them in all keys.
    let names = NAMES.iter().filter(|name| !(prefix.contains('{') && name.starts_with("~{")));
    let names: Vec<String> = names.map(|name| name.replace("<names>", &format!("{prefix}*"))).collect();
    let mut rule = format!("{} {RULE}", names.join(" "));
    for (is_used, more) in [(servers.redlock, FOR_REDLOCK), (servers.cluster, IN_CLUSTER)] {
        if is_used {
            rule = format!("{rule} {more}");
        }
    }
    format!(
        "# For programs that lock, and for `leasehold run` and `leasehold ls`. Put a user and a password in their places:\n\
         ACL SETUSER app on >password {rule}\n\
         # In a database other than 0, besides:\n\
         ACL SETUSER app +select\n\
         # For whoever looks (ls and top with what is waited for, ls --all, doctor), besides; Redis 6.2 knows no parts\n\
         # of a command there: +scan +pubsub +config\n\
         ACL SETUSER app {LOOKING}\n"
    )
}
