-- lib/queue: the queue of a fair lock; put in front of the scripts that use it.
-- Few functions: making one costs a third of a microsecond in every run.
-- Leasehold's client ids are UUIDs of version 8, Redisson's of version 4.
local function is_foreign(waiter)
  return string.sub(waiter, 15, 15) ~= '8'
end

-- How long a leasehold waiter keeps its place without another attempt: the last six digits of its
-- client's id, in ms.
local function own_wait(waiter)
  return tonumber(string.sub(waiter, 31, 36), 16) or math.huge
end

-- Returns the first live waiter, its deadline, and whether dead ones were removed before it. A
-- waiter is dead if its deadline has passed, or if it has none, which every live waiter has
-- (Redisson would wait behind it for ever). `asker` is alive.
local function live_head(queue, deadlines, channel, now, asker)
  local head, swept = redis.call('lindex', queue, 0), false
  while true do
    if not head or head == asker then
      return head or nil, nil, swept
    end
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline > now then
      return head, deadline, swept
    end
    -- If the deadline of the asker has passed too, or all deadlines have, the server was stopped
    -- and no waiter could keep its place. Then each may make one attempt before it counts as dead;
    -- otherwise they would queue again in the order in which they wake up.
    local own_deadline = asker and redis.call('zscore', deadlines, asker)
    if asker and own_deadline and tonumber(own_deadline) <= now
      or not asker and redis.call('zcount', deadlines, '(' .. now, '+inf') == 0 then
      return head, deadline, swept
    end
    -- Read before: while its slot moves, no command may name a key that the script has deleted.
    local behind = redis.call('lindex', queue, 1)
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    swept = true
    if is_foreign(head) then
      -- If it is alive (its predecessors took longer than its timeout) it queues again. Without
      -- this message it may sleep as long as its first hint says, or for ever.
      redis.call('publish', channel .. ':' .. head, '0')
    end
    head = behind
  end
end

-- Called when a leasehold waiter has left. Redisson's queues have no TTL, and the TTL of this one
-- may end before the deadline of a Redisson waiter behind the last leasehold waiter.
local function without_ttl(queue, deadlines)
  local last = redis.call('lindex', queue, -1)
  if last and is_foreign(last) then
    redis.call('persist', queue)
    redis.call('persist', deadlines)
  end
end

-- Whether both are waiters of one client, and `waiter` the older one: the holders of a client are
-- numbered.
local function is_before(waiter, holder)
  local client, number = string.match(holder, '^(.*):(%d+)$')
  local other, before = string.match(waiter, '^(.*):(%d+)$')
  return client and other == client and tonumber(before) < tonumber(number)
end

-- Puts a holder before all waiters except older ones of its client. Returns the length of the
-- queue.
local function to_the_front(queue, holder)
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    if not is_before(waiter, holder) then
      return redis.call('linsert', queue, 'before', waiter, holder)
    end
  end
  return redis.call('rpush', queue, holder)
end

-- Corrects deadlines that are too late. Redisson counts a deadline from that of the waiter before,
-- and subtracts its own timeout from all deadlines when it leaves; a leasehold waiter counts its
-- deadline from those of Redisson waiters before it. What a Redisson waiter added stays in the
-- deadlines behind it after it has left. Without the correction a dead leasehold waiter would block
-- the queue for that long (280 s after a Redisson waiter that got its turn at once), and each
-- leasehold turn would leave its timeout in all later deadlines: they would run ahead of the clock
-- until the queue is empty. A leasehold waiter without a Redisson waiter before it gets the
-- deadline that its next attempt would set, so a live one loses nothing. Redisson waiters, and
-- leasehold waiters behind them, are moved back by `excess`: how far the deadline that they were
-- counted from was ahead of the lock's TTL. No deadline gets lower than that of a waiter that came
-- now.
local function catch_up(queue, deadlines, now, ttl, excess, foreign_wait)
  local ahead = 0
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    local deadline, least = tonumber(redis.call('zscore', deadlines, waiter) or 0), nil
    if is_foreign(waiter) then
      ahead = ahead + foreign_wait
      least = now + ttl + ahead
    else
      least = now + own_wait(waiter) + ahead
      if ahead == 0 then
        excess = math.max(excess, deadline - now - ttl)
      end
    end
    if deadline > least then
      local behind = ahead == 0 and least or math.max(deadline - excess, least)
      redis.call('zadd', deadlines, string.format('%.0f', behind), waiter)
    end
  end
end

-- Gives a waiter a place, or keeps the one it has. `wait` and `foreign_wait`: the timeouts of
-- leasehold's and Redisson's waiters; `is_first`: it goes to the front.
local function enqueue(queue, deadlines, holder, now, wait, foreign_wait, is_first)
  local own, behind, queued = now + wait, 0, false
  if not is_first then
    -- A Redisson waiter subtracts its timeout from every deadline behind it when its turn comes,
    -- and one that dies keeps its place until its own deadline: the deadline of this waiter must be
    -- later than both.
    for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
      if waiter == holder then
        queued = true
        break
      end
      if is_foreign(waiter) then
        own = own + foreign_wait
        behind = math.max(behind, tonumber(redis.call('zscore', deadlines, waiter) or 0))
      end
    end
    if behind > 0 then
      own = math.max(own, behind + wait)
    end
  end
  redis.call('zadd', deadlines, string.format('%.0f', own), holder)
  local length
  if is_first then
    length = to_the_front(queue, holder)
  elseif not queued then
    length = redis.call('rpush', queue, holder)
  end
  -- A queue of dead waiters would stay for ever without a TTL: it expires some minutes after the
  -- last deadline.
  local spare = math.max(300000, foreign_wait)
  if length == 1 or redis.call('pttl', deadlines) < own - now + spare then
    local last = redis.call('zrange', deadlines, -1, -1, 'withscores')[2]
    local gone = string.format('%.0f', tonumber(last) + 2 * spare)
    redis.call('pexpireat', queue, gone)
    redis.call('pexpireat', deadlines, gone)
  end
end

