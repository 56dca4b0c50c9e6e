-- job_end: records how an attempt ended and gives up the lease of the job, in one step.
-- KEYS[1] lease    hash, holder -> 1: who runs an occurrence of the job
-- KEYS[2] record   hash of the occurrence: attempts, not_before (epoch ms), holder and by (of the
--         last attempt), at (epoch ms at which it was done), again (it was forgotten)
-- KEYS[3] last     hash: newest (occurrence that was done), and of the last attempt at any: holder,
--         by, occurrence
-- ARGV[1] occurrence
-- ARGV[2] -1: done; else ms before which the next attempt must not begin
-- ARGV[3] holder
-- ARGV[4] who that is, for people
-- ARGV[5] TTL of the record in ms
-- ARGV[6] TTL of what was last in ms
-- ARGV[7] channel of those who wait for the occurrence
-- Returns {1, 0} recorded, and given up
--         {0, 0} the holder does not hold the lease: nothing is changed
-- Repeat-safe: yes. A repeat of a success finds its own record. Of a failure it finds no holder,
-- and the lease is free as it should be. A late run finds no holder, or its own record.
local is_done = ARGV[2] == '-1'
-- Reads everything first: a key of another type must leave the lease in place.
local at, holder = redis.call('hget', KEYS[2], 'at'), redis.call('hget', KEYS[2], 'holder')
local newest = redis.call('hget', KEYS[3], 'newest')
if is_done and at and holder == ARGV[3] then
  -- A write, so that a WAIT behind it covers the run before, over another connection as well.
  redis.call('pexpire', KEYS[2], ARGV[5])
  return {1, 0}
end
-- The first change needs no memory: a full server lets the others follow it.
if redis.call('hdel', KEYS[1], ARGV[3]) == 0 then
  return {0, 0}
end
if is_done then
  redis.call('hset', KEYS[2], 'at', string.format('%.0f', millis()), 'holder', ARGV[3],
    'by', ARGV[4])
  redis.call('hdel', KEYS[2], 'again')
  if not newest or is_newer(ARGV[1], newest) then
    redis.call('hset', KEYS[3], 'newest', ARGV[1])
  end
  redis.call('pexpire', KEYS[3], ARGV[6])
elseif not at then
  redis.call('hset', KEYS[2], 'not_before', string.format('%.0f', millis() + ARGV[2]))
end
redis.call('pexpire', KEYS[2], ARGV[5])
-- Last, because Redis does not roll back earlier commands when it is refused.
redis.call('publish', ARGV[7], '1')
return {1, 0}
