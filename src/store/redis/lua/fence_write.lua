-- fence_write: replace a guarded value, if ours is still the newest claim.
-- KEYS[1] value   hash: token -> highest token that claimed it, value -> bytes
-- ARGV[1] fencing token
-- ARGV[2] the new value
-- Returns {1, token} written | {0, standing token or nil} refused
-- Repeat-safe: yes. The same bytes under the same claim.
local standing = redis.call('hget', KEYS[1], 'token')
if standing ~= ARGV[1] then
  return {0, standing}
end
redis.call('hset', KEYS[1], 'value', ARGV[2])
return {1, standing}
