-- fair_release: give up one level of a hold of a fair lock, the last one waking the head of the queue; or leave the
-- queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- ARGV[1] holder
-- ARGV[2] the count this holder has now; 1 removes the hold whatever count stands in Redis
-- ARGV[3] what the channel of each waiter begins with
-- Returns {0, 0} not held (after a lost reply: an earlier run worked; or it only waited) | {1, 0} one level given up
--         {2, receivers, head or nil} freed, who is to take it, and how many subscribers its message reached
-- Repeat-safe: yes. The count is set, not subtracted from, and the holder is never used again once it is removed.
local waited, was_head = 0, false
-- lib/release_level, in front, has handled a count ARGV[2] above 1. A holder of the lock has left the queue. If something
-- else has the lock's name by now (pcall), the place in the queue must be removed all the same.
local freed = redis.pcall('hdel', KEYS[1], ARGV[1])
if freed ~= 1 then
  waited = redis.call('zrem', KEYS[3], ARGV[1])
end
if waited == 1 then
  was_head = redis.call('lindex', KEYS[2], 0) == ARGV[1]
  redis.call('lrem', KEYS[2], 1, ARGV[1])
  without_ttl(KEYS[2], KEYS[3])
end
if type(freed) == 'table' then
  return freed
end
if freed + waited == 0 then
  return {0, 0}
end
local status = freed == 1 and 2 or 0
if redis.call('exists', KEYS[1]) == 1 then
  return {status, 0}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head, _, swept = live_head(KEYS[2], KEYS[3], ARGV[3], now)
-- A release tells the head only. Whoever leaves as the head may have been told already, and its word must not leave with it.
-- One from the middle has nothing to pass on: with 200 that give up while the head wakes up, it would get 200 messages. But
-- where dead heads stood in front, the word went to one of them.
if not head or not (freed == 1 or was_head or swept) then
  return {status, 0}
end
return {status, redis.call('publish', ARGV[3] .. ':' .. head, '0'), head}
