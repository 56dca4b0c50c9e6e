-- count_release: give permits of a counting semaphore back, or make sure that an acquisition in doubt takes none.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] mark    string, what has become of the acquisition: taken or back
-- ARGV[1] how many permits
-- ARGV[2] how long in ms the mark is kept
-- ARGV[3] channel
-- ARGV[4] 1 they are known to have been taken | 0 only the mark tells
-- Returns {0, 0} nothing was taken, or it is back already | {2, receivers} given back, and how many subscribers the
--         message reached
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and gives nothing back.
local mark = redis.call('get', KEYS[2])
local taken = mark == 'taken' or (not mark and ARGV[4] == '1')
if not taken then
  -- A mark in advance: the original, should it come late, is refused.
  redis.call('set', KEYS[2], 'back', 'px', ARGV[2])
  return {mark and ARGV[4] == '1' and 2 or 0, 0}
end
number_at(KEYS[1])
redis.call('set', KEYS[2], 'back', 'px', ARGV[2])
local free = redis.call('incrby', KEYS[1], ARGV[1])
if free > 0 then
  return {2, redis.call('publish', ARGV[3], string.format('%.0f', math.min(free, 2147483647)))}
end
return {2, 0}
