-- fair_force_unlock: frees a fair lock, whoever holds it, and notifies the head of the queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- ARGV[1] prefix of the waiters' channels
-- Returns 1 it was held | 0 it was free | an error for what is no plain lock, which is not changed
-- Repeat-safe: no. A repeat after a lost reply could take the lock from its next holder; it is sent
-- once.
local time = redis.call('time')
local head = live_head(KEYS[2], KEYS[3], ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('del', KEYS[1])
if head then
  redis.call('publish', ARGV[1] .. ':' .. head, '0')
end
return 1
