-- redlock_look: whether a master may vote; one that may not is marked, so that the time can be counted from a known state.
-- KEYS[1] node    hash, what this master must not forget
-- ARGV[1] run_id of the server process that the client is connected to
-- ARGV[2] a nonce, in case it has to be marked
-- Returns {1, max, ''} it may | {0, max, nonce} it may not, and the mark that stands there now; max: the highest token it
--         knows of, or an empty string when it remembers nothing at all
-- Repeat-safe: yes. A mark that stands is kept, unless another server process left it.
local memory = redis.call('hmget', KEYS[1], 'boot', 'max', 'pending')
local most = memory[2] or ''
if memory[1] == ARGV[1] then
  return {1, most, ''}
end
local pending = memory[3]
-- One that came back from disk is older than this process: nobody has waited since it was read.
if not pending or string.sub(pending, 1, #ARGV[1]) ~= ARGV[1] then
  pending = ARGV[2]
  redis.call('hset', KEYS[1], 'pending', pending)
end
return {0, most, pending}
