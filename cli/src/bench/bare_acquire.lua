-- bare_acquire: takes a lock for its owner and does nothing else; leasehold is compared with it.
-- KEYS[1] lock   string, the owner
-- ARGV[1] owner
-- ARGV[2] lease in ms
-- Returns 1 acquired
--         0 held by another
-- Repeat-safe: no. A caller that repeats it after a lost reply finds its own lock in the way.
return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) and 1 or 0
