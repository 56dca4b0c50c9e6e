-- multi_acquire: takes several locks for one caller, all of them or none.
-- KEYS[i] lock        hash, holder -> hold count; the first n, each once
-- KEYS[n + i] token   integer, the last fencing token of KEYS[i]
-- ARGV[i] holder for KEYS[i]
-- ARGV[n + i] hold count of the holder now; 0: an outermost acquire of this lock
-- ARGV[2 * n + 1] lease in ms
-- ARGV[2 * n + 2] token rule: -1 gives none, 0 keeps the keys without a TTL, else the TTL of a new
--         key in ms
-- ARGV[2 * n + 3] prefix of the locks' channels
-- ARGV[2 * n + 4] 1: an earlier run of the same request, whose reply was lost, may have taken them;
--         else 0
-- ARGV[2 * n + 5] floor: a token below it is raised to the server's clock
-- ARGV[2 * n + 6] not-after: server time in microseconds past which an outermost acquire must not
--         run; 0: no limit
-- Returns {1, a token or 0 for each lock} acquired
--         {0, pttl, i} KEYS[i] is held by another
--         {2, 0, i} the holder had KEYS[i] and has lost it
--         {3, 0, 0} too late
--         {4, 0, i} KEYS[i] is no plain lock
-- Repeat-safe: yes. Counts are set, not incremented, and every outermost acquire has a fresh
-- holder. A repeat that is refused takes back what an earlier run took: another client may have
-- freed one of its locks by force in between.
local n = #KEYS / 2
local lease, rule, floor = tonumber(ARGV[2 * n + 1]), ARGV[2 * n + 2], tonumber(ARGV[2 * n + 5])
-- Only after an earlier run, because a contended call is refused often, mostly at the first name.
local take_back = ARGV[2 * n + 4] == '1'
local refused, fresh, ttls, answer = nil, false, {}, {1}

-- Nothing is written before all locks have been checked.
for i = 1, n do
  local held = ARGV[n + i] ~= '0'
  local pttl = redis.call('pttl', KEYS[i])
  if held or pttl ~= -2 then
    local mine = redis.pcall('hexists', KEYS[i], ARGV[i])
    if mine == 0 then
      -- A lock has a TTL; a fenced value and most hashes of applications have none.
      if not held and (redis.call('hexists', KEYS[i], 'mode') == 1 or pttl == -1 and not is_lock(KEYS[i])) then
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
  -- All tokens are given before any lock is taken, by the rules of lib/token: a counter that is no
  -- integer, or a full server, must leave nothing taken. An unused token is only a gap.
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
    -- pcall: a write that is refused (the user has no right to one of the keys) must not leave the
    -- locks before it taken.
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

-- Only outermost acquires are taken back. A count that was raised for a re-entry stays: the caller
-- sets absolute counts.
for i = 1, take_back and n or 0 do
  -- Counted before, as multi_release does.
  local holders = ARGV[n + i] == '0' and redis.pcall('hlen', KEYS[i])
  if holders and redis.pcall('hdel', KEYS[i], ARGV[i]) == 1 and (holders == 1 or type(holders) == 'table') then
    local tag = string.find(KEYS[i], '{', 1, true) and KEYS[i] or '{' .. KEYS[i] .. '}'
    redis.pcall('publish', ARGV[2 * n + 3] .. tag, '0')
  end
end
return refused
