-- connect_probe: which commands that our scripts need the user may not run; asked before a script can fail half-way.
-- KEYS[1] probe   a key that does not exist
-- ARGV[i] channels like those that are published on
-- Returns the error texts of the commands that were refused for want of permission
-- Repeat-safe: yes. Every command in it changes nothing: the key does not exist, and nobody listens to the channels.
-- HSET, INCR and RPUSH would write, so the ACL is asked for them; Redis 6.2 has no way to, and tells with the first lock.
-- Without LINSERT everything works, some of it less well.
local key = KEYS[1]
local tries = {
  {'hexists', key, 'x'}, {'hget', key, 'x'}, {'hdel', key, 'x'}, {'hgetall', key}, {'hlen', key},
  {'exists', key}, {'get', key}, {'pttl', key}, {'pexpire', key, 1}, {'pexpireat', key, 1}, {'persist', key},
  {'set', key, '0', 'xx', 'keepttl'}, {'time'},
  {'lindex', key, 0}, {'lrange', key, 0, 0}, {'lpop', key}, {'lrem', key, 1, 'x'},
  {'zscore', key, 'x'}, {'zmscore', key, 'x'}, {'zcard', key}, {'zcount', key, 0, 0}, {'zrange', key, 0, 0}, {'zrangebyscore', key, 0, 0},
  {'zrem', key, 'x'}, {'zadd', key, 'xx', 0, 'x'}, {'del', key},
  -- Not a number: an error that tells that one may.
  {'incrby', key, 'x'}, {'decrby', key, 'x'},
}
for i = 1, #ARGV do
  tries[#tries + 1] = {'publish', ARGV[i], '0'}
end
local refused = {}
if redis.acl_check_cmd then
  for _, command in ipairs({'hset', 'incr', 'rpush'}) do
    -- The command alone: an ACL may permit it on other keys than the probe's.
    if not redis.acl_check_cmd(command) then
      refused[#refused + 1] = command .. ': no permission'
    end
  end
end
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'not an integer') then
    refused[#refused + 1] = try[1] .. ': ' .. answer.err
  end
end
return refused
