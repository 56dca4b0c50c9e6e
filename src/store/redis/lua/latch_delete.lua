-- latch_delete: remove a latch and let everybody pass who waits for it.
-- KEYS[1] count   integer
-- KEYS[2] mark    string, the answer that this request was given
-- KEYS[3] opened  integer, the server's clock in microseconds when the latch was opened last; kept as long as the mark
-- ARGV[1] how long in ms the mark is kept
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run any more, 0 for no limit
-- Returns {1, 0} removed | {0, 0} there was none | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and removes nothing that was set in between.
local answer = settled(KEYS[2], ARGV[3])
if answer then
  return answer
end
if redis.call('exists', KEYS[1]) == 0 then
  return {0, 0}
end
number_at(KEYS[1])
redis.call('del', KEYS[1])
answer = remember(KEYS[2], ARGV[1], 1, 0)
-- For those whose look comes when it has been set anew already.
local time = redis.call('time')
redis.call('set', KEYS[3], string.format('%.0f', time[1] * 1000000 + time[2]), 'px', ARGV[1])
-- 1 alone, as Redisson sends it, wakes nobody; the 0 lets its waiters pass, and belongs into the script that removes
-- the count: later, beside a count set anew, it would make them spin.
redis.call('publish', ARGV[2], '1')
redis.call('publish', ARGV[2], '0')
return answer
