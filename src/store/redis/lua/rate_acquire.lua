-- rate_acquire: takes permits of a rate limiter, all of them or none. They come back by themselves
-- when the interval is over.
-- KEYS[1] limiter  hash: rate, interval in ms, type (1: each client has a rate of its own),
--         keepAliveTime in ms
-- KEYS[2] free     integer, the permits that are free; none: nobody has taken one yet
-- KEYS[3] taken    sorted set, acquisition with its number of permits -> epoch ms at which it was
-- ARGV[1] id of this acquisition, 12 bytes
-- ARGV[2] number of permits
-- ARGV[3] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} taken
--         {0, ms} too few are free; ms until there may be enough
--         {3, 0} too late
--         {4, rate} more permits than the rate; 0: nobody has set a rate
--         {5, 0} each client has a rate of its own
-- Repeat-safe: yes. Every acquisition has a fresh id, so a repeat finds its own entry and takes
-- nothing. The interval begins anew, because the caller acts on this reply. When the interval is
-- over and the entry swept, its permits are free, and a repeat takes them once.
local rate, interval, is_per_client = limiter_at(KEYS[1])
if not rate or is_per_client then
  return {rate and 5 or 4, 0}
end
local now = millis()
local count = tonumber(ARGV[2])
local entry, at = entry_of(ARGV[1], count), string.format('%.0f', now)
if redis.call('zscore', KEYS[3], entry) then
  redis.call('zadd', KEYS[3], 'xx', at, entry)
  return {1, 0}
end
if ARGV[3] ~= '0' and (now + 1) * 1000 > tonumber(ARGV[3]) then
  return {3, 0}
end
if count > rate then
  return {4, rate}
end

local free = number_at(KEYS[2])
if not free then
  free = rate - taken_by(KEYS[3])
  redis.call('set', KEYS[2], string.format('%.0f', free))
end
free = sweep(KEYS[2], KEYS[3], free, rate, now - interval, count)
local answer = {1, 0}
if free < count then
  local missing, wait = count - free, 1
  local entries = redis.call('zrange', KEYS[3], 0, 999, 'withscores')
  for n = 1, #entries, 2 do
    if missing > 0 then
      missing = missing - permits_of(entries[n], KEYS[3])
      wait = math.max(tonumber(entries[n + 1]) + interval - now, 1)
    end
  end
  answer = {0, math.min(wait, 9007199254740991)}
else
  -- First: if the other failed, the permits would never come back.
  redis.call('zadd', KEYS[3], at, entry)
  redis.call('decrby', KEYS[2], ARGV[2])
end
keep_alive(KEYS[1], KEYS[2], KEYS[3])
return answer
