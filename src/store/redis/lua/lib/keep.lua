-- lib/keep: leaves a lock taken for a time although its holder has given it up; put in front of the
-- scripts that do this. The holder's field gets another name, as after a release: a renewal that
-- runs late would find the holder otherwise, and put off the end.
-- Returns whether it is kept for this holder. A repeat only ever lets it end sooner.
local function keep(lock, field, kept, ms)
  if redis.call('hexists', lock, field) == 1 then
    -- The TTL first: a full server refuses a new field only as the first change of a script.
    redis.call('pexpire', lock, ms)
    -- While its slot moves, no command may name a key that the script has deleted: so the hash is
    -- never empty.
    redis.call('hset', lock, kept, '1')
    redis.call('hdel', lock, field)
    return true
  end
  if redis.call('hexists', lock, kept) == 0 then
    return false
  end
  if redis.call('pttl', lock) > tonumber(ms) then
    redis.call('pexpire', lock, ms)
  end
  return true
end

