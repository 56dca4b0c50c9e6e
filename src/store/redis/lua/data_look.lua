-- data_look: returns what the last holder with data has written.
-- KEYS[1] data   hash, what the last holder with data has written
-- KEYS[2] lock   hash, holder -> hold count
-- Returns {holder, data, how many ms ago it ended}; -1: it has the lock; {0} if there is none
-- Repeat-safe: yes, it only reads.
local holder = redis.call('hget', KEYS[1], 'holder')
if not holder then
  return {0}
end
local ended = -1
if redis.call('hexists', KEYS[2], holder) == 0 then
  ended = math.max(now_ms() - (tonumber(redis.call('hget', KEYS[1], 'until')) or 0), 0)
end
return {holder, redis.call('hget', KEYS[1], 'data'), ended}
