-- redlock_acquire: the vote of one master of several: take the lock there for a holder, or say how long it stays taken.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the fencing token given last for this name
-- KEYS[3] node    hash, what this master must not forget: boot (the run_id that may vote), floor, max (of all tokens)
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else its TTL in ms
-- ARGV[5] the token that the client proposes
-- ARGV[6] run_id of the server process that the client is connected to
-- ARGV[7] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} a vote for the holder | {0, pttl, holder} held by another | {2, 0} the holder had it and has lost
--         it | {3, 0} too late | {5, 0} this master has no vote: it restarted, was flushed, or is new
-- Repeat-safe: yes. The count is set, not added to, and the holder is fresh for every outermost call, so a repeat finds
-- its own field; a repeated outermost acquire gives a higher token, and nobody was given the lock in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local memory = redis.call('hmget', KEYS[3], 'boot', 'floor', 'max')
-- Here and not in the client: one that has not noticed the restart could count a vote that remembers nothing.
if memory[1] ~= ARGV[6] then
  return {5, 0}
end
local pttl = redis.call('pttl', lock)
if pttl ~= -2 or held > 0 then
  local mine = redis.call('hexists', lock, field) == 1
  if held > 0 and not mine then
    return {2, 0}
  end
  if not mine then
    if redis.call('hexists', lock, 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
    end
    -- Only where it costs nobody who waits for a lock another command: a fenced value has no TTL.
    if pttl == -1 and redis.call('hexists', lock, 'token') == 1 then
      return redis.error_reply('WRONGTYPE a fenced value stands under this name')
    end
    return {0, pttl, redis.call('hkeys', lock)[1]}
  end
end
if held == 0 and ARGV[7] ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[7]) then
    return {3, 0}
  end
end

local token = 0
if held == 0 and ARGV[4] ~= '-1' then
  local most = tonumber(memory[3] or 0)
  -- A name whose counter has expired goes on above every token of this master, of whatever name.
  local given = tonumber(redis.call('get', KEYS[2]) or most)
  if not given then
    return redis.error_reply('ERR the fencing token is not an integer below 2^53')
  end
  token = math.max(tonumber(ARGV[5]), given + 1, tonumber(memory[2] or 0) + 1)
  -- Lua's numbers are doubles: from here on two holds could get the same token.
  if token >= 9007199254740992 then
    return redis.error_reply('ERR the fencing token is not an integer below 2^53')
  end
  local text = string.format('%.0f', token)
  -- Before the hash is written: a full server must leave nothing taken.
  if token > most then
    redis.call('hset', KEYS[3], 'max', text)
  end
  if ARGV[4] == '0' then
    redis.call('set', KEYS[2], text)
  else
    redis.call('set', KEYS[2], text, 'px', ARGV[4])
  end
end

redis.call('hset', lock, field, held + 1)
if pttl < tonumber(lease) then
  local set = redis.pcall('pexpire', lock, lease)
  if type(set) == 'table' then
    -- Refused, say for want of permission: a lock without a TTL would stand for ever.
    if pttl == -2 then
      redis.call('del', lock)
    end
    return set
  end
end
return {1, token}
