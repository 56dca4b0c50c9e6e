-- rw_force_unlock: frees a read-write lock, whoever holds it, all readers included, and notifies
-- the waiters.
-- KEYS[1] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- ARGV[1] channel for the release message
-- ARGV[2] hash tag of the lock, the prefix of its timeout keys
-- Returns 1 it was held | 0 it was free | an error for what is no read-write lock, which is not
--         changed
-- Repeat-safe: no. A repeat after a lost reply could take the lock from its next holder; it is sent
-- once.
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode or not is_lock(KEYS[1], true) then
  return redis.error_reply('WRONGTYPE something other than a lock of this kind has this name')
end
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  for n = 1, tonumber(fields[i + 1]) or 0 do
    redis.call('del', ARGV[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
  end
end
redis.call('del', KEYS[1])
if mode == 'write' then
  redis.call('publish', ARGV[1], '1')
  -- rw_release says why.
  redis.call('publish', ARGV[1], '00')
else
  redis.call('publish', ARGV[1], '0')
end
return 1
