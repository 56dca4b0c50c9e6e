-- redlock_acquire: takes the lock at one of several masters for a holder, or returns how long it
-- stays held.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the last fencing token of this name
-- KEYS[3] node    hash, the vote state of this master: boot (the run_id that may vote), floor, max
--         (of all tokens)
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] hold count of the holder now; 0: an outermost acquire
-- ARGV[4] token rule: -1 gives none, 0 keeps the key without a TTL, else its TTL in ms
-- ARGV[5] the token that the client proposes
-- ARGV[6] run_id of the server process at the other end of the connection
-- ARGV[7] not-after: server time in microseconds past which an outermost acquire must not run; 0:
--         no limit
-- Returns {1, token or 0} acquired
--         {0, pttl, holder} held by another
--         {2, 0} the holder has lost it
--         {3, 0} too late
--         {5, 0} this master has no vote: it restarted, was flushed, or is new
-- Repeat-safe: yes. The count is set, not incremented, and every outermost acquire has a fresh
-- holder, so a repeat finds its own field; it gives a higher token, and no other holder had the
-- lock in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, proposal, mode = KEYS[2], ARGV[4], ARGV[5], nil
local not_after, names_holder, node = ARGV[7], true, KEYS[3]
local memory = redis.call('hmget', node, 'boot', 'floor', 'max')
-- Checked here and not in the client: a client that has not noticed the restart could count a vote
-- of a master that remembers nothing.
if memory[1] ~= ARGV[6] then
  return {5, 0}
end
local pttl = redis.call('pttl', lock)
