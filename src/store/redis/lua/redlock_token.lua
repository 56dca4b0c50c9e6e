-- redlock_token: raises the token at a master that granted the lock, if other masters gave a higher
-- one.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the last fencing token of this name
-- KEYS[3] node    hash, the vote state of this master
-- ARGV[1] holder
-- ARGV[2] token
-- ARGV[3] token rule: 0 keeps the key without a TTL, else its TTL in ms
-- ARGV[4] run_id of the server process at the other end of the connection
-- Returns 1 this master has the token, and the holder the lock
--         0 the holder is gone, or this master has no vote
-- Repeat-safe: yes. A token is only ever raised, and only while the holder is there.
local memory = redis.call('hmget', KEYS[3], 'boot', 'max')
if memory[1] ~= ARGV[4] or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local token, given = tonumber(ARGV[2]), tonumber(redis.call('get', KEYS[2]) or 0)
if not given then
  return redis.error_reply('ERR the fencing token is not an integer below 2^53')
end
if token > tonumber(memory[2] or 0) then
  redis.call('hset', KEYS[3], 'max', ARGV[2])
end
if token > given then
  if ARGV[3] == '0' then
    redis.call('set', KEYS[2], ARGV[2])
  else
    redis.call('set', KEYS[2], ARGV[2], 'px', ARGV[3])
  end
end
return 1
