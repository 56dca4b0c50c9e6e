-- fair_acquire: takes a fair lock for a holder whose turn it is, or keeps its place in the queue.
-- KEYS[1] lock       hash, holder -> hold count
-- KEYS[2] queue      list of waiting holders, first come first
-- KEYS[3] deadlines  sorted set, waiting holder -> epoch ms after which it counts as dead
-- KEYS[4] token      integer, the last fencing token
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] hold count of the holder now; 0: an outermost acquire
-- ARGV[4] token rule: -1 gives none, 0 keeps the key without a TTL, else the TTL of a new key in ms
-- ARGV[5] how long in ms its place is kept without another attempt; 0: it does not wait
-- ARGV[6] 1: it has waited before, so it goes to the front if it is not in the queue any more
-- ARGV[7] how long in ms a Redisson waiter's place is kept, which it subtracts from every deadline
--         behind it when it leaves
-- ARGV[8] prefix of the waiters' channels
-- ARGV[9] floor: a token below it is raised to the server's clock
-- ARGV[10] not-after: server time in microseconds past which an outermost acquire must not run; 0:
--         no limit
-- Returns {1, token or 0} acquired
--         {0, ms until the lease ends} not its turn, and it has no place
--         {0, ms until the next attempt is due, 1 or 0} the same with a place; 1: it is new
--         {2, 0} the holder has lost it
--         {3, 0} too late
-- Repeat-safe: yes, as mutex_acquire. A holder is in the queue once, and an attempt only moves its
-- deadline. A waiter to whom fair_release gave the lock finds that it has it, and gets a token and
-- its lease.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, mode = KEYS[4], ARGV[4], ARGV[9], nil
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
  -- A lock has a TTL; a fenced value and most hashes of applications have none. The condition
  -- spares the waiters of a lock these commands.
  if pttl == -1 and not mine and not is_lock(lock) then
    return redis.error_reply('WRONGTYPE something other than a lock has this name')
  end
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local head, deadline, swept = live_head(KEYS[2], KEYS[3], ARGV[8], now, field)
  if not mine and (pttl ~= -2 or (head and head ~= field)) then
    local wait = tonumber(ARGV[5])
    local own_deadline = wait > 0 and redis.call('zscore', KEYS[3], field)
    -- It lost its place (suspended beyond its deadline, or the server lost data). Only heads are
    -- swept, so all waiters now in the queue came later.
    local is_first = ARGV[6] == '1' and not own_deadline
    if pttl ~= -2 or not is_first or is_before(head, field) then
      if swept and pttl == -2 then
        -- The swept heads got the release message and are dead. The waiter that is first now may
        -- sleep until their deadline, or for ever.
        redis.call('publish', ARGV[8] .. ':' .. head, '0')
      end
      if head and not is_foreign(head) and tonumber(deadline or own_deadline or 0) > now + own_wait(head) then
        catch_up(KEYS[2], KEYS[3], now, math.max(pttl, 0), 0, tonumber(ARGV[7]))
        deadline = deadline and now + own_wait(head)
      end
      if wait == 0 then
        return {0, pttl}
      end
      enqueue(KEYS[2], KEYS[3], field, now, wait, tonumber(ARGV[7]), is_first)
      -- While the lock is held: until its lease ends. While it is free: until the head counts as
      -- dead.
      local hint = pttl == -2 and (deadline or now - 1) - now or pttl
      if hint < 0 or hint > wait / 3 then
        hint = wait / 3
      end
      return {0, math.floor(hint), own_deadline and 0 or 1}
    end
  end
  if head == field then
    local own_deadline = tonumber(redis.call('zscore', KEYS[3], field) or 0)
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
    without_ttl(KEYS[2], KEYS[3])
    local next_up = redis.call('lindex', KEYS[2], 0)
    -- Redisson subtracts its own timeout from the deadlines of all other waiters. Leasehold waiters
    -- renew their own deadlines and do not need that.
    local excess = own_deadline - now - tonumber(lease)
    if excess > 0 and next_up and is_foreign(next_up) then
      catch_up(KEYS[2], KEYS[3], now, tonumber(lease), excess, tonumber(ARGV[7]))
    end
  end
  if mine then
    -- For lib/hold: the lease is set, also if it is shorter. A place lasts longer than some leases.
    pttl = -1
  end
end
