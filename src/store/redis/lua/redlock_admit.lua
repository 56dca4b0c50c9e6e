-- redlock_admit: gives a master its vote, once no lock that it may have lost can still be held.
-- KEYS[1] node    hash, the vote state of this master
-- ARGV[1] run_id of the server process at the other end of the connection
-- ARGV[2] the mark of redlock_look at which the quarantine began
-- ARGV[3] floor: every later token is higher
-- Returns 1 it may vote
--         0 the mark has changed: the master was flushed again, or another client has admitted it
-- Repeat-safe: yes. The mark is gone after the first run.
local memory = redis.call('hmget', KEYS[1], 'pending', 'floor', 'max')
if memory[1] ~= ARGV[2] then
  return 0
end
local floor = tonumber(ARGV[3])
local least = string.format('%.0f', math.max(floor, tonumber(memory[2] or 0)))
-- The maximum is raised too: other masters take their floor from it after a restart.
local most = string.format('%.0f', math.max(floor, tonumber(memory[3] or 0)))
redis.call('hset', KEYS[1], 'boot', ARGV[1], 'floor', least, 'max', most)
redis.call('hdel', KEYS[1], 'pending')
return 1
