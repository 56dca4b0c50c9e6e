-- fair_queue: how long the queue of a fair lock is, and where the first waiter of a client stands in it.
-- KEYS[1] queue   list of waiting holders, first come first
-- ARGV[1] what the holders of that client begin with
-- Returns {length, how many are before its first waiter}; -1 when it has none in the queue
-- Repeat-safe: yes, it only reads.
local queue = redis.call('lrange', KEYS[1], 0, -1)
for i, waiter in ipairs(queue) do
  if string.sub(waiter, 1, #ARGV[1]) == ARGV[1] then
    return {#queue, i - 1}
  end
end
return {#queue, -1}
