-- lib/renew_hashes: extends the holds of the first `n` keys, a local of the script; put behind the
-- scripts that do this.
-- KEYS[i] lock    hash, holder -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[n + i] lease of KEYS[i] in ms; 0 only checks whether the holder is still there

-- pcall, because with call one key of the wrong type would leave all later locks unrenewed.
local answers = {}
for i = 1, n do
  local lease = tonumber(ARGV[n + i])
  local answer = redis.pcall('hexists', KEYS[i], ARGV[i])
  if answer == 1 and lease > 0 then
    local pttl = redis.pcall('pttl', KEYS[i])
    local set = pttl
    if type(pttl) == 'number' then
      -- Also if that changes nothing: a WAIT behind a renewal covers only what it has written.
      set = redis.pcall('pexpire', KEYS[i], math.max(pttl, lease))
    end
    -- Refused: an answer of 1 would say that the lease is extended.
    if type(set) ~= 'number' then
      answer = set
    end
  end
  answers[i] = answer
end
return answers
