-- latch_delete: removes a latch and releases all waiters.
-- KEYS[1] count   integer
-- KEYS[2] mark    string, the reply that this request got (idempotency key)
-- KEYS[3] opened  integer, server time in microseconds when the latch was last opened; has the TTL
--         of the mark
-- ARGV[1] TTL of the mark in ms
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} removed | {0, 0} there was none | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and does not remove a count that was
-- set in between.
local answer = recorded_answer(KEYS[2], ARGV[3])
if answer then
  return answer
end
if redis.call('exists', KEYS[1]) == 0 then
  return {0, 0}
end
number_at(KEYS[1])
redis.call('del', KEYS[1])
answer = remember(KEYS[2], ARGV[1], 1, 0)
note_opening(KEYS[3], ARGV[1])
-- Redisson sends only the 1, which wakes no waiter. The 0 releases its waiters. It must be sent by
-- the script that removes the count: later, beside a new count, it would make them spin.
redis.call('publish', ARGV[2], '1')
redis.call('publish', ARGV[2], '0')
return answer
