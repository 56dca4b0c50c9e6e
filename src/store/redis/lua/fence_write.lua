-- fence_write: replaces a fenced value, if no newer token has claimed it.
-- KEYS[1] value   hash: token -> highest token that claimed it, value -> bytes
-- ARGV[1] fencing token
-- ARGV[2] the new value
-- Returns {1, token} written
--         {0, claimed token or nil} refused
--         an error for a hash with other fields: a lock, whose release could delete the value
-- Repeat-safe: yes. It writes the same bytes under the same claim.
local claimed = redis.call('hget', KEYS[1], 'token')
if redis.call('hlen', KEYS[1]) > (claimed and 1 or 0) + redis.call('hexists', KEYS[1], 'value') then
  return redis.error_reply('WRONGTYPE this key holds something other than a fenced value')
end
if claimed ~= ARGV[1] then
  return {0, claimed}
end
redis.call('hset', KEYS[1], 'value', ARGV[2])
return {1, claimed}
