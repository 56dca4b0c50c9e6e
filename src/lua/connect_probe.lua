-- connect_probe: which commands that our scripts need the user may not run; asked before a script can fail half-way.
-- KEYS[1] probe   a key that does not exist
-- ARGV[1] a channel like those of the locks
-- Returns the error texts of the commands that were refused for want of permission
-- Repeat-safe: yes. Every command in it changes nothing: the key does not exist, and nobody listens to the channel.
-- HSET, INCR and DEL cannot be asked without writing; refused, each is the first write of its script.
local tries = {
  {'hexists', KEYS[1], 'x'}, {'hdel', KEYS[1], 'x'}, {'hgetall', KEYS[1]}, {'hlen', KEYS[1]},
  {'exists', KEYS[1]}, {'pttl', KEYS[1]}, {'pexpire', KEYS[1], 1}, {'set', KEYS[1], '0', 'xx', 'keepttl'},
  {'time'}, {'publish', ARGV[1], '0'},
}
local refused = {}
for _, try in ipairs(tries) do
  local answer = redis.pcall(unpack(try))
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = try[1] .. ': ' .. answer.err
  end
end
return refused
