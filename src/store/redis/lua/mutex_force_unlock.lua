-- mutex_force_unlock: frees the lock, whoever holds it, and notifies the waiters.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] channel for the release message
-- Returns 1 it was held | 0 it was free | an error for what is no plain lock, which is not changed
-- Repeat-safe: no. A repeat after a lost reply could take the lock from its next holder; it is sent
-- once.
redis.call('del', KEYS[1])
redis.call('publish', ARGV[1], '0')
return 1
