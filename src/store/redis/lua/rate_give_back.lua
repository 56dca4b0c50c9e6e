-- rate_give_back: frees the permits of an acquisition of unknown outcome, if it took them.
-- KEYS[1] limiter  hash: rate, interval in ms, type (1: each client has a rate of its own)
-- KEYS[2] free     integer, the permits that are free
-- KEYS[3] taken    sorted set, acquisition with its number of permits -> epoch ms at which it was
-- ARGV[1] id of the acquisition, 12 bytes
-- ARGV[2] number of permits
-- Returns {0, 0} nothing was taken, or it is free again | {2, 0} freed
-- Repeat-safe: yes: a repeat finds no entry.
local rate = limiter_at(KEYS[1])
local free = number_at(KEYS[2])
-- Comes first: a full server refuses INCRBY only as the first change of a script.
if redis.call('zrem', KEYS[3], entry_of(ARGV[1], tonumber(ARGV[2]))) == 0 then
  return {0, 0}
end
if rate and free then
  -- Redisson's release may have freed them before.
  local more = tonumber(ARGV[2])
  if free + more > rate then
    more = rate - taken_by(KEYS[3]) - free
  end
  redis.call('incrby', KEYS[2], string.format('%.0f', more))
end
return {2, 0}
