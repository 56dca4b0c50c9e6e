-- latch_look: returns the count that is left, and when the latch was last opened.
-- KEYS[1] count   integer
-- KEYS[2] opened  integer, server time in microseconds when a leasehold client last opened the
--         latch
-- Returns {count, opened}, 0 for a key that is not there
-- Repeat-safe: yes, it only reads.
return {number_at(KEYS[1]) or 0, tonumber(redis.call('get', KEYS[2]) or 0) or 0}
