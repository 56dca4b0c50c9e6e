-- lib/force: the beginning of the scripts that free a lock by force; put in front of them. It
-- refuses a fenced value.
-- KEYS[1] lock    hash, holder -> hold count

if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
if redis.call('hexists', KEYS[1], 'token') == 1 then
  return redis.error_reply('WRONGTYPE this name holds a fenced value')
end

