
-- lib/node_token: gives the fencing token of one master of several; put between lib/plain and
-- lib/hold of redlock_acquire. It uses the locals `held`, `rule`, `memory`, `token_key`, `proposal`
-- and `node` of the script, and defines `token`.
local token = 0
if held == 0 and rule ~= '-1' then
  local most = tonumber(memory[3] or 0)
  -- A name whose counter has expired continues above the tokens of all names at this master.
  local given = tonumber(redis.call('get', token_key) or most)
  if not given then
    return redis.error_reply('ERR the fencing token is not an integer below 2^53')
  end
  token = math.max(tonumber(proposal), given + 1, tonumber(memory[2] or 0) + 1)
  -- Lua numbers are doubles: beyond this two holds could get the same token.
  if token >= 9007199254740992 then
    return redis.error_reply('ERR the fencing token is not an integer below 2^53')
  end
  local text = string.format('%.0f', token)
  -- Runs before the lock is written: a full server must leave nothing taken.
  if token > most then
    redis.call('hset', node, 'max', text)
  end
  if rule == '0' then
    redis.call('set', token_key, text)
  else
    redis.call('set', token_key, text, 'px', rule)
  end
end
