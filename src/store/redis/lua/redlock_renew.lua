-- redlock_renew: extends many holds at one of several masters, each only if its holder is still
-- there.
-- KEYS[i] lock       hash, holder -> hold count
-- KEYS[#KEYS] node   hash, the vote state of this master
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS - 1 + i] lease of KEYS[i] in ms; 0 only checks whether the holder is still there
-- ARGV[#ARGV] run_id of the server process at the other end of the connection
-- Returns one value for each lock: 1 held, 0 lost, or an error; an empty list if this master has no
--           vote
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
if redis.call('hget', KEYS[#KEYS], 'boot') ~= ARGV[#ARGV] then
  return {}
end
local n = #KEYS - 1
-- lib/renew_hashes, behind this, reads KEYS[i], ARGV[i] and ARGV[#KEYS - 1 + i].
