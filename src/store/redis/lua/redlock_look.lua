-- redlock_look: returns whether a master may vote; one that may not is marked, and its quarantine
-- begins with the mark.
-- KEYS[1] node    hash, the vote state of this master
-- ARGV[1] run_id of the server process at the other end of the connection
-- ARGV[2] a nonce for the mark
-- Returns {1, max, ''} it may
--         {0, max, mark} it may not; max: the highest token it knows, or an empty string if it has
--           no data
-- Repeat-safe: yes. A mark is kept, unless it is of another server process.
local memory = redis.call('hmget', KEYS[1], 'boot', 'max', 'pending')
local most = memory[2] or ''
if memory[1] == ARGV[1] then
  return {1, most, ''}
end
local pending = memory[3]
-- A mark that was loaded from disk is older than this process: the quarantine must begin again.
if not pending or string.sub(pending, 1, #ARGV[1]) ~= ARGV[1] then
  pending = ARGV[2]
  redis.call('hset', KEYS[1], 'pending', pending)
end
return {0, most, pending}
