-- mutex_force_unlock: free the lock whoever holds it, and wake the waiters.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] channel to publish the release on
-- Returns 1 it was held | 0 it was free | an error where a fenced value stands, which is left alone
-- Repeat-safe: no. A repeat after a lost reply could force out whoever took the lock in between; it is sent once.
redis.call('del', KEYS[1])
redis.call('publish', ARGV[1], '0')
return 1
