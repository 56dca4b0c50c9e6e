-- permit_acquire: takes permits of a semaphore with leases, all of them or none.
-- KEYS[1] free    integer, the permits that are free
-- KEYS[2] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- ARGV[1] id of this acquisition, 12 bytes
-- ARGV[2] number of permits
-- ARGV[3] lease in ms
-- ARGV[4] channel
-- ARGV[5] not-after: server time in microseconds past which it must not run; 0: no limit
-- Returns {1, 0} taken
--         {0, ms until the next lease ends, or -1} too few are free
--         {3, 0} too late
--         {4, permits} the semaphore has fewer permits in all, or there is none
-- Repeat-safe: yes. Every acquisition has a fresh id, so a repeat finds its own permits and only
-- extends them.
local now = millis()
local count = tonumber(ARGV[2])
-- Redisson sweeps by its client's clock, so Redis gets two seconds more than the holder was
-- promised.
local ends = string.format('%.0f', now + ARGV[3] + 2000)

if redis.call('zscore', KEYS[2], ARGV[1] .. struct.pack('>I4', 1)) then
  put(KEYS[2], ARGV[1], count, ends, 'xx')
  return {1, 0}
end
if ARGV[5] ~= '0' and (now + 1) * 1000 > tonumber(ARGV[5]) then
  return {3, 0}
end

local free = number_at(KEYS[1])
if not free then
  return {4, 0}
end
local swept = sweep(KEYS[1], KEYS[2], now)
free = free + swept
if free < count then
  if swept > 0 then
    tell(ARGV[4], free)
  end
  local all = free + redis.call('zcard', KEYS[2])
  if all < count then
    return {4, all}
  end
  local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')[2]
  -- Redisson's score for a permit without a lease.
  if not first or tonumber(first) >= 922337203685477 then
    return {0, -1}
  end
  return {0, tonumber(first) - now + 1}
end

-- Of an acquisition that ran before, a part may still be there.
local added = put(KEYS[2], ARGV[1], count, ends)
redis.call('decrby', KEYS[1], added)
local pttl = redis.call('pttl', KEYS[1])
if pttl > 0 then
  redis.call('pexpire', KEYS[2], pttl)
end
if swept > 0 then
  tell(ARGV[4], free - added)
end
return {1, 0}
