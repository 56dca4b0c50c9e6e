-- permit_delete: remove a semaphore, its permits, and whoever holds them.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- KEYS[3] mark    string, the answer that this request was given
-- ARGV[1] how long in ms the mark is kept
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run any more, 0 for no limit
-- Returns {1, 0} removed | {0, 0} there was none | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and removes nothing that was made in between.
local answer = settled(KEYS[3], ARGV[3])
if answer then
  return answer
end
-- An error where something else stands under the name.
number_at(KEYS[1])
redis.call('zcard', KEYS[2])
if redis.call('del', KEYS[1], KEYS[2]) == 0 then
  return {0, 0}
end
answer = remember(KEYS[3], ARGV[1], 1, 0)
-- Those who wait look again, and are told that there is none.
redis.call('publish', ARGV[2], '1')
return answer
