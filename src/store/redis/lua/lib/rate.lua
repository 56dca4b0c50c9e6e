-- lib/rate: a rate limiter; put in front of the scripts that use it. Each entry of its sorted set
-- is one acquisition: the length of its id, the id, and the number of permits in four bytes. Its
-- score is when the permits were taken: by the server's clock, or by that of a Redisson client.
local function millis()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function entry_of(id, permits)
  return struct.pack('Bc0I4', #id, id, permits)
end

local function permits_of(entry, taken)
  if #entry < 5 then
    -- Raises WRONGTYPE in the words of Redis.
    redis.call('get', taken)
  end
  return (struct.unpack('I4', entry, #entry - 3))
end

-- The rate, the interval in ms, and whether each client has a rate of its own; nil if there is no
-- limiter. A number of Lua is exact up to 2^53, and Redis counts no further than 2^63 - 1.
local function limiter_at(key)
  local rate = redis.call('hget', key, 'rate')
  local interval = redis.call('hget', key, 'interval')
  local kind = redis.call('hget', key, 'type')
  local is_number = '^[1-9]%d*$'
  if rate and interval and string.find(rate, is_number) and string.find(interval, is_number)
    and (kind == '0' or kind == '1') then
    return math.min(tonumber(rate), 9007199254740991), tonumber(interval), kind == '1'
  end
  if redis.call('exists', key) == 1 then
    -- Raises WRONGTYPE in the words of Redis.
    redis.call('get', key)
  end
end

-- How many permits the entries have together.
local function taken_by(taken)
  local sum, first = 0, 0
  repeat
    local entries = redis.call('zrange', taken, first, first + 999)
    for _, entry in ipairs(entries) do
      sum = sum + permits_of(entry, taken)
    end
    first = first + 1000
  until #entries < 1000
  return sum
end

-- Frees the permits that were taken at `before` or earlier, 1000 acquisitions at a time, until
-- `wanted` are free. Returns how many are.
local function sweep(free_key, taken, free, rate, before, wanted)
  repeat
    local last = string.format('%.0f', before)
    local ended = redis.call('zrangebyscore', taken, 0, last, 'limit', 0, 1000)
    local more = 0
    for _, entry in ipairs(ended) do
      more = more + permits_of(entry, taken)
    end
    if #ended > 0 then
      redis.call('zrem', taken, unpack(ended))
      -- Redisson's release frees permits and leaves their entry. They are not freed twice.
      if free + more > rate then
        more = rate - taken_by(taken) - free
      end
      redis.call('incrby', free_key, string.format('%.0f', more))
      free = free + more
    end
  until free >= wanted or #ended < 1000
  if free < wanted and redis.call('zcard', taken) == 0 then
    -- Redisson takes permits twice if it repeats a request after a lost reply.
    redis.call('incrby', free_key, string.format('%.0f', rate - free))
    return rate
  end
  return free
end

-- All keys of a limiter end together: after its keepAliveTime without use, or with its own key.
local function keep_alive(limiter, free_key, taken)
  local keep = tonumber(redis.call('hget', limiter, 'keepAliveTime') or nil)
  if keep and keep > 0 then
    redis.call('pexpire', limiter, keep)
  else
    keep = redis.call('pttl', limiter)
  end
  if keep > 0 then
    redis.call('pexpire', free_key, keep)
    redis.call('pexpire', taken, keep)
  end
end

