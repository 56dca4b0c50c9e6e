-- data_renew: lease_renew, for holders that have data: its end moves with the lease, and they learn
-- whether somebody asks for the lock.
-- KEYS[i] lock       hash, holder -> hold count
-- KEYS[n + i] data   hash, what the last holder of the i-th lock with data has written
-- ARGV[i] holder of KEYS[i]
-- ARGV[n + i] lease of KEYS[i] in ms; 0 only checks whether the holder is still there
-- Returns what lease_renew returns, or minus the time of the question (epoch ms) instead of 1
-- Repeat-safe: yes, as lease_renew. Only the holder's own data is touched.
local n = #KEYS / 2
local answers = inner({unpack(KEYS, 1, n)}, ARGV)
for i = 1, n do
  -- By pcall: whatever has the name of the data, the lease is extended.
  if answers[i] == 1 and ARGV[n + i] ~= '0' then
    pcall(keep_data, KEYS[n + i], redis.call('pttl', KEYS[i]), ARGV[i])
  end
  if answers[i] == 1 and redis.pcall('hget', KEYS[n + i], 'holder') == ARGV[i] then
    local asked = tonumber(redis.call('hget', KEYS[n + i], 'asked'))
    answers[i] = asked and -asked or 1
  end
end
return answers
