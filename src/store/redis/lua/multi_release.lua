-- multi_release: give up one level of several holds; those whose last level it was free their locks and wake the waiters.
-- KEYS[i] lock    hash, holder -> hold count; n of them
-- ARGV[i] holder in KEYS[i]
-- ARGV[n + i] the count that this holder has there now; 1 removes the hold whatever count stands in Redis
-- ARGV[2 * n + i] channel to publish a full release of KEYS[i] on
-- Returns two values a lock: 0, 0 not held (after a lost reply: an earlier run worked) | 1, 0 one level given up
--         2, receivers freed, and how many subscribers the message reached | the error of that lock, 0
-- Repeat-safe: yes. Counts are set, not subtracted from, and a holder is never used again once it is removed.
-- pcall, because with call one key of the wrong type would leave every lock behind it held.
local n, answers, freed = #KEYS, {}, {}
for i = 1, n do
  local lock, holder, status = KEYS[i], ARGV[i], 0
  if tonumber(ARGV[n + i]) > 1 then
    status = redis.pcall('hexists', lock, holder)
    if status == 1 then
      local set = redis.pcall('hset', lock, holder, ARGV[n + i] - 1)
      status = type(set) == 'number' and 1 or set
    end
  else
    status = redis.pcall('hdel', lock, holder)
    if status == 1 then
      status = 2
      if redis.call('exists', lock) == 0 then
        freed[#freed + 1] = i
      end
    end
  end
  answers[2 * i - 1], answers[2 * i] = status, 0
end
-- Nobody is told of one lock before all are given up: whoever wants all of them need not try twice.
for _, i in ipairs(freed) do
  local reached = redis.pcall('publish', ARGV[2 * n + i], '0')
  if type(reached) == 'number' then
    answers[2 * i] = reached
  else
    answers[2 * i - 1] = reached
  end
end
return answers
