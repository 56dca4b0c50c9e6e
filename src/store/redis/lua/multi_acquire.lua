-- multi_acquire: take several locks for one caller, all of them or none.
-- KEYS[i] lock        hash, holder -> hold count; the first n, each once
-- KEYS[n + i] token   integer, the fencing token given last for KEYS[i]
-- ARGV[i] holder for KEYS[i]
-- ARGV[n + i] the count that this holder has there now, 0 for a lock that is taken freshly
-- ARGV[2 * n + 1] lease in ms
-- ARGV[2 * n + 2] what becomes of the tokens: -1 none is given, 0 their keys are kept for ever, else the TTL of a new key in ms
-- ARGV[2 * n + 3] what the channel of every lock begins with
-- ARGV[2 * n + 4] 1 when an earlier run of the same request may have taken them, whose answer was lost; else 0
-- ARGV[2 * n + 5] floor: a token below it is raised to the server's clock
-- ARGV[2 * n + 6] not-after: server time in microseconds past which a lock must not be taken freshly any more, 0 for no limit
-- Returns {1, a token or 0 for each lock} acquired | {0, pttl, i} KEYS[i] is held by another
--         {2, 0, i} the holder had KEYS[i] and has lost it | {3, 0, 0} too late | {4, 0, i} KEYS[i] is no plain lock
-- Repeat-safe: yes. Counts are set, not added to, and the holder of fresh locks is fresh for every call. A repeat that is
-- refused takes back what an earlier run took: somebody may have forced one of its locks open in between.
local n = #KEYS / 2
local lease, rule, floor = tonumber(ARGV[2 * n + 1]), ARGV[2 * n + 2], tonumber(ARGV[2 * n + 5])
-- Looked for only where it can be: a call that is one of many at a lock tries often, and is refused at the first name.
local take_back = ARGV[2 * n + 4] == '1'
local refused, fresh, ttls, answer = nil, false, {}, {1}

-- Nothing is written before all of them have been looked at.
for i = 1, n do
  local held = ARGV[n + i] ~= '0'
  local pttl = redis.call('pttl', KEYS[i])
  if held or pttl ~= -2 then
    local mine = redis.pcall('hexists', KEYS[i], ARGV[i])
    if mine == 0 then
      -- A fenced value has no TTL: where there is one, nobody is asked.
      if not held
        and (redis.call('hexists', KEYS[i], 'mode') == 1 or pttl == -1 and redis.call('hexists', KEYS[i], 'token') == 1) then
        return {4, 0, i}
      end
      refused = held and {2, 0, i} or {0, pttl, i}
      break
    elseif mine ~= 1 then
      return string.find(mine.err, 'WRONGTYPE', 1, true) and {4, 0, i} or mine
    end
  end
  fresh, ttls[i] = fresh or not held, pttl
end

if not refused and fresh and ARGV[2 * n + 6] ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[2 * n + 6]) then
    return {3, 0, 0}
  end
end

if not refused then
  -- All tokens before any lock, by the rules of lib/grant: a counter that is no integer, or a full server, must leave nothing
  -- taken. A token that was not used is a gap, which harms nobody.
  local clock
  for i = 1, n do
    local token = 0
    if ARGV[n + i] == '0' and rule ~= '-1' then
      token = redis.call('incr', KEYS[n + i])
      if token >= 9007199254740992 then
        return redis.error_reply('ERR the fencing token is not an integer below 2^53')
      end
      if token < floor then
        local ttl = tonumber(rule)
        if ttl > 0 and token > 1 and redis.call('pttl', KEYS[n + i]) < 0 then
          ttl = 0
        end
        if not clock then
          local time = redis.call('time')
          clock = time[1] * 1000000 + time[2]
        end
        token = math.max(token, clock)
        if ttl > 0 then
          redis.call('set', KEYS[n + i], string.format('%.0f', token), 'px', ttl)
        else
          redis.call('set', KEYS[n + i], string.format('%.0f', token))
        end
      end
    end
    answer[i + 1] = token
  end

  for i = 1, n do
    -- pcall: a write that is refused (a user who may not touch one of the keys) must not leave the locks before it taken.
    local set = redis.pcall('hset', KEYS[i], ARGV[i], ARGV[n + i] + 1)
    if type(set) == 'number' and ttls[i] < lease then
      set = redis.pcall('pexpire', KEYS[i], lease)
    end
    if type(set) ~= 'number' then
      refused, take_back = set, true
      break
    end
  end
end
if not refused then
  return answer
end

-- Only what is taken freshly. A count of this caller's own holds that was set already is told, not trusted.
for i = 1, take_back and n or 0 do
  if ARGV[n + i] == '0' and redis.pcall('hdel', KEYS[i], ARGV[i]) == 1 and redis.pcall('exists', KEYS[i]) == 0 then
    local tag = string.find(KEYS[i], '{', 1, true) and KEYS[i] or '{' .. KEYS[i] .. '}'
    redis.pcall('publish', ARGV[2 * n + 3] .. tag, '0')
  end
end
return refused
