-- mutex_release: give up one level of a hold; the last one frees the lock and wakes the waiters.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] holder
-- ARGV[2] the count this holder has now; 1 removes the hold whatever count stands in Redis
-- ARGV[3] channel to publish a full release on; empty: nobody is told
-- Returns {0, 0} not held (after a lost reply: an earlier run worked) | {1, 0} one level given up
--         {2, receivers} freed, and how many subscribers the message reached
-- Repeat-safe: yes. The count is set, not subtracted from, and the holder is never used again once it is removed.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  -- lib/release_level, in front, has handled a count ARGV[2] above 1.
  return {0, 0}
end
if ARGV[3] == '' or redis.call('exists', KEYS[1]) == 1 then
  return {2, 0}
end
-- Last: Redis does not roll back what ran before a publish that is refused.
return {2, redis.call('publish', ARGV[3], '0')}
