
-- lib/plain: the refusals of the scripts that take a plain lock; put behind their locals `lock`,
-- `field`, `held`, `pttl`, `not_after`, and `names_holder` (whether a refusal names the holder as
-- well). Without functions: making one costs a third of a microsecond in every run.
if pttl ~= -2 or held > 0 then
  local mine = redis.call('hexists', lock, field) == 1
  if held > 0 and not mine then
    return {2, 0}
  end
  if not mine then
    if redis.call('hexists', lock, 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
    end
    -- A lock has a TTL; a fenced value and most hashes of applications have none. The condition
    -- spares everybody who waits for a lock these commands. lib/holder says what a hold looks like.
    if pttl == -1 then
      local only = redis.call('hlen', lock) == 1 and redis.call('hgetall', lock) or {'', ''}
      if not string.find(only[1], '^%x+%-%x+%-%x+%-%x+%-%x+:.') or not string.find(only[2], '^[1-9]%d?%d?%d?$') then
        return redis.error_reply('WRONGTYPE something other than a lock has this name')
      end
    end
    return {0, pttl, names_holder and redis.call('hkeys', lock)[1] or nil}
  end
end
if held == 0 and not_after ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(not_after) then
    return {3, 0}
  end
end
