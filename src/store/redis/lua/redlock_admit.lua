-- redlock_admit: give a master its vote, now that nothing it may have forgotten can still count.
-- KEYS[1] node    hash, what this master must not forget
-- ARGV[1] run_id of the server process that the client is connected to
-- ARGV[2] the mark (redlock_look) from which on the time was counted
-- ARGV[3] floor: every token from here on is higher
-- Returns 1 it may vote | 0 the mark is another: it was emptied again meanwhile, or somebody else has admitted it
-- Repeat-safe: yes. The mark is gone after the first run.
local memory = redis.call('hmget', KEYS[1], 'pending', 'floor', 'max')
if memory[1] ~= ARGV[2] then
  return 0
end
local floor = tonumber(ARGV[3])
local least = string.format('%.0f', math.max(floor, tonumber(memory[2] or 0)))
-- Raised as well: it is what the next master that restarts takes as its floor.
local most = string.format('%.0f', math.max(floor, tonumber(memory[3] or 0)))
redis.call('hset', KEYS[1], 'boot', ARGV[1], 'floor', least, 'max', most)
redis.call('hdel', KEYS[1], 'pending')
return 1
