-- mutex_release: gives up one hold count; the last one frees the lock and notifies the waiters.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] holder
-- ARGV[2] hold count of the holder now; 1 removes the hold, whatever count is in Redis
-- ARGV[3] channel for the release message; empty: none is sent
-- Returns {0, 0} not held (after a lost reply: an earlier run released it)
--         {1, 0} one hold count given up
--         {2, receivers} freed, and how many subscribers the message reached
-- Repeat-safe: yes. The count is set, not decremented, and the holder is never used again once it
-- is removed.
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  -- lib/release_level, in front, has handled a count ARGV[2] above 1.
  return {0, 0}
end
if ARGV[3] == '' then
  return {2, 0}
end
-- The publish comes last, because Redis does not roll back earlier commands when it is refused.
return {2, redis.call('publish', ARGV[3], '0')}
