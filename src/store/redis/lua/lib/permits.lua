-- lib/permits: the permits of a semaphore with leases; put in front of the scripts that use them. A
-- member of the sorted set is 16 bytes: the 12 bytes of the acquisition's id, and the number of the
-- permit in it.
local function millis()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Calls `each` with the members of an acquisition, 500 at a time: Lua cannot unpack more than some
-- thousands.
local function in_chunks(base, count, each)
  for first = 1, count, 500 do
    local members = {}
    for n = first, math.min(count, first + 499) do
      members[#members + 1] = base .. struct.pack('>I4', n)
    end
    each(members)
  end
end

-- Sets the end of their leases; returns how many are new. The last arguments are flags of ZADD.
local function put(leases, base, count, ends, ...)
  local flags = {...}
  local added = 0
  in_chunks(base, count, function(members)
    local words = {unpack(flags)}
    for _, member in ipairs(members) do
      words[#words + 1] = ends
      words[#words + 1] = member
    end
    added = added + redis.call('zadd', leases, unpack(words))
  end)
  return added
end

-- Removes them; returns how many were there.
local function remove(leases, base, count)
  local removed = 0
  in_chunks(base, count, function(members)
    removed = removed + redis.call('zrem', leases, unpack(members))
  end)
  return removed
end

-- Returns permits whose lease has ended to the free ones, and returns how many: as many as one
-- acquisition can take.
local function sweep(free, leases, now)
  local ended = redis.call('zrangebyscore', leases, 0, now, 'limit', 0, 10000)
  for first = 1, #ended, 1000 do
    redis.call('zrem', leases, unpack(ended, first, math.min(#ended, first + 999)))
  end
  if #ended > 0 then
    redis.call('incrby', free, #ended)
  end
  return #ended
end

-- Must come last in a script. Redisson's listeners parse a positive 32-bit number.
local function tell(channel, free)
  if free > 0 then
    return redis.call('publish', channel, string.format('%.0f', math.min(free, 2147483647)))
  end
  return 0
end

