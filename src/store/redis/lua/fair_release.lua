-- fair_release: gives up one hold count of a fair lock, and with the last one frees it and notifies
-- the head of the queue; or leaves the queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- ARGV[1] holder
-- ARGV[2] hold count of the holder now; 1 removes the hold, whatever count is in Redis
-- ARGV[3] prefix of the waiters' channels
-- Returns {0, 0} not held (after a lost reply: an earlier run released it; or it only waited)
--         {1, 0} one hold count given up
--         {2, receivers, head or nil} freed, how many subscribers the message reached, and the next
--           holder
-- Repeat-safe: yes. The count is set, not decremented, and the holder is never used again once it
-- is removed.
local waited, was_head = 0, false
-- lib/release_level, in front, has handled a count ARGV[2] above 1. A holder of the lock has left
-- the queue. If something else has the lock's name by now (pcall), the place in the queue must be
-- removed all the same.
-- Counted before: while its slot moves, no command may name a key that the script has deleted.
local holders = redis.pcall('hlen', KEYS[1])
local freed = redis.pcall('hdel', KEYS[1], ARGV[1])
if freed ~= 1 then
  waited = redis.call('zrem', KEYS[3], ARGV[1])
end
if waited == 1 then
  was_head = redis.call('lindex', KEYS[2], 0) == ARGV[1]
  local is_alone = not redis.call('lindex', KEYS[2], 1)
  redis.call('lrem', KEYS[2], 1, ARGV[1])
  if not is_alone then
    without_ttl(KEYS[2], KEYS[3])
  end
end
if type(freed) == 'table' then
  return freed
end
if freed + waited == 0 then
  return {0, 0}
end
local status = freed == 1 and 2 or 0
-- If the count was refused, a message too many does no harm.
if type(holders) == 'number' and holders > freed then
  return {status, 0}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head, _, swept = live_head(KEYS[2], KEYS[3], ARGV[3], now)
-- A release notifies the head only. A head that leaves may have been notified already, so it passes
-- the message on. A waiter from the middle of the queue has nothing to pass on: if 200 gave up
-- while the head wakes up, it would get 200 messages. But if dead heads were swept, one of them got
-- the message.
if not head or not (freed == 1 or was_head or swept) then
  return {status, 0}
end
return {status, redis.call('publish', ARGV[3] .. ':' .. head, '0'), head}
