-- count_release: releases permits of a counting semaphore, or makes sure that an acquisition of
-- unknown outcome takes none.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] mark    string, state of the acquisition: taken or back
-- ARGV[1] number of permits
-- ARGV[2] TTL of the mark in ms
-- ARGV[3] channel
-- ARGV[4] 1: the permits are known to be taken; 0: only the mark says whether they are
-- Returns {0, 0} nothing was taken, or it was released already
--         {2, receivers} released, and how many subscribers the message reached
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and releases nothing.
local mark = redis.call('get', KEYS[2])
local taken = mark == 'taken' or (not mark and ARGV[4] == '1')
if taken then
  number_at(KEYS[1])
end
-- Comes first: a full server refuses SET and INCRBY only as the first change of a script.
redis.call('pexpire', KEYS[2], ARGV[2])
-- The mark also refuses an acquisition that arrives after this.
redis.call('set', KEYS[2], 'back', 'px', ARGV[2])
if not taken then
  return {mark and ARGV[4] == '1' and 2 or 0, 0}
end
local free = redis.call('incrby', KEYS[1], ARGV[1])
if free > 0 then
  return {2, redis.call('publish', ARGV[3], string.format('%.0f', math.min(free, 2147483647)))}
end
return {2, 0}
