-- job_forget: lets an occurrence of a job run again.
-- KEYS[1] record   hash of the occurrence: attempts, not_before (epoch ms), holder and by (of the
--         last attempt), at (epoch ms at which it was done), again (it was forgotten)
-- KEYS[2] last     hash: newest (occurrence that was done), and of the last attempt at any: holder,
--         by, occurrence
-- ARGV[1] occurrence
-- ARGV[2] TTL of the record in ms
-- ARGV[3] channel of those who wait for the occurrence
-- Returns 1 something was known of it | 0 nothing was
-- Repeat-safe: no. A repeat after a lost reply could forget the next success; it is sent once.
local is_newest = redis.call('hget', KEYS[2], 'newest') == ARGV[1]
local known = is_newest or redis.call('hget', KEYS[1], 'attempts')
  or redis.call('hget', KEYS[1], 'at')
redis.call('hset', KEYS[1], 'again', 1)
-- Not DEL: while its slot moves, no command may name a key that the script has deleted.
redis.call('hdel', KEYS[1], 'attempts', 'not_before', 'holder', 'by', 'at')
redis.call('pexpire', KEYS[1], ARGV[2])
if is_newest then
  redis.call('hdel', KEYS[2], 'newest')
end
if not known then
  return 0
end
redis.call('publish', ARGV[3], '1')
return 1
