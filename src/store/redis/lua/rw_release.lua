-- rw_release: lowers the hold counts of a read-write lock; without holders the lock is freed. Also
-- downgrades from writing to reading, and removes the marker of a writer that gives up waiting.
-- KEYS[1] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- KEYS[2] marker  string, a leasehold writer waits for the readers to leave
-- ARGV[1] holder
-- ARGV[2] write hold count that stays
-- ARGV[3] read hold count that stays
-- ARGV[4] channel for the messages: 0 when a reader frees the lock, 1 and 00 when a writer frees or
--         downgrades it, 1 when a waiting writer gives up
-- ARGV[5] hash tag of the lock, the prefix of its timeout keys
-- Returns {0, 0} not held (after a lost reply: an earlier run released it)
--         {1, 0} hold counts stay, or other readers do, or fields that no lock has
--         {2, receivers} freed or downgraded, and how many subscribers the message reached
-- Repeat-safe: yes. The counts are those that stay, and the holder is never used again once it is
-- removed.
local writer = ARGV[1] .. ':write'
local writes, reads = tonumber(ARGV[2]), tonumber(ARGV[3])
local writing = redis.call('hexists', KEYS[1], writer) == 1
local count = levels_in(redis.call('hget', KEYS[1], ARGV[1]))

local function level(holder, n)
  return ARGV[5] .. ':' .. holder .. ':rwlock_timeout:' .. n
end

-- The longest TTL of a reader's timeout keys.
local function longest(holder, levels)
  local most = 0
  for n = 1, levels do
    local pttl = redis.call('pttl', level(holder, n))
    if pttl == -2 then
      -- While the slot moves, the key may be at the other node, and its reader alive. A node refuses
      -- a command that names such a key beside one that it has.
      redis.call('exists', KEYS[1], level(holder, n))
    end
    most = math.max(most, pttl)
  end
  return most
end

if not writing and (count == 0 or writes > 0) then
  if writes + reads == 0 and redis.call('get', KEYS[2]) == ARGV[1] then
    -- It stops waiting: readers may go on, and another waiting writer sets the marker again.
    redis.call('del', KEYS[2])
    redis.call('publish', ARGV[4], '1')
  end
  return {0, 0}
end

if writes + reads > 0 then
  -- No holder has this id, so it removes nothing. A full server refuses HSET and SET only as the
  -- first change of a script.
  redis.call('hdel', KEYS[1], '')
end
if writes > 0 then
  redis.call('hset', KEYS[1], writer, writes)
  return {1, 0}
end

if reads > 0 then
  -- The remaining timeout key gets the longest TTL; otherwise the next release by any reader would
  -- cut the lock's TTL below what this holder was promised.
  local ttl = math.max(writing and redis.call('pttl', KEYS[1]) or longest(ARGV[1], count), 1)
  for n = 1, reads do
    if n == reads or n > count then
      redis.call('set', level(ARGV[1], n), '1', 'px', ttl)
    end
  end
  -- Before the counts change: if a key has just moved to another node, the next run does it again.
  for n = reads + 1, count do
    redis.call('del', level(ARGV[1], n))
  end
  redis.call('hset', KEYS[1], 'mode', writing and 'read' or redis.call('hget', KEYS[1], 'mode'), ARGV[1], reads)
  if not writing then
    return {1, 0}
  end
  redis.call('hdel', KEYS[1], writer)
else
  -- Read before anything is written, as `longest` may fail: the next run must still find the holder.
  local ttl, others, is_foreign = 0, redis.call('hgetall', KEYS[1]), false
  for i = 1, #others, 2 do
    if others[i] == writer or others[i] == ARGV[1] or others[i] == 'mode' then
      -- Its own.
    elseif is_hold(others[i], others[i + 1]) then
      ttl = math.max(ttl, longest(others[i], tonumber(others[i + 1])))
    else
      is_foreign = true
    end
  end
  for n = 1, count do
    redis.call('del', level(ARGV[1], n))
  end
  redis.call('hdel', KEYS[1], writer, ARGV[1])
  -- An application has written to the hash, and only it knows when that may be deleted.
  if is_foreign then
    return {1, 0}
  end
  if ttl > 0 then
    redis.call('pexpire', KEYS[1], ttl)
    return {1, 0}
  end
  -- No holder is left, or only readers whose leases have ended.
  redis.call('del', KEYS[1])
end

local receivers = redis.call('publish', ARGV[4], writing and '1' or '0')
if writing and receivers > 0 then
  -- 1 wakes the Redisson waiters that sleep. One that was refused and does not sleep yet would miss
  -- it and sleep for a lease; Redisson keeps a 0 for it. Leasehold's subscribers ignore the
  -- spelling 00.
  redis.call('publish', ARGV[4], '00')
end
return {2, receivers}
