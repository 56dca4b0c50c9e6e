//! The table of all Lua scripts, shared by the crate, its tests and its benches through `#[path]`.
//! A new script is added here: the name of its file, `with` a library in front of it (or another
//! script, between `inner` and `outer`), `then` a library behind it, and the shape of its replies,
//! which only the crate reads.

/// Calls the macro `$callback` with the whole table.
macro_rules! for_each_script {
    ($callback:ident) => {
        $callback! {
            MUTEX_ACQUIRE = "mutex_acquire" then "plain" then "token" then "token_run" then "hold" => Shape::status(3);
            MUTEX_RELEASE = "mutex_release" with "release_level" => Shape::status(2);
            LOCK_KEEP = "lock_keep" with "keep" => Shape::status(2);
            MUTEX_INSPECT = "mutex_inspect" => Shape::List;
            MUTEX_FORCE_UNLOCK = "mutex_force_unlock" with "holder" with "force" => Shape::Number;
            LEASE_RENEW = "lease_renew" then "renew_hashes" => Shape::List;
            MULTI_ACQUIRE = "multi_acquire" with "holder" => Shape::Status { top: 4, least: 2, most: MOST_NAMES as u16 + 1, fresh: false };
            MULTI_RELEASE = "multi_release" with "keep" => Shape::List;
            FAIR_ACQUIRE = "fair_acquire" with "holder" with "queue" then "token" then "hold" => Shape::status(3);
            FAIR_RELEASE = "fair_release" with "release_level" with "queue" => Shape::Status { top: 2, least: 2, most: 4, fresh: false };
            FAIR_KEEP = "fair_keep" with "keep" with "queue" => Shape::status(2);
            FAIR_FORCE_UNLOCK = "fair_force_unlock" with "holder" with "force" with "queue" => Shape::Number;
            FAIR_QUEUE = "fair_queue" => Shape::Pair;
            DATA_ACQUIRE = "data_acquire" with "data" with "inner" with "../mutex_acquire" with "plain" with "token" with "token_run" with "hold" with "outer" then "data_granted" => Shape::status(3);
            DATA_RELEASE = "data_release" with "data" with "inner" with "release_level" with "../mutex_release" with "outer" then "data_released" => Shape::status(2);
            DATA_FAIR_ACQUIRE = "data_fair_acquire" with "data" with "inner" with "holder" with "queue" with "../fair_acquire" with "token" with "hold" with "outer" then "data_granted" => Shape::status(3);
            DATA_FAIR_RELEASE = "data_fair_release" with "data" with "inner" with "release_level" with "queue" with "../fair_release" with "outer" then "data_released" => Shape::Status { top: 2, least: 2, most: 4, fresh: false };
            DATA_RENEW = "data_renew" with "data" with "inner" with "../lease_renew" with "renew_hashes" with "outer" => Shape::List;
            DATA_SET = "data_set" with "data" => Shape::Number;
            DATA_ASK = "data_ask" with "data" => Shape::Number;
            DATA_LOOK = "data_look" with "data" => Shape::List;
            READ_ACQUIRE = "read_acquire" with "holder" then "token" then "hold" => Shape::status(3);
            WRITE_ACQUIRE = "write_acquire" with "holder" then "token" then "hold" => Shape::status(3);
            RW_RELEASE = "rw_release" with "holder" => Shape::status(2);
            RW_RENEW = "rw_renew" with "holder" then "renew_each" => Shape::List;
            RW_FORCE_UNLOCK = "rw_force_unlock" with "holder" => Shape::Number;
            PERMIT_ACQUIRE = "permit_acquire" with "number" with "permits" => Shape::status(4);
            PERMIT_RELEASE = "permit_release" with "number" with "permits" => Shape::status(2);
            PERMIT_RENEW = "permit_renew" with "permits" then "renew_each" => Shape::List;
            PERMIT_COUNT = "permit_count" with "number" with "permits" => Shape::Pair;
            PERMIT_DELETE = "permit_delete" with "number" with "once" => Shape::status(3);
            COUNT_ACQUIRE = "count_acquire" with "number" with "once" => Shape::status(4);
            COUNT_RELEASE = "count_release" with "number" => Shape::status(2);
            COUNT_SET = "count_set" with "number" with "once" => Shape::status(3);
            COUNT_ADD = "count_add" with "number" with "once" => Shape::status(5);
            LATCH_COUNT_DOWN = "latch_count_down" with "once" with "opened" => Shape::status(3);
            LATCH_DELETE = "latch_delete" with "number" with "once" with "opened" => Shape::status(3);
            LATCH_LOOK = "latch_look" with "number" => Shape::Pair;
            RATE_ACQUIRE = "rate_acquire" with "number" with "rate" => Shape::status(5);
            RATE_GIVE_BACK = "rate_give_back" with "number" with "rate" => Shape::status(2);
            RATE_SET = "rate_set" with "number" with "once" with "rate" => Shape::status(3);
            RATE_DELETE = "rate_delete" with "number" with "once" with "rate" => Shape::status(3);
            RATE_LOOK = "rate_look" with "number" with "rate" => Shape::Status { top: 5, least: 4, most: 4, fresh: false };
            JOB_LOOK = "job_look" with "job" => Shape::Status { top: 8, least: 4, most: 4, fresh: false };
            JOB_BEGIN = "job_begin" with "job" => Shape::Status { top: 8, least: 4, most: 4, fresh: false };
            JOB_END = "job_end" with "job" => Shape::status(1);
            JOB_FORGET = "job_forget" => Shape::Number;
            REDLOCK_ACQUIRE = "redlock_acquire" then "plain" then "node_token" then "hold" => Shape::status(5);
            REDLOCK_RENEW = "redlock_renew" then "renew_hashes" => Shape::Any;
            REDLOCK_TOKEN = "redlock_token" => Shape::Number;
            REDLOCK_LOOK = "redlock_look" => Shape::status(1);
            REDLOCK_ADMIT = "redlock_admit" => Shape::Number;
            CLIENT_ENTER = "client_enter" => Shape::Number;
            CLIENT_LOOK = "client_look" => Shape::List;
            NAME_LOOK = "name_look" => Shape::List;
            CONNECT_PROBE = "connect_probe" => Shape::Any;
            FENCE_CLAIM = "fence_claim" => Shape::Status { top: 1, least: 1, most: 2, fresh: false };
            FENCE_WRITE = "fence_write" => Shape::Status { top: 1, least: 1, most: 2, fresh: false };
        }
    };
}

/// The text of a script, from `name` on as in the table. The path is absolute because this macro is
/// used from files in different folders.
macro_rules! lua_source {
    ($name:literal $(with $front:literal)* $(then $end:literal)*) => {
        concat!(
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua/lib/", $front, ".lua")),)*
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua/", $name, ".lua")),
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua/lib/", $end, ".lua")),)*
        )
    };
}
