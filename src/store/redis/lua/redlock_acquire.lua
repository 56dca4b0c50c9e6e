-- redlock_acquire: the vote of one master of several: take the lock there for a holder, or say how long it stays taken.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the fencing token given last for this name
-- KEYS[3] node    hash, what this master must not forget: boot (the run_id that may vote), floor, max (of all tokens)
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else its TTL in ms
-- ARGV[5] the token that the client proposes
-- ARGV[6] run_id of the server process that the client is connected to
-- ARGV[7] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} a vote for the holder | {0, pttl, holder} held by another | {2, 0} the holder had it and has lost
--         it | {3, 0} too late | {5, 0} this master has no vote: it restarted, was flushed, or is new
-- Repeat-safe: yes. The count is set, not added to, and the holder is fresh for every outermost call, so a repeat finds
-- its own field; a repeated outermost acquire gives a higher token, and nobody was given the lock in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, proposal, mode, next_up = KEYS[2], ARGV[4], ARGV[5], nil, nil
local not_after, names_holder, node = ARGV[7], true, KEYS[3]
local memory = redis.call('hmget', node, 'boot', 'floor', 'max')
-- Checked here and not in the client: a client that has not noticed the restart could count a vote of a master that
-- remembers nothing.
if memory[1] ~= ARGV[6] then
  return {5, 0}
end
local pttl = redis.call('pttl', lock)
