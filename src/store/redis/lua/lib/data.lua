-- lib/data: the data of a hold, a hash with the fields holder, number, data, token, until (epoch ms)
-- and asked (when somebody last asked for the lock, epoch ms); put in front of the scripts that take, renew, replace or give up a hold with data.

local function now_ms()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- When the data ends: when it was given up, or with the lease, which has `left` ms.
local function set_until(data, left)
  redis.call('hset', data, 'until', string.format('%.0f', now_ms() + left))
  redis.call('pexpire', data, string.format('%.0f', left + 3600000))
end

-- Of a holder that has the lock for `left` ms: its data, unless it was replaced with this number or
-- a higher one; without a text only its end. Its token is known to its grant.
local function keep_data(data, left, holder, number, text, token)
  local is_own = redis.call('hget', data, 'holder') == holder
  local last = is_own and tonumber(redis.call('hget', data, 'number')) or -1
  if text and last < tonumber(number) then
    redis.call('hset', data, 'holder', holder, 'number', number, 'data', text)
    if not is_own then
      redis.call('hset', data, 'token', string.format('%.0f', token or 0))
      -- The question was for an earlier holder.
      redis.call('hdel', data, 'asked')
    end
    is_own = true
  end
  if is_own then
    set_until(data, math.max(left, 0))
  end
end

