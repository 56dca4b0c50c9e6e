
-- lib/hold: the end of every script that takes a lock hash; put behind those scripts. It uses their
-- locals `lock`, `lease`, `held`, `pttl`, `field`, `mode` (nil for a lock without one) and `token`.
-- Text, because the server would format a number as a double, which costs more than a command.
local count = held == 0 and '1' or held + 1
if mode then
  redis.call('hset', lock, 'mode', mode, field, count)
else
  redis.call('hset', lock, field, count)
end
if pttl < tonumber(lease) then
  local set = redis.pcall('pexpire', lock, lease)
  if type(set) == 'table' then
    -- Refused, for example for lack of permission: a lock without a TTL would stay for ever.
    if pttl == -2 then
      redis.call('del', lock)
    end
    return set
  end
end
return {1, token}
