-- fair_keep: gives up the last hold count of a fair lock, and leaves the lock taken for a time. The
-- head of the queue is notified: the end that it knows of is out of date. It keeps its place.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- ARGV[1] holder
-- ARGV[2] field of the lock while it is kept
-- ARGV[3] for how long in ms
-- ARGV[4] prefix of the waiters' channels
-- Returns {0, 0} not held
--         {1, receivers} kept, and how many subscribers the message reached
-- Repeat-safe: yes. A repeat finds the other field, only ever shortens the TTL, and notifies nobody
-- unless it does.
local kept = keep(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if kept < 2 then
  return {kept, 0}
end
local time = redis.call('time')
local head = live_head(KEYS[2], KEYS[3], ARGV[4], time[1] * 1000 + math.floor(time[2] / 1000))
return {1, head and redis.call('publish', ARGV[4] .. ':' .. head, '0') or 0}
