//! Sharing locks with Redisson: see the chapter [`guide::redisson`](crate::guide::redisson).
//!
//! This module has no code. The chapter lists which primitive corresponds to which Java class, what
//! Redisson's behaviour means for Rust processes that use the same locks, and the limits of sharing
//! them with [`RedissonRedLock`](crate::guide::redisson#beside-redissonredlock).
