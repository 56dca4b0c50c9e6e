-- lib/once: a script that must not run twice stores its reply under the request's idempotency key.
-- Put in front of those scripts.
local function is_late(not_after)
  if not_after == '0' then
    return false
  end
  local time = redis.call('time')
  return time[1] * 1000000 + time[2] > tonumber(not_after)
end

-- The reply of an earlier run, or the refusal of a request that is too late; nil if the script may
-- go on.
local function recorded_answer(mark, not_after)
  local answer = redis.call('get', mark)
  if answer then
    local status, value = string.match(answer, '^(%d):(-?%d+)$')
    return {tonumber(status), tonumber(value)}
  end
  return is_late(not_after) and {3, 0} or nil
end

local function remember(mark, ttl, status, value)
  redis.call('set', mark, string.format('%d:%.0f', status, value), 'px', ttl)
  return {status, value}
end

