-- data_acquire: mutex_acquire, for a holder that has data, which is written with the grant.
-- KEYS[1] data   hash, what the last holder with data has written
-- KEYS[2] lock   hash, holder -> hold count: the first key of mutex_acquire; its others follow
-- ARGV[1] the data
-- ARGV[2] 1: an outermost acquire, the only one that writes it; otherwise 0
-- ARGV[3] holder: the first argument of mutex_acquire; its others follow
-- Returns what mutex_acquire returns, or an error if something else has the name of the data
-- Repeat-safe: yes, as mutex_acquire. The data of its own holder is not written again.
local data, lock, text, outermost, holder = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
-- lib/data_granted, behind this, runs mutex_acquire.
