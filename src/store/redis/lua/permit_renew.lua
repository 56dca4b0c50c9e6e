-- permit_renew: lengthen the leases of many acquisitions of permits at once, each only where all its permits are held.
-- KEYS[i] leases  sorted set, permit of 16 bytes -> epoch ms at which its lease ends
-- ARGV[i] the 12 bytes that name the acquisition in KEYS[i]
-- ARGV[#KEYS + i] lease in ms; 0 only looks whether they are still held
-- ARGV[2 * #KEYS + i] how many permits
-- Returns one answer an acquisition: 1 held, 0 gone, or its error
-- Repeat-safe: yes. A lease is only ever lengthened, and only for permits that are there.
local function renew(leases, base, lease, count)
  count = tonumber(count)
  local now = millis()
  local ends = string.format('%.0f', now + lease + 2000)
  local held = true
  in_chunks(base, count, function(members)
    for _, score in ipairs(redis.call('zmscore', leases, unpack(members))) do
      held = held and score and tonumber(score) > now
    end
  end)
  if held and lease > 0 then
    put(leases, base, count, ends, 'xx', 'gt')
  end
  return held and 1 or 0
end

-- lib/renew_each, behind this, reads KEYS[i], ARGV[i], ARGV[#KEYS + i] and ARGV[2 * #KEYS + i].
