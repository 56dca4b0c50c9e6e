-- multi_release: gives up one hold count of several locks; a lock without holders is freed, or left
-- taken for a time, and its waiters are notified.
-- KEYS[i] lock    hash, holder -> hold count; n of them
-- ARGV[i] holder in KEYS[i]
-- ARGV[n + i] hold count of the holder now; 1 removes the hold, whatever count is in Redis
-- ARGV[2 * n + i] channel for the release message of KEYS[i]
-- ARGV[3 * n + i] for how long in ms KEYS[i] stays taken after the last hold count; 0 or absent: it
--         is freed
-- Returns two values for each lock: 0, 0 not held (after a lost reply: an earlier run released it)
--         1, 0 one hold count given up
--         1, receivers kept, and how many subscribers the message reached
--         2, receivers freed, and how many subscribers the message reached
--         an error, 0
-- Repeat-safe: yes. Counts are set, not decremented, a holder is never used again once it is
-- removed, and a repeat only ever lets a kept lock end sooner. pcall, because with call one key of
-- the wrong type would leave all locks behind it held.
local n, answers, told = #KEYS, {}, {}
for i = 1, n do
  local lock, holder, status, ms = KEYS[i], ARGV[i], 0, ARGV[3 * n + i] or '0'
  if ms ~= '0' and ARGV[n + i] == '1' then
    local done, kept = pcall(keep, lock, holder, holder .. ':kept', ms)
    if not done then
      -- Redis 6.2 raises a text, later versions raise a table.
      status = type(kept) == 'table' and kept or redis.error_reply(kept)
    else
      status = math.min(kept, 1)
      told[#told + 1] = kept == 2 and i or nil
    end
  elseif tonumber(ARGV[n + i]) > 1 then
    status = redis.pcall('hexists', lock, holder)
    if status == 1 then
      -- As in lib/release_level.
      redis.pcall('hdel', lock, '')
      local set = redis.pcall('hset', lock, holder, ARGV[n + i] - 1)
      status = type(set) == 'number' and 1 or set
    end
  else
    -- Counted before: while its slot moves, no command may name a key that the script has deleted.
    local holders = redis.pcall('hlen', lock)
    status = redis.pcall('hdel', lock, holder)
    if status == 1 then
      status = 2
      -- If the count was refused, a message too many does no harm.
      if holders == 1 or type(holders) == 'table' then
        told[#told + 1] = i
      end
    end
  end
  answers[2 * i - 1], answers[2 * i] = status, 0
end
-- No message is sent before all are released, so that a waiter for all of them gets them in one
-- attempt.
for _, i in ipairs(told) do
  local reached = redis.pcall('publish', ARGV[2 * n + i], '0')
  if type(reached) == 'number' then
    answers[2 * i] = reached
  else
    answers[2 * i - 1] = reached
  end
end
return answers
