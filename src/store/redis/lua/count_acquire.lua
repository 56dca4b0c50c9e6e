-- count_acquire: takes permits of a counting semaphore, all of them or none.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] mark    string, state of this acquisition: taken or back
-- ARGV[1] number of permits
-- ARGV[2] TTL of the mark in ms
-- ARGV[3] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} taken
--         {0, -1} too few are free
--         {2, 0} they were released already
--         {3, 0} too late
--         {4, 0} there is none: nobody has set its permits
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and takes nothing, and the mark is kept
-- for as long again.
local mark = redis.call('get', KEYS[2])
if mark then
  if mark == 'taken' then
    -- A write, so that a WAIT behind it covers the run before, over another connection as well.
    redis.call('pexpire', KEYS[2], ARGV[2])
  end
  return {mark == 'taken' and 1 or 2, 0}
end
if is_late(ARGV[3]) then
  return {3, 0}
end
local count = tonumber(ARGV[1])
local free = number_at(KEYS[1])
if not free then
  return {4, 0}
end
if free < count then
  return {0, -1}
end
redis.call('set', KEYS[2], 'taken', 'px', ARGV[2])
redis.call('decrby', KEYS[1], count)
return {1, 0}
