-- rw_renew: extends many holds of read-write locks, each only if its holder is still there.
-- KEYS[i] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only checks whether the holder is still there. The lock
--         keeps at least the longest TTL of the holder's own timeout keys
-- ARGV[2 * #KEYS + i] hash tag of the lock, the prefix of its timeout keys
-- Returns one value for each lock: 1 held; more than 1: held beside a Redisson reader that may cut
--           the lock's TTL to so many ms; 0 lost; or an error
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.

local function level(tag, reader, n)
  return tag .. ':' .. reader .. ':rwlock_timeout:' .. n
end

-- Only the fields of one holder: each reader renews once a second, and if each read all fields of a
-- lock with many readers, that would cost the square of their number.
local function fields_of(lock, holder, writer)
  if redis.call('hlen', lock) <= 100 then
    return redis.call('hgetall', lock)
  end
  return {holder, redis.call('hget', lock, holder) or 0, writer, redis.call('hget', lock, writer)}
end

local function renew(lock, holder, lease, tag)
  -- After a downgrade of unknown outcome either field may exist.
  local writer, writing, count = holder .. ':write', false, 0
  -- A renewal by a Redisson reader sets the TTL of the whole lock to that client's watchdog time,
  -- whatever others were promised, and before Redisson 4.4 that of all their timeout keys as well.
  -- The TTL of its own timeout keys is a lower bound of that time.
  local java = math.huge
  local fields = fields_of(lock, holder, writer)
  for i = 1, #fields, 2 do
    local field, levels = fields[i], levels_in(fields[i + 1])
    if field == holder then
      count = levels
    elseif field == writer then
      writing = levels > 0
    -- Leasehold's client ids are UUIDs of version 8, Redisson's of version 4.
    elseif string.sub(field, 15, 15) ~= '8' and is_hold(field, fields[i + 1]) then
      for n = 1, levels do
        local pttl = redis.call('pttl', level(tag, field, n))
        java = pttl > 0 and math.min(java, pttl) or java
      end
    end
  end
  if not writing and count == 0 then
    return 0
  end

  local promised, longest, is_written = 0, writing and lease or 0, false
  for n = 1, count do
    local key = level(tag, holder, n)
    local pttl = redis.call('pttl', key)
    promised = math.max(promised, pttl)
    if lease > 0 and pttl < lease then
      if pttl == -2 then
        -- While the slot moves, the key may be at the other node, and a second one would keep it
        -- there. A node refuses a command that names such a key beside one that it has.
        redis.call('exists', lock, key)
        -- No holder has this id, so it removes nothing. A full server refuses SET only as the first
        -- change of a script.
        redis.call('hdel', lock, '')
        redis.call('set', key, '1', 'px', lease)
      else
        redis.call('pexpire', key, lease)
      end
      pttl, is_written = lease, true
    end
    longest = math.max(longest, pttl)
  end
  local pttl = redis.call('pttl', lock)
  if pttl >= 0 and pttl < longest then
    redis.call('pexpire', lock, longest)
  elseif lease > 0 and pttl > 0 and not is_written and (writing or promised > lease * 1.02 + 20) then
    -- A WAIT behind a renewal covers only what it has written. Most visits of a reader ask for what
    -- is left of its lease, which needs no write.
    redis.call('pexpire', lock, pttl)
  end
  -- No leasehold script leaves a lock a shorter TTL than one of its readers, except for a pause
  -- within a script: Redisson has cut it.
  if pttl >= 0 and pttl < promised * 0.99 then
    java = math.min(java, pttl)
  end
  if writing or java == math.huge then
    return 1
  end
  return math.max(java, 2)
end

-- lib/renew_each, behind this, reads KEYS[i], ARGV[i], ARGV[#KEYS + i] and ARGV[2 * #KEYS + i].
