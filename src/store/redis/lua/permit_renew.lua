-- permit_renew: extends the leases of many acquisitions of permits, each only if all its permits
-- are held.
-- KEYS[i] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- ARGV[i] id of the acquisition in KEYS[i], 12 bytes
-- ARGV[#KEYS + i] lease in ms; 0 only checks whether they are still held
-- ARGV[2 * #KEYS + i] number of permits
-- Returns one value for each acquisition: 1 held, 0 lost, or an error
-- Repeat-safe: yes. A lease is only ever extended, and only for permits that are there.
local function renew(leases, base, lease, count)
  count = tonumber(count)
  local now = millis()
  local ends = string.format('%.0f', now + lease + 2000)
  local held, least = true, math.huge
  in_chunks(base, count, function(members)
    for _, score in ipairs(redis.call('zmscore', leases, unpack(members))) do
      local at = tonumber(score or 0)
      held = held and at > now
      least = math.min(least, at)
    end
  end)
  if held and lease > 0 then
    -- No permit is empty, so it removes nothing. A full server refuses ZADD, whatever its options,
    -- only as the first change of a script.
    redis.call('zrem', leases, '')
    put(leases, base, count, ends, 'xx', 'gt')
    if least >= tonumber(ends) then
      -- Nothing was changed, and a WAIT behind a renewal covers only what it has written.
      -- Another score and back: ZADD with the one that is there is no write.
      local first = base .. struct.pack('>I4', 1)
      local score = redis.call('zscore', leases, first)
      redis.call('zadd', leases, 'xx', string.format('%.0f', score + 1), first)
      redis.call('zadd', leases, 'xx', score, first)
    end
  end
  return held and 1 or 0
end

-- lib/renew_each, behind this, reads KEYS[i], ARGV[i], ARGV[#KEYS + i] and ARGV[2 * #KEYS + i].
