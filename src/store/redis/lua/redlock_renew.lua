-- redlock_renew: one master's vote on the holds of a client, each lengthened only where its holder still stands.
-- KEYS[i] lock       hash, holder -> hold count
-- KEYS[#KEYS] node   hash, what this master must not forget
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS - 1 + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands
-- ARGV[#ARGV] run_id of the server process that the client is connected to
-- Returns one answer a lock: 1 held, 0 gone, or the error of that lock; nothing at all when this master has no vote
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
if redis.call('hget', KEYS[#KEYS], 'boot') ~= ARGV[#ARGV] then
  return {}
end
local n = #KEYS - 1
-- lib/renew_hashes, behind this, reads KEYS[i], ARGV[i] and ARGV[#KEYS - 1 + i].
