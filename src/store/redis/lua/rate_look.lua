-- rate_look: returns the rate of a limiter, and how many permits are free.
-- KEYS[1] limiter  hash: rate, interval in ms, type (1: each client has a rate of its own)
-- KEYS[2] free     integer, the permits that are free; none: nobody has taken one yet
-- KEYS[3] taken    sorted set, acquisition with its number of permits -> epoch ms at which it was
-- Returns {1, rate, interval in ms, free} | {0, 0, 0, 0} there is none
--         {5, 0, 0, 0} each client has a rate of its own
-- Repeat-safe: yes. It frees permits whose interval is over once.
local rate, interval, is_per_client = limiter_at(KEYS[1])
if not rate or is_per_client then
  return {rate and 5 or 0, 0, 0, 0}
end
local free = number_at(KEYS[2])
free = free and sweep(KEYS[2], KEYS[3], free, rate, millis() - interval, rate)
  or rate - taken_by(KEYS[3])
local most = 9007199254740991
return {1, math.min(rate, most), math.min(interval, most), math.min(free, most)}
