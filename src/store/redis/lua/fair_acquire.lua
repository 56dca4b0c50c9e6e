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
-- ARGV[7] a Java waiter's wait, which it takes from every deadline behind it when it leaves, in ms
-- ARGV[8] what the channel of each waiter begins with
-- ARGV[9] floor: a token below it is raised to the server's clock
-- ARGV[10] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0, head or nil} acquired, and who waits next | {0, ms until another try is due} not its turn
--         {2, 0} the holder had it and has lost it | {3, 0} too late
-- Repeat-safe: yes, as mutex_acquire. A holder stands in the queue once, and a try only moves its deadline.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, mode, next_up = KEYS[4], ARGV[4], ARGV[9], nil, nil
local pttl = redis.call('pttl', lock)
local mine = pttl ~= -2 and redis.call('hexists', lock, field) == 1
if held > 0 and not mine then
  return {2, 0}
end

if held == 0 then
  local time = redis.call('time')
  if ARGV[10] ~= '0' and time[1] * 1000000 + time[2] > tonumber(ARGV[10]) then
    return {3, 0}
  end
  if pttl ~= -2 and not mine and redis.call('hexists', lock, 'mode') == 1 then
    return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
  end
  -- Only where it costs nobody who waits for a lock another command: a fenced value has no TTL.
  if pttl == -1 and not mine and redis.call('hexists', lock, 'token') == 1 then
    return redis.error_reply('WRONGTYPE a fenced value stands under this name')
  end
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local head, deadline, swept = live_head(KEYS[2], KEYS[3], ARGV[8], now, field)
  if not mine and (pttl ~= -2 or (head and head ~= field)) then
    local wait = tonumber(ARGV[5])
    local standing = wait > 0 and redis.call('zscore', KEYS[3], field)
    -- It lost its place (suspended for longer than its deadline, or the server forgot). Only heads are swept, so whoever
    -- is in the queue now came later.
    local is_first = ARGV[6] == '1' and not standing
    if pttl ~= -2 or not is_first or is_before(head, field) then
      if swept and pttl == -2 then
        -- Those who were told that it is free are dead, and whoever is first now may sleep until their deadline, or for ever.
        redis.call('publish', ARGV[8] .. ':' .. head, '0')
      end
      if head and not is_foreign(head) and tonumber(deadline or standing or 0) > now + own_wait(head) then
        catch_up(KEYS[2], KEYS[3], now, math.max(pttl, 0), 0, tonumber(ARGV[7]))
        deadline = deadline and now + own_wait(head)
      end
      if wait == 0 then
        return {0, pttl}
      end
      line_up(KEYS[2], KEYS[3], field, now, wait, tonumber(ARGV[7]), is_first)
      -- While the lock is taken, until its lease ends; while it is free, until the head counts as dead.
      local hint = pttl == -2 and (deadline or now - 1) - now or pttl
      if hint < 0 or hint > wait / 3 then
        hint = wait / 3
      end
      return {0, math.floor(hint)}
    end
  end
  if head == field then
    local standing = tonumber(redis.call('zscore', KEYS[3], field) or 0)
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
    without_ttl(KEYS[2], KEYS[3])
    next_up = redis.call('lindex', KEYS[2], 0) or nil
    -- Redisson subtracts its own wait from the deadlines of all who stay. Among ours nobody needs that: each keeps its own.
    local excess = standing - now - tonumber(lease)
    if excess > 0 and next_up and is_foreign(next_up) then
      catch_up(KEYS[2], KEYS[3], now, tonumber(lease), excess, tonumber(ARGV[7]))
    end
  else
    next_up = head and redis.call('lindex', KEYS[2], 0) or nil
  end
end
