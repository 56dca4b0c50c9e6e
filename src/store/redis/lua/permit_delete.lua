-- permit_delete: removes a semaphore and all its permits, held ones included.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- KEYS[3] mark    string, the reply that this request got (idempotency key)
-- ARGV[1] TTL of the mark in ms
-- ARGV[2] channel
-- ARGV[3] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} removed | {0, 0} there was none | {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and does not remove a semaphore that
-- was made in between.
local answer = recorded_answer(KEYS[3], ARGV[3])
if answer then
  return answer
end
-- Both raise an error if the name is used for something else.
number_at(KEYS[1])
redis.call('zcard', KEYS[2])
if redis.call('del', KEYS[1], KEYS[2]) == 0 then
  return {0, 0}
end
answer = remember(KEYS[3], ARGV[1], 1, 0)
-- The waiters try again, and get an error because there is no semaphore.
redis.call('publish', ARGV[2], '1')
return answer
