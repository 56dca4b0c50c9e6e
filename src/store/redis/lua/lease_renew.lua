-- lease_renew: lengthen many holds at once, each only where its holder still stands.
-- KEYS[i] lock    hash, holder -> hold count
-- ARGV[i] holder of KEYS[i]
-- ARGV[#KEYS + i] lease of KEYS[i] in ms; 0 only looks whether the holder still stands
-- Returns one answer a lock: 1 held, 0 gone, or the error of that lock
-- Repeat-safe: yes. A TTL is only ever raised, and only for a holder that is there.
local n = #KEYS
-- lib/renew_hashes, behind this, reads KEYS[i], ARGV[i] and ARGV[#KEYS + i].
