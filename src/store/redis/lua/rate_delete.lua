-- rate_delete: removes a rate limiter.
-- KEYS[1] limiter  hash: rate, interval in ms, type (1: each client has a rate of its own),
--         keepAliveTime in ms
-- KEYS[2] free     integer, the permits that are free
-- KEYS[3] taken    sorted set, acquisition with its number of permits -> epoch ms at which it was
-- KEYS[4] mark     string, the reply that this request got (idempotency key)
-- ARGV[1] TTL of the mark in ms
-- ARGV[2] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} removed | {0, 0} there was none | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and does not remove a limiter that
-- was made in between.
local answer = recorded_answer(KEYS[4], ARGV[2])
if answer then
  return answer
end
if not limiter_at(KEYS[1]) then
  return {0, 0}
end
-- Both raise an error if the key is used for something else.
number_at(KEYS[2])
redis.call('zcard', KEYS[3])
redis.call('del', KEYS[1], KEYS[2], KEYS[3])
return remember(KEYS[4], ARGV[1], 1, 0)
