-- permit_release: releases permits of a semaphore with leases.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- ARGV[1] id of the acquisition, 12 bytes
-- ARGV[2] number of permits
-- ARGV[3] channel
-- Returns {0, 0} not held, or not all of them any more
--         {2, receivers} released, and how many subscribers the message reached
-- Repeat-safe: yes. Only permits that are there are removed and counted, and the id is never used
-- again.
local count = tonumber(ARGV[2])
-- Raises an error before anything is removed that could not be added to the number.
number_at(KEYS[1])
local ended = tonumber(redis.call('zscore', KEYS[2], ARGV[1] .. struct.pack('>I4', 1)) or 0) <= millis()
local removed = remove(KEYS[2], ARGV[1], count)
if removed == 0 then
  return {0, 0}
end
local receivers = tell(ARGV[3], redis.call('incrby', KEYS[1], removed))
if ended or removed < count then
  return {0, 0}
end
return {2, receivers}
