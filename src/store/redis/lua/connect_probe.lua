-- connect_probe: finds the commands that the scripts need and that the server does not have, or the
-- user may not run, before a script can fail half-way.
-- KEYS[1] probe   a key that does not exist; none in a cluster, where the first argument names
--   it: each node shall answer, whoever has its slot
-- ARGV[i] channels, one of each shape that scripts publish on
-- Returns the error texts of the commands that were refused, each behind the command and a colon
-- Repeat-safe: yes. No command in it changes anything: the key does not exist, and the channels
-- have no subscribers. HSET, INCR and RPUSH would write, so the ACL is checked instead. Redis 6.2
-- cannot check it, so there the first lock call fails. LINSERT is not checked: it is needed only to
-- put a waiter back to the front. Permissions are checked before the slot: the error about a key of
-- another node shows that the user has the permission.
local key = KEYS[1] or table.remove(ARGV, 1)
local commands = {
  {'hexists', key, 'x'}, {'hget', key, 'x'}, {'hdel', key, 'x'}, {'hgetall', key}, {'hlen', key},
  {'exists', key}, {'get', key}, {'pttl', key}, {'pexpire', key, 1}, {'pexpireat', key, 1}, {'persist', key},
  {'set', key, '0', 'xx', 'keepttl'}, {'time'},
  {'lindex', key, 0}, {'lrange', key, 0, 0}, {'lpop', key}, {'lrem', key, 1, 'x'},
  {'zscore', key, 'x'}, {'zmscore', key, 'x'}, {'zcard', key}, {'zcount', key, 0, 0}, {'zrange', key, 0, 0}, {'zrangebyscore', key, 0, 0},
  {'zrem', key, 'x'}, {'zadd', key, 'xx', 0, 'x'}, {'del', key},
  -- 'not an integer' is the error for a user who has the permission.
  {'incrby', key, 'x'}, {'decrby', key, 'x'},
}
for i = 1, #ARGV do
  commands[#commands + 1] = {'publish', ARGV[i], '0'}
end
local refused = {}
if redis.acl_check_cmd then
  for _, command in ipairs({'hset', 'incr', 'rpush'}) do
    -- Without a key: an ACL may permit the command on other keys than the probe's. It raises an error
    -- about a command that the server does not have.
    local is_known, may = pcall(redis.acl_check_cmd, command)
    if not is_known then
      refused[#refused + 1] = command .. ': unknown command'
    elseif not may then
      refused[#refused + 1] = command .. ': no permission'
    end
  end
end
for _, command in ipairs(commands) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'not an integer') then
    refused[#refused + 1] = command[1] .. ': ' .. answer.err
  end
end
return refused
