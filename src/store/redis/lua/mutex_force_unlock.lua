-- mutex_force_unlock: free the lock whoever holds it, and wake the waiters.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] channel to publish the release on
-- Returns 1 it was held | 0 it was free | an error where a fenced value stands, which is left alone
-- Repeat-safe: no. A repeat after a lost reply could force out whoever took the lock in between; it is sent once.
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
if redis.call('hexists', KEYS[1], 'token') == 1 then
  return redis.error_reply('WRONGTYPE a fenced value stands under this name')
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[1], '0')
return 1
