-- rw_renew: lengthen many holds of read-write locks at once, each only where its holder still stands.
-- KEYS[i] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands, and keeps the lock for as long as
--                 the longest of its own read levels, because a Java reader's renewal sets the lock's TTL flat
-- ARGV[2 * #KEYS + i] what the keys of its levels begin with: the hash tag of the lock
-- Returns one answer a lock: 1 held, 0 gone, or the error of that lock
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
local function raise(lock, ttl)
  local pttl = redis.call('pttl', lock)
  if pttl >= 0 and pttl < ttl then
    redis.call('pexpire', lock, ttl)
  end
end

local function renew(lock, holder, lease, tag)
  -- While a downgrade is in doubt either field may be the one that stands.
  local writing = redis.call('hexists', lock, holder .. ':write') == 1
  local count = tonumber(redis.call('hget', lock, holder) or 0)
  local longest = writing and lease or 0
  for n = 1, count do
    local level = tag .. ':' .. holder .. ':rwlock_timeout:' .. n
    local pttl = redis.call('pttl', level)
    if lease > 0 and pttl < lease then
      redis.call('set', level, '1', 'px', lease)
      pttl = lease
    end
    longest = math.max(longest, pttl)
  end
  raise(lock, longest)
  return (writing or count > 0) and 1 or 0
end

local answers = {}
for i = 1, #KEYS do
  local lease = tonumber(ARGV[#KEYS + i])
  local done, answer = pcall(renew, KEYS[i], ARGV[i], lease, ARGV[2 * #KEYS + i])
  -- Redis 6.2 raises a text, later ones a table.
  answers[i] = (done or type(answer) == 'table') and answer or redis.error_reply(answer)
end
return answers
