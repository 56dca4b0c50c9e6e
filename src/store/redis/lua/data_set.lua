-- data_set: replaces the data of a holder, if it has the lock.
-- KEYS[1] data   hash, what the last holder with data has written
-- KEYS[2] lock   hash, holder -> hold count
-- ARGV[1] holder
-- ARGV[2] number of this change; each of the holder's has a higher one
-- ARGV[3] the data
-- Returns 1, or 0 if the holder does not have the lock
-- Repeat-safe: yes, and it may run late. Data with this number or a higher one is left.
if redis.call('hexists', KEYS[2], ARGV[1]) == 0 then
  return 0
end
keep_data(KEYS[1], redis.call('pttl', KEYS[2]), ARGV[1], ARGV[2], ARGV[3])
return 1
