-- rw_renew: lengthen many holds of read-write locks at once, each only where its holder still stands.
-- KEYS[i] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands. Whatever it is, the lock is kept for
--                 as long as the longest of its own read levels
-- ARGV[2 * #KEYS + i] what the keys of its levels begin with: the hash tag of the lock
-- Returns one answer a lock: 1 held, more than 1 held beside a reader of Java's that may cut the lock to so many ms,
--         0 gone, or the error of that lock
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.

local function level(tag, reader, n)
  return tag .. ':' .. reader .. ':rwlock_timeout:' .. n
end

-- Of a lock that many read, only the fields of one holder: each reader asks once a second, and reading all of them would cost
-- the square of their number.
local function fields_of(lock, holder, writer)
  if redis.call('hlen', lock) <= 100 then
    return redis.call('hgetall', lock)
  end
  return {holder, redis.call('hget', lock, holder) or 0, writer, redis.call('hget', lock, writer)}
end

local function renew(lock, holder, lease, tag)
  -- While a downgrade is in doubt either field may be the one that stands.
  local writer, writing, count = holder .. ':write', false, 0
  -- A renewal by a Java reader sets the TTL of the whole lock to that client's watchdog time, whatever others were promised,
  -- and before Redisson 4.4 that of all their levels as well. What is left of its own levels is a lower bound of that time.
  local java = math.huge
  local fields = fields_of(lock, holder, writer)
  for i = 1, #fields, 2 do
    local field, levels = fields[i], tonumber(fields[i + 1]) or 0
    if field == holder then
      count = levels
    elseif field == writer then
      writing = levels > 0
    -- Our client ids are UUIDs of version 8, Java's of version 4.
    elseif field ~= 'mode' and string.sub(field, 15, 15) ~= '8' then
      for n = 1, levels do
        local pttl = redis.call('pttl', level(tag, field, n))
        java = pttl > 0 and math.min(java, pttl) or java
      end
    end
  end
  if not writing and count == 0 then
    return 0
  end

  local promised, longest = 0, writing and lease or 0
  for n = 1, count do
    local key = level(tag, holder, n)
    local pttl = redis.call('pttl', key)
    promised = math.max(promised, pttl)
    if lease > 0 and pttl < lease then
      redis.call('set', key, '1', 'px', lease)
      pttl = lease
    end
    longest = math.max(longest, pttl)
  end
  local pttl = redis.call('pttl', lock)
  if pttl >= 0 and pttl < longest then
    redis.call('pexpire', lock, longest)
  end
  -- Nothing of ours makes a lock end before one of its readers by more than a pause within a script: Java has cut it.
  if pttl >= 0 and pttl < promised * 0.99 then
    java = math.min(java, pttl)
  end
  if writing or java == math.huge then
    return 1
  end
  return math.max(java, 2)
end

-- lib/renew_each, behind this, reads KEYS[i], ARGV[i], ARGV[#KEYS + i] and ARGV[2 * #KEYS + i].
