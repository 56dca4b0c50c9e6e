-- latch_count_down: count a latch down by one, and open it at zero.
-- KEYS[1] count   integer
-- KEYS[2] mark    string, the answer that this request was given
-- KEYS[3] opened  integer, the server's clock in microseconds when the latch was opened last; kept as long as the mark
-- ARGV[1] how long in ms the mark is kept
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run any more, 0 for no limit
-- Returns {1, what is left} counted | {0, 0} there was nothing to count down | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it, counts nothing and publishes nothing (a 0 beside a
-- positive count would make Java's waiters spin).
local answer = settled(KEYS[2], ARGV[3])
if answer then
  return answer
end
local left = redis.call('decrby', KEYS[1], 1)
if left <= 0 then
  redis.call('del', KEYS[1])
end
answer = remember(KEYS[2], ARGV[1], left < 0 and 0 or 1, math.max(left, 0))
if left == 0 then
  -- For those whose look comes when it has been set anew already.
  local time = redis.call('time')
  redis.call('set', KEYS[3], string.format('%.0f', time[1] * 1000000 + time[2]), 'px', ARGV[1])
  redis.call('publish', ARGV[2], '0')
end
return answer
