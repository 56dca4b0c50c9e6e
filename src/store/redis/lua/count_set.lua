-- count_set: sets the count of a latch or the permits of a semaphore, if there is none.
-- KEYS[1] count   integer
-- KEYS[2] mark    string, the reply that this request got (idempotency key)
-- ARGV[1] the count
-- ARGV[2] TTL of the mark in ms
-- ARGV[3] channel
-- ARGV[4] the message
-- ARGV[5] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, count} set | {0, count} there is one already | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and sets nothing.
local answer = recorded_answer(KEYS[2], ARGV[5])
if answer then
  return answer
end
if redis.call('exists', KEYS[1]) == 1 then
  return {0, number_at(KEYS[1])}
end
redis.call('set', KEYS[1], ARGV[1])
answer = remember(KEYS[2], ARGV[2], 1, tonumber(ARGV[1]))
-- Nobody can take a permit of none. Java takes the message for a number of permits.
if ARGV[1] ~= '0' then
  redis.call('publish', ARGV[3], ARGV[4])
end
return answer
