-- lease_renew: lengthen many holds at once, each only where its holder still stands.
-- KEYS[i] lock    hash, holder -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands
-- Returns one answer a lock: 1 held, 0 gone, or the error of that lock
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
-- pcall, because with call one key of the wrong type would leave every lock behind it unrenewed.
local answers = {}
for i = 1, #KEYS do
  local lease = tonumber(ARGV[#KEYS + i])
  local answer = redis.pcall('hexists', KEYS[i], ARGV[i])
  if answer == 1 and lease > 0 then
    local pttl = redis.pcall('pttl', KEYS[i])
    if type(pttl) == 'number' and pttl < lease then
      local set = redis.pcall('pexpire', KEYS[i], lease)
      if type(set) ~= 'number' then
        answer = set
      end
    end
  end
  answers[i] = answer
end
return answers
