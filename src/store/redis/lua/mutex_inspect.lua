-- mutex_inspect: who holds the lock, how often, and for how long still.
-- KEYS[1] lock    hash, holder -> hold count
-- Returns {pttl, field, value, ...}; pttl is -2 when the lock is free, -1 when it would never expire
-- Repeat-safe: yes, it only reads.
local answer = redis.call('hgetall', KEYS[1])
table.insert(answer, 1, redis.call('pttl', KEYS[1]))
return answer
