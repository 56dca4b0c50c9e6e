-- fair_queue: returns the length of a fair lock's queue, and the position of a client's first
-- waiter.
-- KEYS[1] queue   list of waiting holders, first come first
-- ARGV[1] prefix of the client's holders
-- Returns {length, how many waiters are before its first one, or -1 if it has none}
-- Repeat-safe: yes, it only reads.
local queue = redis.call('lrange', KEYS[1], 0, -1)
for i, waiter in ipairs(queue) do
  if string.sub(waiter, 1, #ARGV[1]) == ARGV[1] then
    return {#queue, i - 1}
  end
end
return {#queue, -1}
