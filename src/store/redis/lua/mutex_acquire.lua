-- mutex_acquire: take the lock for a holder, or say how long it stays taken.
-- KEYS[1] lock    hash, holder -> hold count
-- KEYS[2] token   integer, the fencing token given last
-- ARGV[1] holder
-- ARGV[2] lease in ms
-- ARGV[3] the count this holder has now, 0 for an outermost acquire
-- ARGV[4] what becomes of the token: -1 none is given, 0 its key is kept for ever, else the TTL of a new key in ms
-- ARGV[5] floor: a token below it is raised to the server's clock
-- ARGV[6] not-after: server time in microseconds past which an outermost acquire must not run any more, 0 for no limit
-- Returns {1, token or 0} acquired | {0, pttl} held by another | {2, 0} the holder had it and has lost it | {3, 0} too late
-- Repeat-safe: yes. The count is set, not added to, and the holder is fresh for every outermost call, so a repeat finds
-- its own field; a repeated outermost acquire gives a higher token, and nobody was given the lock in between.
local lock, field, lease, held = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local token_key, rule, floor, mode, next_up = KEYS[2], ARGV[4], ARGV[5], nil, nil
local pttl = redis.call('pttl', lock)

if pttl ~= -2 or held > 0 then
  local mine = redis.call('hexists', lock, field) == 1
  if held > 0 and not mine then
    return {2, 0}
  end
  if not mine then
    if redis.call('hexists', lock, 'mode') == 1 then
      return redis.error_reply('WRONGTYPE the lock under this name is of another kind')
    end
    -- Only where it costs nobody who waits for a lock another command: a fenced value has no TTL.
    if pttl == -1 and redis.call('hexists', lock, 'token') == 1 then
      return redis.error_reply('WRONGTYPE a fenced value stands under this name')
    end
    return {0, pttl}
  end
end
if held == 0 and ARGV[6] ~= '0' then
  local time = redis.call('time')
  if time[1] * 1000000 + time[2] > tonumber(ARGV[6]) then
    return {3, 0}
  end
end
