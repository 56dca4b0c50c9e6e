-- fair_hand_over: passes a fair lock from its holder to the first waiter, both of one client; or
-- changes nothing.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- KEYS[4] token      integer, the last fencing token
-- ARGV[1] holder, who gives up its hold whatever its count
-- ARGV[2] waiter
-- ARGV[3] lease of the waiter in ms
-- ARGV[4] token rule: -1 gives none, 0 keeps the key without a TTL, else the TTL of a new key in ms
-- ARGV[5] floor: a token below it is raised to the server's clock
-- ARGV[6] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, token or 0, head or nil} the waiter has the lock, and the next waiter
--         {0, 0} nothing was changed: release and acquire are to be sent instead
-- Repeat-safe: yes. The holder is never used again once it is removed, so a repeat finds no hold and
-- answers {0, 0}. The waiter learns from fair_acquire that it has the lock.
local lock, field, lease, held = KEYS[1], ARGV[2], ARGV[3], 0
local queue, deadlines, holder = KEYS[2], KEYS[3], ARGV[1]
local token_key, rule, floor = KEYS[4], ARGV[4], ARGV[5]
local first = redis.call('lrange', queue, 0, 1)
local next_up = first[2]
if first[1] ~= field or redis.call('hexists', lock, holder) == 0 or redis.call('hlen', lock) > 1
    or not redis.call('zscore', deadlines, field) then
  return {0, 0}
end
-- When a Redisson client is next or last, the deadlines of the queue or its TTL change as well,
-- which fair_acquire does. Redisson's client ids are UUIDs of version 4.
if next_up and (string.sub(next_up, 15, 15) ~= '8'
    or string.sub(redis.call('lindex', queue, -1), 15, 15) ~= '8') then
  return {0, 0}
end
if ARGV[6] ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[6]) then
    return {0, 0}
  end
end
