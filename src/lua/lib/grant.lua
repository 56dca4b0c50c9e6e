-- lib/grant: what every acquiring script shares. Put in front of those scripts; no script by itself.
local function micros()
  local time = redis.call('time')
  return time[1] * 1000000 + time[2]
end

-- Whether the server's clock has passed a not-after; '0' is no limit, and then the clock is not asked.
local function is_late(not_after)
  return not_after ~= '0' and micros() > tonumber(not_after)
end

-- The next fencing token, or an error reply. Asked before anything is taken: a counter that is no integer, or a full
-- server, must leave nothing behind. `rule`: -1 none is given, 0 its key is kept for ever, else the TTL of a new key.
local function next_token(key, rule, floor)
  if rule == '-1' then
    return 0
  end
  local token = redis.call('incr', key)
  -- Lua's numbers are doubles: from here on two holds could get the same token.
  if token >= 9007199254740992 then
    return redis.error_reply('ERR the fencing token is not an integer below 2^53')
  end
  if token < tonumber(floor) then
    local ttl = tonumber(rule)
    -- A counter without a TTL is Java's: if ours expired it, Java would begin again at 1.
    if ttl > 0 and token > 1 and redis.call('pttl', key) < 0 then
      ttl = 0
    end
    token = math.max(token, micros())
    if ttl > 0 then
      redis.call('set', key, string.format('%.0f', token), 'px', ttl)
    else
      redis.call('set', key, string.format('%.0f', token))
    end
  end
  return token
end

-- Sets fields of a lock hash whose TTL is `pttl`, and raises that to the lease. Returns an error reply if the TTL was
-- refused, say for want of permission: a lock without a TTL would stand for ever.
local function take(key, lease, pttl, ...)
  redis.call('hset', key, ...)
  if pttl < tonumber(lease) then
    local set = redis.pcall('pexpire', key, lease)
    if type(set) == 'table' then
      if pttl == -2 then
        redis.call('del', key)
      end
      return set
    end
  end
end

-- Takes the lock: the answer of every acquiring script that gives tokens. An outermost acquire gets one, unless it comes
-- too late.
local function grant(held, token_key, rule, floor, not_after, lock, lease, pttl, ...)
  local token = 0
  if held == 0 then
    if is_late(not_after) then
      return {3, 0}
    end
    token = next_token(token_key, rule, floor)
    if type(token) == 'table' then
      return token
    end
  end
  return take(lock, lease, pttl, ...) or {1, token}
end

local ANOTHER_KIND = 'WRONGTYPE the lock under this name is of another kind'

