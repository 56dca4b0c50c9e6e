-- rate_set: sets the rate of a limiter, one for all clients. Nothing is taken then.
-- KEYS[1] limiter  hash: rate, interval in ms, type (1: each client has a rate of its own),
--         keepAliveTime in ms
-- KEYS[2] free     integer, the permits that are free
-- KEYS[3] taken    sorted set, acquisition with its number of permits -> epoch ms at which it was
-- KEYS[4] mark     string, the reply that this request got (idempotency key)
-- ARGV[1] rate
-- ARGV[2] interval in ms
-- ARGV[3] 1: replaces a rate; 0: only if there is none
-- ARGV[4] TTL of the mark in ms
-- ARGV[5] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} set | {0, 0} there is one already | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and sets nothing.
local answer = recorded_answer(KEYS[4], ARGV[5])
if answer then
  return answer
end
if limiter_at(KEYS[1]) and ARGV[3] == '0' then
  return {0, 0}
end
-- Both raise an error if the key is used for something else.
number_at(KEYS[2])
redis.call('zcard', KEYS[3])
redis.call('hset', KEYS[1], 'rate', ARGV[1], 'interval', ARGV[2], 'type', 0, 'keepAliveTime', 0)
redis.call('persist', KEYS[1])
answer = remember(KEYS[4], ARGV[4], 1, 0)
redis.call('del', KEYS[2], KEYS[3])
return answer
