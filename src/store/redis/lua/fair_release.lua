-- fair_release: gives up one hold count of a fair lock, and with the last one gives the lock to the
-- head of the queue, or frees it and notifies the head; or leaves the queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- KEYS[4] token      integer, the last fencing token
-- ARGV[1] holder
-- ARGV[2] hold count of the holder now; 1 removes the hold, whatever count is in Redis
-- ARGV[3] prefix of the waiters' channels
-- ARGV[4] 1: the hold has a fencing token, so the next one gets one; otherwise 0
-- ARGV[5] floor: a lower token is not given
-- Returns {0, 0} not held (after a lost reply: an earlier run released it; or it only waited)
--         {1, 0} one hold count given up
--         {2, receivers} freed, and how many subscribers the message reached
--         {0, receivers, head} it only waited, and passed on whose turn it is
--         {2, receivers, head} the same, and whom the message told that the lock is free
--         {2, receivers, head, token or 0} given to the head for as long as its place lasts
-- Repeat-safe: yes. The count is set, not decremented, and the holder is never used again once it
-- is removed.
local lock, queue, deadlines, holder, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[3]
-- lib/release_level, in front, has handled a count ARGV[2] above 1. A holder of the lock has left
-- the queue. If something else has the lock's name by now (pcall), the place in the queue must be
-- removed all the same.
-- Counted before: while its slot moves, no command may name a key that the script has deleted.
local holders = redis.pcall('hlen', lock)
if holders == 1 and redis.call('hexists', lock, holder) == 1 then
  if not redis.call('lindex', queue, 0) then
    redis.call('hdel', lock, holder)
    return {2, 0}
  end
  local time = redis.call('time')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local head, deadline = live_head(queue, deadlines, channel, now)
  -- Only dead waiters were in the queue, although the deadlines had a live one.
  if not head then
    redis.call('hdel', lock, holder)
    return {2, 0}
  end
  -- With a Redisson waiter next or last, a grant changes the deadlines of the queue or its TTL as
  -- well, which fair_acquire does. A short place could end before its waiter wakes up.
  local last = redis.call('lindex', queue, -1)
  local behind = redis.call('lindex', queue, 1) or head
  local place = own_wait(head)
  if is_foreign(head) or is_foreign(behind) or is_foreign(last) or deadline <= now or place < 2000
    or place == math.huge then
    redis.call('hdel', lock, holder)
    return {2, redis.call('publish', channel .. ':' .. head, '0'), head}
  end
  -- The TTL comes first: should it be refused, nothing has been changed; and a full server refuses
  -- HSET and INCR only as the first change of a script. It is the whole time of a place, from now:
  -- the waiter counts its lease from the last request that was answered, which was before.
  redis.call('pexpire', lock, place)
  local token = 0
  if ARGV[4] == '1' then
    -- Any trouble with the token is for fair_acquire, which the waiter then sends.
    local drawn = redis.pcall('incr', KEYS[4])
    if drawn == 1 then
      redis.pcall('del', KEYS[4])
    elseif type(drawn) == 'number' and drawn >= tonumber(ARGV[5]) and drawn < 9007199254740992 then
      token = drawn
    end
  end
  redis.call('hset', lock, head, '1')
  redis.call('hdel', lock, holder)
  redis.call('lpop', queue)
  redis.call('zrem', deadlines, head)
  -- The publish comes last, because Redis does not roll back earlier commands when it is refused.
  local message = string.format('grant:%.0f', token)
  return {2, redis.call('publish', channel .. ':' .. head, message), head, token}
end
local freed = redis.pcall('hdel', lock, holder)
local waited, was_head = 0, false
if freed ~= 1 then
  waited = redis.call('zrem', deadlines, holder)
end
if waited == 1 then
  was_head = redis.call('lindex', queue, 0) == holder
  local is_alone = not redis.call('lindex', queue, 1)
  redis.call('lrem', queue, 1, holder)
  if not is_alone then
    without_ttl(queue, deadlines)
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
local head, _, swept = live_head(queue, deadlines, channel, now)
-- A release notifies the head only. A head that leaves may have been notified already, so it passes
-- the message on. A waiter from the middle of the queue has nothing to pass on: if 200 gave up
-- while the head wakes up, it would get 200 messages. But if dead heads were swept, one of them got
-- the message.
if not head or not (freed == 1 or was_head or swept) then
  return {status, 0}
end
return {status, redis.call('publish', channel .. ':' .. head, '0'), head}
