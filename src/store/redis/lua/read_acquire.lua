-- read_acquire: take a read-write lock for reading, or say how long it stays taken.
-- KEYS[1] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- KEYS[2] marker  string, a writer of ours waits for readers to leave
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this reader has now, 0 for an outermost acquire
-- ARGV[4] what the keys of the levels begin with: the hash tag of the lock
-- ARGV[5] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, 0} acquired | {0, pttl} a writer has it or waits for it | {2, 0} the holder had it and has lost it
--         {3, 0} too late
-- Repeat-safe: yes. The count is set, not added to, and with it the keys of the levels, which are named by number.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, next_up = nil, '-1', nil, nil
local level = ARGV[4] .. ':' .. field .. ':rwlock_timeout:'
local pttl = redis.call('pttl', lock)
local mode = pttl ~= -2 and redis.call('hget', lock, 'mode')
local count = mode and tonumber(redis.call('hget', lock, field) or 0) or 0

if count == 0 then
  if held > 0 then
    -- A downgrade in doubt: the holder may still stand there as a writer, which excludes more than it needs.
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
  if mode == 'write' then
    return {0, pttl}
  end
  -- Also while the lock is free: the writer has yet to come, and readers must not always be there first.
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
-- More levels than its client knows of stand after an inner release that was lost: the longest is promised still.
local longest = tonumber(lease)
for n = held + 1, count do
  longest = math.max(longest, redis.call('pttl', level .. n))
end
redis.call('set', level .. (held + 1), '1', 'px', longest)
for n = held + 2, count do
  redis.call('del', level .. n)
end
