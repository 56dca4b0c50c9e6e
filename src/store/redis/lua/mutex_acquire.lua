-- mutex_acquire: take the lock for a holder, or say how long it stays taken.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the fencing token given last
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else the TTL of a new key in ms
-- ARGV[5] floor: a token below it is raised to the server's clock
-- ARGV[6] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} acquired | {0, pttl} held by another | {2, 0} the holder had it and has lost it | {3, 0} too late
-- Repeat-safe: yes. The count is set, not added to, and the holder is fresh for every outermost call, so a repeat finds
-- its own field; a repeated outermost acquire gives a higher token, and nobody was given the lock in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, mode, next_up = KEYS[2], ARGV[4], ARGV[5], nil, nil
local not_after, names_holder = ARGV[6], false
local pttl = redis.call('pttl', lock)
