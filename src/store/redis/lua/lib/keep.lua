-- lib/keep: leaves a lock taken for a time although its holder has given it up; put in front of the
-- scripts that do this. The holder's field gets another name, as after a release: otherwise a late
-- renewal would find the holder, and postpone the end.
-- Returns 0 not held
--         1 kept already, for no longer
--         2 kept from now on, or until sooner than before: the waiters have to be notified
local function keep(lock, field, kept, ms)
  if redis.call('hexists', lock, field) == 1 then
    -- The TTL first: a full server refuses a new field only as the first change of a script.
    redis.call('pexpire', lock, ms)
    -- While its slot moves, no command may name a key that the script has deleted: so the hash is
    -- never empty.
    redis.call('hset', lock, kept, '1')
    redis.call('hdel', lock, field)
    return 2
  end
  if redis.call('hexists', lock, kept) == 0 then
    return 0
  end
  if redis.call('pttl', lock) <= tonumber(ms) then
    return 1
  end
  redis.call('pexpire', lock, ms)
  return 2
end

