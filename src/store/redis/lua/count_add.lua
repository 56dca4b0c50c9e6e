-- count_add: adds permits to a semaphore, or removes some for good.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] mark    string, the reply that this request got (idempotency key)
-- ARGV[1] number of permits to add; negative: to remove
-- ARGV[2] TTL of the mark in ms
-- ARGV[3] channel
-- ARGV[4] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, free} done
--         {5, free} the result would be out of range, and nothing was done
--         {3, 0} too late
-- Repeat-safe: yes, while the mark is kept: a repeat finds it and adds nothing.
local answer = recorded_answer(KEYS[2], ARGV[4])
if answer then
  return answer
end
local more, before = tonumber(ARGV[1]), number_at(KEYS[1]) or 0
if math.abs(before + more) > 2147483647 then
  return {5, before}
end
local free = redis.call('incrby', KEYS[1], more)
answer = remember(KEYS[2], ARGV[2], 1, free)
if more > 0 and free > 0 then
  redis.call('publish', ARGV[3], string.format('%.0f', free))
end
return answer
