-- lib/queue: the queue of a fair lock. Put in front of the scripts that look at it; no script by itself.
-- Few functions: making one costs a third of a microsecond in every run.
-- Our client ids are UUIDs of version 8, Java's of version 4.
local function is_foreign(waiter)
  return string.sub(waiter, 15, 15) ~= '8'
end

-- How long a waiter of ours keeps its place without another try: the last six digits of its client's id, in ms.
local function own_wait(waiter)
  return tonumber(string.sub(waiter, 31, 36), 16) or math.huge
end

-- The first waiter whose deadline has not passed, that deadline, and whether any were removed: those before it, which are dead;
-- also one without a deadline, which no live waiter is (Redisson would wait behind it for ever). Whoever asks is alive.
local function live_head(queue, deadlines, channel, now, asker)
  local swept = false
  while true do
    local head = redis.call('lindex', queue, 0)
    if not head or head == asker then
      return head or nil, nil, swept
    end
    local deadline = tonumber(redis.call('zscore', deadlines, head) or 0)
    if deadline > now then
      return head, deadline, swept
    end
    -- Where time has passed for one who lives, or for everybody, the server stood still, and nobody could keep a place:
    -- all of them have one try before they count as dead, or they would line up anew in the order in which they wake up.
    local standing = asker and redis.call('zscore', deadlines, asker)
    if asker and standing and tonumber(standing) <= now
      or not asker and redis.call('zcount', deadlines, '(' .. now, '+inf') == 0 then
      return head, deadline, swept
    end
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, head)
    swept = true
    if is_foreign(head) then
      -- If it lives (its predecessors took longer than it has patience for) it lines up anew. Nobody else would tell it,
      -- and it may sleep for as long as its first hint says, or for ever.
      redis.call('publish', channel .. ':' .. head, '0')
    end
  end
end

-- A waiter of ours has left. Redisson's queues have no TTL, and the one here may end before the deadline of a Java waiter
-- that came behind the last of ours.
local function without_ttl(queue, deadlines)
  local last = redis.call('lindex', queue, -1)
  if last and is_foreign(last) then
    redis.call('persist', queue)
    redis.call('persist', deadlines)
  end
end

-- Whether both wait for one client, and the first for longer: the holders of a client are numbered.
local function is_before(waiter, holder)
  local client, number = string.match(holder, '^(.*):(%d+)$')
  local other, before = string.match(waiter, '^(.*):(%d+)$')
  return client and other == client and tonumber(before) < tonumber(number)
end

-- In front of all but those of its client that came before it. Returns the length of the queue.
local function to_the_front(queue, holder)
  for _, waiter in ipairs(redis.call('lrange', queue, 0, -1)) do
    if not is_before(waiter, holder) then
      return redis.call('linsert', queue, 'before', waiter, holder)
    end
  end
  return redis.call('rpush', queue, holder)
end

-- Java counts a deadline from the waiter before it and takes its own wait back when it leaves; ours counted from Java's. What a
-- Java waiter that has left was given on top is still in the deadlines of those behind it, until the first of ours behind it has
-- been seen there. Without this a dead one of ours would stand for that long (280 s after a Java waiter that got its turn at
-- once), and each of our turns would leave its wait in the deadlines of all who stay: they would run ahead of the clock for as
-- long as the queue does not get empty, and a dead waiter with them.
-- A waiter of ours that no Java waiter precedes gets what it would give itself at its next try, so one that lives, which has
-- that try in time, loses nothing. Java's, and ours behind it, are put back by how far what they were counted from was ahead of
-- the lock's TTL (`excess`: that of the one who has just left), but never below what they would get if they came now.
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

-- Gives a waiter a place, or keeps the one it has. `foreign_wait`: what a Java waiter has for `wait`; `is_first`: it goes to
-- the front.
local function line_up(queue, deadlines, holder, now, wait, foreign_wait, is_first)
  local own, behind, queued = now + wait, 0, false
  if not is_first then
    -- A Java waiter subtracts its wait from every deadline behind it when its turn comes, and one that dies holds its place
    -- for as long as its own deadline says: ours must outlast both.
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
  -- A queue that is left behind by dead waiters would stay: it ends some minutes after the last deadline.
  local spare = math.max(300000, foreign_wait)
  if length == 1 or redis.call('pttl', deadlines) < own - now + spare then
    local last = redis.call('zrange', deadlines, -1, -1, 'withscores')[2]
    local gone = string.format('%.0f', tonumber(last) + 2 * spare)
    redis.call('pexpireat', queue, gone)
    redis.call('pexpireat', deadlines, gone)
  end
end

