-- fence_claim: raise the token of a guarded value to ours before we read it, unless a newer one stands there.
-- KEYS[1] value   hash: token -> highest token that claimed it, value -> bytes
-- ARGV[1] fencing token
-- Returns {1, value or nil} claimed, and what is there | {0, token} refused, a newer token has claimed it
-- Repeat-safe: yes. Claiming again with the same token changes nothing.
-- Compared as text of equal length, because Redis' numbers in Lua lose digits above 2^53.
local function newer(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local standing = redis.call('hget', KEYS[1], 'token')
if standing and newer(standing, ARGV[1]) then
  return {0, standing}
end
redis.call('hset', KEYS[1], 'token', ARGV[1])
return {1, redis.call('hget', KEYS[1], 'value')}
