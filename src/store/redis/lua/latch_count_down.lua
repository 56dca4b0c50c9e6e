-- latch_count_down: decrements a latch, and opens it at zero.
-- KEYS[1] count   integer
-- KEYS[2] mark    string, the reply that this request got (idempotency key)
-- KEYS[3] opened  integer, server time in microseconds when the latch was last opened; has the TTL
--         of the mark
-- ARGV[1] TTL of the mark in ms
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, count left} decremented | {0, 0} there was no count | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it, decrements nothing and publishes
-- nothing (a 0 beside a positive count would make Redisson's waiters spin).
local answer = recorded_answer(KEYS[2], ARGV[3])
if answer then
  return answer
end
local left = redis.call('decrby', KEYS[1], 1)
if left <= 0 then
  redis.call('del', KEYS[1])
end
answer = remember(KEYS[2], ARGV[1], left < 0 and 0 or 1, math.max(left, 0))
if left == 0 then
  note_opening(KEYS[3], ARGV[1])
  redis.call('publish', ARGV[2], '0')
end
return answer
