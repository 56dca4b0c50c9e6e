-- lib/queue: the queue of a fair lock. Put in front of the scripts that look at it; no script by itself.
local function millis()
  local time = redis.call('time')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The first waiter whose deadline has not passed, and that deadline. Those before it are dead and are removed; also one
-- without a deadline, which no live waiter is (Redisson would wait behind it for ever).
local function live_head(queue, deadlines, now)
  while true do
    local head = redis.call('lindex', queue, 0)
    if not head then
      return nil
    end
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline > now then
      return head, deadline
    end
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
  end
end

-- A waiter of ours has left. Redisson's queues have no TTL, and ours was sized for ours.
local function without_ttl(queue, deadlines)
  if redis.call('persist', deadlines) == 1 then
    redis.call('persist', queue)
  end
end

