//! Sharing locks with Redisson: see the chapter [`guide::redisson`](crate::guide::redisson).
//!
//! There is no code in this module. The chapter says which primitive is which class in Java, what
//! Redisson's behaviour means for Rust processes on the same locks, and where the limits are beside
//! [`RedissonRedLock`](crate::guide::redisson#beside-redissonredlock).
