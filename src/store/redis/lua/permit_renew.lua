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
  local held, least, most = true, math.huge, 0
  in_chunks(base, count, function(members)
    for _, score in ipairs(redis.call('zmscore', leases, unpack(members))) do
      local at = tonumber(score or 0)
      held = held and at > now
      least, most = math.min(least, at), math.max(most, at)
    end
  end)
  if held and lease > 0 then
    -- No permit is empty, so it removes nothing. A full server refuses ZADD, whatever its options,
    -- only as the first change of a script.
    redis.call('zrem', leases, '')
    put(leases, base, count, ends, 'xx', 'gt')
    if least >= tonumber(ends) then
      -- Nothing was changed, and a WAIT behind a renewal covers only what it has written.
      put(leases, base, 1, string.format('%.0f', most + 1), 'xx', 'gt')
    end
  end
  return held and 1 or 0
end

-- lib/renew_each, behind this, reads KEYS[i], ARGV[i], ARGV[#KEYS + i] and ARGV[2 * #KEYS + i].
