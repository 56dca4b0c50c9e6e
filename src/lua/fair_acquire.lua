-- fair_acquire: take a fair lock for a holder whose turn it is, or keep its place in the queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- KEYS[4] token      integer, the fencing token given last
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else the TTL of a new key in ms
-- ARGV[5] own wait: how long in ms its place is kept without another try, 0 for one who does not wait
-- ARGV[6] 1 it has waited before, and so belongs to the front if it is not in the queue any more
-- ARGV[7] floor: a token below it is raised to the server's clock
-- ARGV[8] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} acquired | {0, ms until another try is due} not its turn | {2, 0} the holder had it and has
--         lost it | {3, 0} too late
-- Repeat-safe: yes, as mutex_acquire. A holder stands in the queue once, and a try only moves its deadline.
local held = tonumber(ARGV[3])
local pttl = redis.call('pttl', KEYS[1])
local mine = pttl ~= -2 and redis.call('hexists', KEYS[1], ARGV[1]) == 1

if held > 0 then
  if not mine then
    return {2, 0}
  end
  return take(KEYS[1], ARGV[2], pttl, ARGV[1], held + 1) or {1, 0}
end
if is_late(ARGV[8]) then
  return {3, 0}
end
if pttl ~= -2 and not mine and redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply(ANOTHER_KIND)
end

local now = millis()
local head, deadline = live_head(KEYS[2], KEYS[3], now)
local again = ARGV[6] == '1'
-- It lost its place (suspended for longer than its deadline, or the server forgot). Only heads are swept, so whoever is
-- in the queue now came later.
local is_first = again and not redis.call('zscore', KEYS[3], ARGV[1])
if mine or (pttl == -2 and (not head or head == ARGV[1] or is_first)) then
  local answer = grant(0, KEYS[4], ARGV[4], ARGV[7], ARGV[8], KEYS[1], ARGV[2], pttl, ARGV[1], 1)
  -- Redisson subtracts its own wait from the deadlines of all who stay; we leave them as they are, because ours are
  -- kept alive by their waiters.
  if answer[1] == 1 and head == ARGV[1] then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], ARGV[1])
    without_ttl(KEYS[2], KEYS[3])
  end
  return answer
end

local wait = tonumber(ARGV[5])
if wait == 0 then
  return {0, pttl}
end

-- A Java waiter subtracts 300 s from every deadline behind it when its turn comes, and one that dies holds its place
-- for as long as its own deadline says: ours must outlast both.
local FOREIGN_WAIT = 300000
local own, behind, queued = now + wait, 0, false
for _, waiter in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
  if waiter == ARGV[1] then
    queued = true
    break
  end
  -- Our client ids are UUIDs of version 8, Java's of version 4.
  if string.sub(waiter, 15, 15) ~= '8' then
    own = own + FOREIGN_WAIT
    behind = math.max(behind, tonumber(redis.call('zscore', KEYS[3], waiter) or 0))
  end
end
if is_first then
  own, behind = now + wait, 0
end
if behind > 0 then
  own = math.max(own, behind + wait)
end
redis.call('zadd', KEYS[3], string.format('%.0f', own), ARGV[1])
if not queued then
  redis.call(is_first and 'lpush' or 'rpush', KEYS[2], ARGV[1])
end
local last = redis.call('zrange', KEYS[3], -1, -1, 'withscores')[2]
local gone = string.format('%.0f', tonumber(last) + 600000)
redis.call('pexpireat', KEYS[2], gone)
redis.call('pexpireat', KEYS[3], gone)

-- While the lock is taken, until its lease ends; while it is free, until the head counts as dead.
local hint = pttl
if pttl == -2 then
  hint = (deadline or now) - now
end
if hint < 0 or hint > wait / 3 then
  hint = wait / 3
end
return {0, math.floor(hint)}
