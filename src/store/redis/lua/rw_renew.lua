-- rw_renew: lengthen many holds of read-write locks at once, each only where its holder still stands.
-- KEYS[i] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands. Whatever it is, the lock is kept for
--                 as long as the longest of its own read levels
-- ARGV[2 * #KEYS + i] what the keys of its levels begin with: the hash tag of the lock
-- Returns one answer a lock: 1 held, more than 1 held beside a reader of Java's that may cut the lock to so many ms,
--         0 gone, or the error of that lock
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.

-- A renewal by a Java reader sets the TTL of the whole lock to that client's watchdog time, whatever others were promised, and
-- before Redisson 4.4 that of all their levels as well. What is left of its own levels is a lower bound of that time.
local function left_to_java(lock, tag)
  local least = math.huge
  -- Every reader asks once a second: beyond this many the search would cost the square of their number.
  if redis.call('hlen', lock) > 100 then
    return least
  end
  local fields = redis.call('hgetall', lock)
  for i = 1, #fields, 2 do
    -- Our client ids are UUIDs of version 8, Java's of version 4.
    if fields[i] ~= 'mode' and string.sub(fields[i], 15, 15) ~= '8' then
      for n = 1, tonumber(fields[i + 1]) or 0 do
        local pttl = redis.call('pttl', tag .. ':' .. fields[i] .. ':rwlock_timeout:' .. n)
        if pttl > 0 then
          least = math.min(least, pttl)
        end
      end
    end
  end
  return least
end

local function renew(lock, holder, lease, tag)
  -- While a downgrade is in doubt either field may be the one that stands.
  local writing = redis.call('hexists', lock, holder .. ':write') == 1
  local count = tonumber(redis.call('hget', lock, holder) or 0)
  if not writing and count == 0 then
    return 0
  end
  local promised, longest = 0, writing and lease or 0
  for n = 1, count do
    local level = tag .. ':' .. holder .. ':rwlock_timeout:' .. n
    local pttl = redis.call('pttl', level)
    promised = math.max(promised, pttl)
    if lease > 0 and pttl < lease then
      redis.call('set', level, '1', 'px', lease)
      pttl = lease
    end
    longest = math.max(longest, pttl)
  end
  local pttl = redis.call('pttl', lock)
  if pttl >= 0 and pttl < longest then
    redis.call('pexpire', lock, longest)
  end
  if writing then
    return 1
  end
  -- Nothing of ours makes a lock end before one of its readers by more than a pause within a script: Java has cut it.
  local cut = pttl >= 0 and pttl < promised * 0.99 and pttl or math.huge
  local least = math.min(cut, left_to_java(lock, tag))
  return least < math.huge and math.max(least, 2) or 1
end

local answers = {}
for i = 1, #KEYS do
  local lease = tonumber(ARGV[#KEYS + i])
  local done, answer = pcall(renew, KEYS[i], ARGV[i], lease, ARGV[2 * #KEYS + i])
  -- Redis 6.2 raises a text, later ones a table.
  answers[i] = (done or type(answer) == 'table') and answer or redis.error_reply(answer)
end
return answers
