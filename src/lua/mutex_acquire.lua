-- mutex_acquire: take the lock for a holder, or say how long it stays taken.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the fencing token given last
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else the TTL of a new key in ms
-- ARGV[5] floor: a token below it is raised to the server's clock
-- ARGV[6] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} acquired | {0, pttl} held by another | {2, 0} the holder had it and has lost it | {3, 0} too late
-- Repeat-safe: yes. The count is set, not added to, and the holder is fresh for every outermost call, so a repeat finds
-- its own field; a repeated outermost acquire gives a higher token, and nobody was given the lock in between.
local function micros()
  local time = redis.call('time')
  return time[1] * 1000000 + time[2]
end

local held = tonumber(ARGV[3])
local pttl = redis.call('pttl', KEYS[1])

if pttl ~= -2 or held > 0 then
  local mine = redis.call('hexists', KEYS[1], ARGV[1]) == 1
  if held > 0 and not mine then
    return {2, 0}
  end
  if not mine then
    return {0, pttl}
  end
end

local token = 0
if held == 0 then
  if ARGV[6] ~= '0' and micros() > tonumber(ARGV[6]) then
    return {3, 0}
  end
  -- Before the hash is written: a counter that is no integer, or a full server, must leave nothing taken.
  if ARGV[4] ~= '-1' then
    token = redis.call('incr', KEYS[2])
    -- Lua's numbers are doubles: from here on two holds could get the same token.
    if token >= 9007199254740992 then
      return redis.error_reply('ERR the fencing token is not an integer below 2^53')
    end
    if token < tonumber(ARGV[5]) then
      local ttl = tonumber(ARGV[4])
      -- A counter without a TTL is Java's: if ours expired it, Java would begin again at 1.
      if ttl > 0 and token > 1 and redis.call('pttl', KEYS[2]) < 0 then
        ttl = 0
      end
      token = math.max(token, micros())
      if ttl > 0 then
        redis.call('set', KEYS[2], string.format('%.0f', token), 'px', ttl)
      else
        redis.call('set', KEYS[2], string.format('%.0f', token))
      end
    end
  end
end

redis.call('hset', KEYS[1], ARGV[1], held + 1)
if pttl < tonumber(ARGV[2]) then
  local set = redis.pcall('pexpire', KEYS[1], ARGV[2])
  if type(set) == 'table' then
    -- Refused, say for want of permission: a lock without a TTL would stand for ever.
    if pttl == -2 then
      redis.call('hdel', KEYS[1], ARGV[1])
    end
    return set
  end
end
return {1, token}
