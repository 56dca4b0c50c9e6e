-- write_acquire: takes a read-write lock for writing, or returns how long it stays held.
-- KEYS[1] lock    hash, mode -> read or write, reader -> hold count, writer:write -> hold count
-- KEYS[2] token   integer, the last fencing token
-- KEYS[3] marker  string, a leasehold writer waits for the readers to leave
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] hold count of the writer now; 0: an outermost acquire
-- ARGV[4] token rule: -1 gives none, 0 keeps the key without a TTL, else the TTL of a new key in ms
-- ARGV[5] TTL of the marker of a waiting writer in ms; 0: it does not wait
-- ARGV[6] floor: a token below it is raised to the server's clock
-- ARGV[7] not-after: server time in microseconds past which an outermost acquire must not run; 0:
--         no limit
-- Returns {1, token or 0} acquired
--         {0, ms until the next attempt is due} held by others
--         {2, 0} the holder has lost it
--         {3, 0} too late
-- Repeat-safe: yes, as mutex_acquire. The marker is set again with the same value.
local lock, field, lease, held = KEYS[1], ARGV[1] .. ':write', ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, mode = KEYS[2], ARGV[4], ARGV[6], 'write'
local pttl = redis.call('pttl', lock)

if held == 0 and ARGV[7] ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[7]) then
    return {3, 0}
  end
end
if pttl ~= -2 or held > 0 then
  local mine = redis.call('hexists', lock, field) == 1
  if held > 0 and not mine then
    return {2, 0}
  end
  if not mine then
    local now = redis.call('hget', lock, 'mode')
    if not now then
      return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
    end
    -- A lock has a TTL. The condition spares the waiters of a lock these commands.
    if pttl == -1 and not is_lock(lock, true) then
      return redis.error_reply('WRONGTYPE something other than a lock has this name')
    end
    local wait = tonumber(ARGV[5])
    -- Not while a writer holds it: waiting writers would then always come before all readers.
    if wait > 0 and now == 'read' then
      redis.call('set', KEYS[3], ARGV[1], 'px', wait)
      if pttl < 0 or pttl > wait / 3 then
        pttl = math.floor(wait / 3)
      end
    end
    return {0, pttl}
  end
end
if held == 0 then
  redis.call('del', KEYS[3])
end
