-- mutex_inspect: returns the holders of the lock with their hold counts, and its TTL.
-- KEYS[1] lock    hash, holder -> hold count
-- Returns {pttl, field, value, ...}; pttl is -2 if the lock is free, -1 if it has no TTL
--         an error for a hash that is larger than any lock
-- Repeat-safe: yes, it only reads.
if redis.call('hlen', KEYS[1]) > 100000 then
  return redis.error_reply('WRONGTYPE something other than a lock has this name')
end
local answer = redis.call('hgetall', KEYS[1])
table.insert(answer, 1, redis.call('pttl', KEYS[1]))
return answer
