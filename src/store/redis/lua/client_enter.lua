-- client_enter: enters a client into the index of clients that have announced an owner, and removes
-- some clients whose text has expired.
-- KEYS[1] index  sorted set, client -> epoch ms at which its text expires
-- ARGV[1] client: the prefix of its names, and its id
-- ARGV[2] for how many ms its text lives
-- Returns 1
-- Repeat-safe: yes. A repeat enters the client for as long as its text may live. The index expires
-- with the last text, so a client that was killed leaves nothing.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[2])
for _, dead in ipairs(redis.call('zrangebyscore', KEYS[1], '-inf', now, 'limit', 0, 100)) do
  redis.call('zrem', KEYS[1], dead)
end
redis.call('zadd', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
if redis.call('pttl', KEYS[1]) < ttl then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
