-- fence_claim: raises the token of a fenced value before the caller reads it, unless a newer one
-- has claimed it.
-- KEYS[1] value   hash: token -> highest token that claimed it, value -> bytes
-- ARGV[1] fencing token
-- Returns {1, value or nil} claimed
--         {0, token} refused, a newer token has claimed it
--         an error for a hash with other fields, such as a lock, whose release could delete the
--         value, and for a claim that is no number
-- Repeat-safe: yes. Claiming again with the same token changes nothing.
-- Compared as text, because Lua numbers lose digits above 2^53.
local function newer(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local claimed, value = redis.call('hget', KEYS[1], 'token'), redis.call('hget', KEYS[1], 'value')
if redis.call('hlen', KEYS[1]) > (claimed and 1 or 0) + (value and 1 or 0)
    or claimed and not string.find(claimed, '^%d+$') then
  return redis.error_reply('WRONGTYPE this key holds something other than a fenced value')
end
if claimed and newer(claimed, ARGV[1]) then
  return {0, claimed}
end
redis.call('hset', KEYS[1], 'token', ARGV[1])
return {1, value}
