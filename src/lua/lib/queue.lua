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

-- Gives a waiter a place, or keeps the one it has.
local function line_up(queue, deadlines, holder, now, wait, is_first)
  -- A Java waiter subtracts 300 s from every deadline behind it when its turn comes, and one that dies holds its place
  -- for as long as its own deadline says: ours must outlast both.
  local foreign_wait = 300000
  local own, behind, queued = now + wait, 0, false
  if not is_first then
    for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
      if waiter == holder then
        queued = true
        break
      end
      -- Our client ids are UUIDs of version 8, Java's of version 4.
      if string.sub(waiter, 15, 15) ~= '8' then
        own = own + foreign_wait
        behind = math.max(behind, tonumber(redis.call('zscore', deadlines, waiter) or 0))
      end
    end
  end
  if behind > 0 then
    own = math.max(own, behind + wait)
  end
  redis.call('zadd', deadlines, string.format('%.0f', own), holder)
  if not queued then
    redis.call(is_first and 'lpush' or 'rpush', queue, holder)
  end
  -- Redisson's queues have no TTL: one that is left behind by dead waiters would stay.
  local last = redis.call('zrange', deadlines, -1, -1, 'withscores')[2]
  local gone = string.format('%.0f', tonumber(last) + 600000)
  redis.call('pexpireat', queue, gone)
  redis.call('pexpireat', deadlines, gone)
end

