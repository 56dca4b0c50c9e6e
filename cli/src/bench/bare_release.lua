-- bare_release: frees the lock if the owner still has it.
-- KEYS[1] lock   string, the owner
-- ARGV[1] owner
-- Returns 1 freed
--         0 held by another, or free
-- Repeat-safe: yes. A repeat finds another owner or none.
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0
