-- job_begin: counts an attempt at an occurrence of a job, for the holder of the job's lease.
-- KEYS[1] lease    hash, holder -> 1: who runs an occurrence of the job
-- KEYS[2] record   hash of the occurrence: attempts, not_before (epoch ms), holder and by (of the
--         last attempt), at (epoch ms at which it was done), again (it was forgotten)
-- KEYS[3] last     hash: newest (occurrence that was done), and of the last attempt at any: holder,
--         by, occurrence
-- ARGV[1] occurrence
-- ARGV[2] maximum number of attempts
-- ARGV[3] holder
-- ARGV[4] who that is, for people
-- ARGV[5] TTL of the record in ms
-- ARGV[6] TTL of what was last in ms
-- Returns {1, attempts, '', ''} begun, and counted
--         {2, epoch ms, by, ''} done
--         {4, 0, newest, ''} a newer one was done
--         {5, ms, '', ''} not before so many ms are over
--         {6, attempts, '', ''} it was tried too often
--         {8, 0, '', ''} the holder does not hold the lease
-- Repeat-safe: yes. Every run has a fresh holder, so a repeat finds that it has begun, and counts
-- nothing. One that comes after the lease was given up finds no holder.
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return {8, 0, '', ''}
end
local attempts = tonumber(redis.call('hget', KEYS[2], 'attempts') or '0')
if redis.call('hget', KEYS[3], 'holder') == ARGV[3] then
  return {1, math.max(attempts, 1), '', ''}
end
local refused = done_at(KEYS[2]) or is_over(KEYS[2], KEYS[3], ARGV[1])
  or is_held_up(KEYS[2], ARGV[2])
if refused then
  return refused
end
attempts = attempts + 1
redis.call('hset', KEYS[2], 'attempts', attempts, 'holder', ARGV[3], 'by', ARGV[4])
redis.call('pexpire', KEYS[2], ARGV[5])
redis.call('hset', KEYS[3], 'holder', ARGV[3], 'by', ARGV[4], 'occurrence', ARGV[1])
redis.call('pexpire', KEYS[3], ARGV[6])
return {1, attempts, '', ''}
