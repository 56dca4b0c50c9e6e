-- data_ask: asks the holder with data for the lock: its next renewal learns of it.
-- KEYS[1] data   hash, what the last holder with data has written
-- KEYS[2] lock   hash, holder -> hold count
-- Returns 1, or 0 if nobody with data has the lock
-- Repeat-safe: yes. A repeat asks again.
local holder = redis.call('hget', KEYS[1], 'holder')
if not holder or redis.call('hexists', KEYS[2], holder) == 0 then
  return 0
end
redis.call('hset', KEYS[1], 'asked', string.format('%.0f', now_ms()))
return 1
