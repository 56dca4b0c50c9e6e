-- job_look: returns what is known of an occurrence of a job, and whether it may begin.
-- KEYS[1] lease    hash, holder -> 1: who runs an occurrence of the job
-- KEYS[2] record   hash of the occurrence: attempts, not_before (epoch ms), holder and by (of the
--         last attempt), at (epoch ms at which it was done), again (it was forgotten)
-- KEYS[3] last     hash: newest (occurrence that was done), and of the last attempt at any: holder,
--         by, occurrence
-- ARGV[1] occurrence
-- ARGV[2] maximum number of attempts
-- Returns {0, 0, '', ''} an attempt may begin
--         {2, epoch ms, by, ''} done
--         {4, 0, newest, ''} a newer one was done
--         {5, ms, '', ''} not before so many ms are over
--         {6, attempts, '', ''} it was tried too often
--         {7, pttl, by, occurrence} one runs; by is the holder while its attempt has not begun
-- Repeat-safe: yes, it only reads.
local over = done_at(KEYS[2]) or is_over(KEYS[2], KEYS[3], ARGV[1])
if over then
  return over
end
local pttl = redis.call('pttl', KEYS[1])
if pttl ~= -2 then
  local holder = redis.call('hlen', KEYS[1]) == 1 and redis.call('hgetall', KEYS[1])[1] or ''
  if redis.call('hget', KEYS[3], 'holder') == holder then
    return {7, pttl, redis.call('hget', KEYS[3], 'by'), redis.call('hget', KEYS[3], 'occurrence')}
  end
  return {7, pttl, holder, ''}
end
return is_held_up(KEYS[2], ARGV[2]) or {0, 0, '', ''}
