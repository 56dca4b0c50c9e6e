-- fence_write: replace a guarded value, if ours is still the newest claim.
-- KEYS[1] value   hash: token -> highest token that claimed it, value -> bytes
-- ARGV[1] fencing token
-- ARGV[2] the new value
-- Returns {1, token} written | {0, standing token or nil} refused
--         an error where a hash with other fields stands: a lock, whose end would take the value along
-- Repeat-safe: yes. The same bytes under the same claim.
local standing = redis.call('hget', KEYS[1], 'token')
if redis.call('hlen', KEYS[1]) > (standing and 1 or 0) + redis.call('hexists', KEYS[1], 'value') then
  return redis.error_reply('WRONGTYPE what stands under this key is no fenced value')
end
if standing ~= ARGV[1] then
  return {0, standing}
end
redis.call('hset', KEYS[1], 'value', ARGV[2])
return {1, standing}
