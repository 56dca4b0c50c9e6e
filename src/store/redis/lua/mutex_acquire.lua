-- mutex_acquire: takes the lock for a holder, or returns how long it stays held. It may draw further
-- fencing tokens, for the threads of the client to which the hold passes without a request.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the last fencing token
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] hold count of the holder now; 0: an outermost acquire
-- ARGV[4] token rule: -1 gives none, 0 keeps the key without a TTL, else the TTL of a new key in ms
-- ARGV[5] how many tokens in a row are drawn, with the first one
-- ARGV[6] floor: a token below it is raised to the server's clock
-- ARGV[7] not-after: server time in microseconds past which an outermost acquire must not run; 0:
--         no limit
-- Returns {1, first token or 0} acquired
--         {0, pttl} held by another
--         {2, 0} the holder has lost it
--         {3, 0} too late
-- Repeat-safe: yes. The count is set, not incremented, and every outermost acquire has a fresh
-- holder, so a repeat finds its own field; it draws higher tokens, and no other holder had the lock
-- in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, tokens, floor, mode = KEYS[2], ARGV[4], ARGV[5], ARGV[6], nil
local not_after, names_holder = ARGV[7], false
local pttl = redis.call('pttl', lock)
