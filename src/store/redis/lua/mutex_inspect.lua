-- mutex_inspect: returns the holders of the lock with their hold counts, its TTL, and the data of
-- the holder.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] data    hash, what the last holder with data has written
-- Returns {pttl, data or nil, field, value, ...}; pttl is -2 if the lock is free, -1 if it has no
--         TTL
--         an error for a hash that is larger than any lock
-- Repeat-safe: yes, it only reads.
if redis.call('hlen', KEYS[1]) > 100000 then
  return redis.error_reply('WRONGTYPE something other than a lock has this name')
end
local answer = redis.call('hgetall', KEYS[1])
-- Only while its writer has the lock.
local data = answer[1] and redis.pcall('hget', KEYS[2], 'holder') == answer[1]
table.insert(answer, 1, redis.call('pttl', KEYS[1]))
table.insert(answer, 2, data and redis.call('hget', KEYS[2], 'data') or false)
return answer
