-- read_acquire: takes a read-write lock for reading, or returns how long it stays held.
-- KEYS[1] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- KEYS[2] marker  string, a leasehold writer waits for the readers to leave
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] hold count of the reader now; 0: an outermost acquire
-- ARGV[4] hash tag of the lock, the prefix of its timeout keys
-- ARGV[5] not-after: server time in microseconds past which an outermost acquire must not run; 0:
--         no limit
-- Returns {1, 0} acquired
--         {0, pttl} a writer holds it or waits for it
--         {2, 0} the holder has lost it
--         {3, 0} too late
-- Repeat-safe: yes. The count is set, not incremented, and so are the timeout keys, which are
-- numbered.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor = nil, '-1', nil
local level = ARGV[4] .. ':' .. field .. ':rwlock_timeout:'
local pttl = redis.call('pttl', lock)
local mode = pttl ~= -2 and redis.call('hget', lock, 'mode')
local count = mode and levels_in(redis.call('hget', lock, field)) or 0

if count == 0 then
  if held > 0 then
    -- After a downgrade of unknown outcome the holder may still be the writer, which excludes more
    -- than it needs to.
    if redis.call('hexists', lock, field .. ':write') == 0 then
      return {2, 0}
    end
    if pttl < tonumber(lease) then
      redis.call('pexpire', lock, lease)
    end
    return {1, 0}
  end
  if pttl ~= -2 and not mode then
    return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
  end
  -- Joining adds a field and a TTL, and the last reader deletes the hash. A lock has a TTL; with one
  -- and more than a few fields it is taken for a lock, because looking at all of them would cost
  -- the square of the number of readers.
  if mode and (pttl == -1 or mode ~= 'write' and redis.call('hlen', lock) <= 16) and not is_lock(lock, true) then
    return redis.error_reply('WRONGTYPE something other than a lock has this name')
  end
  if mode == 'write' then
    return {0, pttl}
  end
  -- Even while the lock is free: the writer has not come yet, and readers must not always be first.
  local waiting = redis.call('pttl', KEYS[2])
  if waiting > 0 then
    return {0, waiting}
  end
  if ARGV[5] ~= '0' then
    local time = redis.call('time')
    if time[1] * 1000000 + time[2] > tonumber(ARGV[5]) then
      return {3, 0}
    end
  end
end

mode = mode or 'read'
-- After the reply to an inner release was lost, there may be more timeout keys than the client
-- knows of. The longest of their TTLs is still promised.
local longest = tonumber(lease)
for n = held + 1, count do
  longest = math.max(longest, redis.call('pttl', level .. n))
end
redis.call('set', level .. (held + 1), '1', 'px', longest)
for n = held + 2, count do
  redis.call('del', level .. n)
end
