-- permit_count: returns how many permits of a semaphore with leases are free, and how many are
-- held.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- ARGV[1] channel
-- Returns {free, held}; {0, 0} where there is no semaphore
-- Repeat-safe: yes. It returns each permit whose lease has ended once.
local free = number_at(KEYS[1])
if not free then
  return {0, 0}
end
-- Counted before: while its slot moves, no command may name a key that the script has deleted.
local held = redis.call('zcard', KEYS[2])
local swept = sweep(KEYS[1], KEYS[2], millis())
free, held = free + swept, held - swept
if swept > 0 then
  tell(ARGV[1], free)
end
return {free, held}
