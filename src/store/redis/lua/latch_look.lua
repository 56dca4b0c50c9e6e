-- latch_look: what is left to count, and when the latch was opened last.
-- KEYS[1] count   integer
-- KEYS[2] opened  integer, the server's clock in microseconds when the latch was opened last, if one of ours did that lately
-- Returns {count, opened}, 0 for what is not there
-- Repeat-safe: yes, it only reads.
return {number_at(KEYS[1]) or 0, tonumber(redis.call('get', KEYS[2]) or 0) or 0}
